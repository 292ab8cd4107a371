"""The names of contenders and cases: in the benchmarks' output, and on the pages."""

from __future__ import annotations

from compare import IDLE as IDLE
from compare import IDLE_CPU as IDLE_CPU
from peers import INTEL_MPI as INTEL_MPI
from peers import MPICH as MPICH
from peers import OPEN_MPI_4 as OPEN_MPI_4
from peers import OPEN_MPI_5 as OPEN_MPI_5

KIB, MIB = 1 << 10, 1 << 20
SIZES = (4, KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
SIZES_BETWEEN_HOSTS = (4, MIB, 16 * MIB, 64 * MIB)
MODEL = "resnet50 161 tensors"
MODEL_BYTES = 102_228_128  # the sum of its tensors: 25,557,032 float32
IDLE_SECONDS = 2.0  # how long the switches are counted

DISTRUN, GLOO, TORCH_GLOO, TORCH_DDP, SWEEP = "distrun", "gloo", "torch gloo", "torch ddp", "sweep"
MPIS = (OPEN_MPI_5, MPICH, INTEL_MPI, OPEN_MPI_4)
PEERS = (*MPIS, GLOO, TORCH_GLOO)
# Contender -> its name, and the name of the version in About.
LABELS = {
    DISTRUN: ("distrun", ""),
    OPEN_MPI_5: ("Open MPI", "Open MPI from PyPI"),
    MPICH: ("MPICH", "MPICH from PyPI"),
    INTEL_MPI: ("Intel MPI", "Intel MPI from PyPI"),
    OPEN_MPI_4: ("Open MPI", "Open MPI from Debian"),
    GLOO: ("Gloo", ""),
    TORCH_GLOO: ("torch gloo", ""),
    TORCH_DDP: ("torch DDP on gloo", ""),
    SWEEP: ("one sweep of memory", ""),
}
# Plot -> the part whose data it shows.
PLOTS = {
    "allreduce-time.svg": "allreduce",
    "allreduce-ratio.svg": "allreduce",
    "resnet50.svg": "allreduce",
    "training-torch.svg": "torch",
    "training-tensorflow.svg": "tensorflow",
    "two-hosts.svg": "hosts",
    "start.svg": "start",
    "idle.svg": "idle",
}


def label(who: str, versions: dict[str, str]) -> str:
    """Returns a contender's name on the pages, with its version if there are several of that name."""
    name, version = LABELS.get(who, (who, ""))
    return f"{name} {versions[version]}" if versions.get(version) else name


def size(count: int) -> str:
    """Returns a number of bytes in words: 64 KiB."""
    for unit, factor in (("MiB", MIB), ("KiB", KIB)):
        if count >= factor:
            return f"{count // factor} {unit}"
    return f"{count} B"


def in_place(count: int) -> str:
    """Returns the name of the case in the benchmarks' output."""
    return f"{count} B in place"


def unit(seconds: float) -> tuple[str, float]:
    """Returns the unit for a time, and its seconds."""
    return next(((name, of) for name, of in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)) if seconds >= of), ("ns", 1e-9))


def time(seconds: float) -> str:
    """Returns a time with three digits: 1.23 ms."""
    name, of = unit(seconds)
    return f"{digits(seconds / of)} {name}"


def digits(value: float, count: int = 3) -> str:
    """Returns a number with so many digits: 0.0123, 1.23, 12.3, 123, 1,230."""
    rounded = float(f"{value:.{count}g}")
    exponent = int(f"{rounded:e}".split("e")[1])
    return f"{rounded:,.{max(0, count - 1 - exponent)}f}" if rounded else "0"


def times(value: float) -> str:
    """Returns a ratio with two digits: 1.4, 23."""
    return digits(value, 2)
