"""`distrun check -H ...` runs this, with one rank per host. It collects the hosts' facts, measures the connections
between the hosts, and reports what does not fit together. It imports no framework: it reads the installed versions.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import platform
import resource
import shutil
import statistics
import sys
import time
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from distrun import basics
from distrun._abi import DType
from distrun._library import library_file
from distrun._objects import allgather_object, broadcast_buffer
from distrun.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    registered_id,
    remove_process_set,
)

Facts = dict[str, Any]

FRAMEWORKS = ("numpy", "torch", "tensorflow", "keras", "jax", "mxnet", "mpi4py")
NCCL = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")
MIB = 1 << 20
# DataLoader workers pass batches through /dev/shm. In bytes.
SHM_WANTED = 64 * MIB
FILES_WANTED = 4096
# Seconds. With larger offsets, logs, certificates and names of checkpoints become wrong.
CLOCK_WANTED = 1.0
# Limits as multiples of the median over all pairs of hosts.
LATENCY_FACTOR, BANDWIDTH_FACTOR = 5.0, 0.3
LATENCY_FLOOR = 1e-3
PINGS, BULK = 10, 4 * MIB


def version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def gpus(root: Path) -> list[str]:
    """Returns the GPUs' models in the order of the PCI bus."""
    found = []
    for folder in sorted((root / "proc/driver/nvidia/gpus").glob("*")):
        lines = (folder / "information").read_text(errors="replace").splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("Model:")), "unknown")
        found.append(model)
    return found


def driver(root: Path) -> str:
    path = root / "sys/module/nvidia/version"
    return path.read_text().strip() if path.is_file() else ""


def limit(which: int) -> int:
    """Returns the soft limit; -1 means no limit."""
    return resource.getrlimit(which)[0]


def hard_limit(which: int) -> int:
    return resource.getrlimit(which)[1]


def build() -> str:
    """Returns a hash of the library, to distinguish builds of one version during development."""
    return hashlib.sha256(library_file().read_bytes()).hexdigest()[:12]


def unshared() -> str:
    """Returns why ranks on this host cannot share memory; "" if they can."""
    (shm,) = (one for one in basics.query("backends", json=True)["backends"] if one["backend"] == "shm")
    return "" if shm["usable"] else shm["reason"]


def facts(root: Path = Path("/")) -> Facts:
    shm = root / "dev/shm"
    return {
        "host": platform.node(),
        "distrun": basics.native_version(),
        "build": build(),
        "python": platform.python_version(),
        **{name: version_of(name) for name in FRAMEWORKS},
        "nccl": next(filter(None, map(version_of, NCCL)), ""),
        "driver": driver(root),
        "gpus": gpus(root),
        "cpus": len(os.sched_getaffinity(0)),
        "shm": shutil.disk_usage(shm).total if shm.is_dir() else 0,
        "unshared": unshared(),
        "memlock": limit(resource.RLIMIT_MEMLOCK),
        "infiniband": (root / "sys/class/infiniband").is_dir(),
        "files": limit(resource.RLIMIT_NOFILE),
        "files_at_most": hard_limit(resource.RLIMIT_NOFILE),
    }


# --- measurements with other hosts ---


def tournament(count: int) -> list[list[tuple[int, int]]]:
    """Returns all pairs of `count` hosts in rounds. In a round each host has at most one partner (the circle
    method)."""
    seats: list[int | None] = [*range(count)]
    if count % 2:
        seats.append(None)
    rounds = []
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        pairs = zip(seats[:half], reversed(seats[half:]), strict=True)
        rounds.append([(min(a, b), max(a, b)) for a, b in pairs if a is not None and b is not None])
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return [pairs for pairs in rounds if pairs]


def there_and_back(pair: tuple[int, int], process_set: ProcessSet, size: int, times: int) -> float:
    """Returns the time of one message in seconds: half of the best of `times` round trips."""
    data = (ctypes.c_uint8 * size)()
    members = registered_id(process_set)
    best = float("inf")
    for _ in range(times):
        begin = time.perf_counter()
        for root in pair:
            broadcast_buffer(f"check.{size}.{root}", data, DType.uint8, size, root, members)
        best = min(best, (time.perf_counter() - begin) / 2)
    return best


def measure_pairs(rank: int, count: int) -> dict[str, tuple[float, float]]:
    """Returns `a-b` -> (seconds for one byte, bytes per second), for the pairs with this rank as the first."""
    measured = {}
    for number, pairs in enumerate(tournament(count)):
        # With two hosts, the pair is the global set, which is registered already.
        sets = {pair: add_process_set(pair) if count > 2 else global_process_set for pair in pairs}
        for pair, process_set in sets.items():
            if rank in pair:
                latency = there_and_back(pair, process_set, 1, PINGS)
                seconds = there_and_back(pair, process_set, BULK, 3)
                if rank == pair[0]:
                    measured[f"{pair[0]}-{pair[1]}"] = (latency, BULK / seconds)
        allgather_object(number, name=f"check.round.{number}")
        for process_set in sets.values():
            if process_set is not global_process_set:
                remove_process_set(process_set)
    return measured


def clock_offset() -> float:
    """Returns how many seconds this host's clock is ahead of rank 0's. The error is about the time of a message."""
    offsets: list[float] = []
    for _ in range(5):
        allgather_object(0, name="check.clock.start")
        clocks = allgather_object(time.time(), name="check.clock")
        offsets.append(clocks[basics.rank()] - clocks[0])
    return statistics.median(offsets)


# --- problems ---


def named(hosts: Iterable[str]) -> str:
    return ", ".join(hosts)


def differing_hosts(rows: list[Facts], key: str) -> str:
    """Returns "" if all hosts have the same value; else the values with their hosts, the most common first."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        value = row[key]
        groups.setdefault(named(value) if isinstance(value, list) else str(value), []).append(row["host"])
    if len(groups) == 1:
        return ""
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    return "; ".join(f"{value or 'none'} on {named(hosts)}" for value, hosts in ordered)


def about_hosts(rows: list[Facts]) -> list[str]:
    problems = []
    for key in ("distrun", "python", *FRAMEWORKS, "nccl", "driver"):
        if differing := differing_hosts(rows, key):
            problems.append(f"{key} differs: {differing}. Install the same version on all hosts.")
    if len({row["distrun"] for row in rows}) == 1 and (differing := differing_hosts(rows, "build")):
        problems.append(f"the build of distrun differs: {differing}. Install the same wheel on all hosts.")
    if differing := differing_hosts(rows, "gpus"):
        problems.append(
            f"GPUs differ: {differing}. "
            "Use hosts with the same GPUs, or give each host its number of slots (-H host:N)."
        )
    for row in rows:
        host = row["host"]
        if row["shm"] < SHM_WANTED:
            size = f"{row['shm'] // 1024} KiB"
            cure = "mount -o remount,size=8G /dev/shm, or --shm-size for a container"
            problems.append(f"/dev/shm of {host} has {size}; DataLoader workers need more: {cure}.")
        if why := row.get("unshared"):
            problems.append(
                f"ranks on {host} cannot share memory: {why}; "
                "allow memfd_create in the container's seccomp profile, or more memory."
            )
        if 0 <= row["files"] < FILES_WANTED:
            # A rank's soft limit is the one where the user typed distrun, limited by the hard limit of the rank's host.
            hard = 0 <= row.get("files_at_most", -1) < FILES_WANTED
            cure = (
                f"raise the hard limit there (limits.conf) to {FILES_WANTED} or more"
                if hard
                else f"ulimit -n {FILES_WANTED} where you type distrun"
            )
            problems.append(f"{host} allows {row['files']} open files; {cure}.")
        if row["infiniband"] and row["memlock"] >= 0:
            problems.append(
                f"{host} has InfiniBand, but a process may lock only {row['memlock'] // 1024} KiB of memory; set "
                "`ulimit -l unlimited` there (limits.conf)."
            )
        if abs(row["clock"]) > CLOCK_WANTED:
            direction = "ahead of" if row["clock"] > 0 else "behind"
            problems.append(
                f"the clock of {host} is {abs(row['clock']):.1f} s {direction} {rows[0]['host']}'s; set it with "
                "chrony or NTP."
            )
    return problems


def about_pairs(hosts: list[str], pairs: Mapping[str, tuple[float, float]]) -> list[str]:
    if len(pairs) < 3:
        return []
    problems = []
    latency = statistics.median(value for value, _ in pairs.values())
    bandwidth = statistics.median(value for _, value in pairs.values())
    for pair, (seconds, rate) in pairs.items():
        names = " and ".join(hosts[int(number)] for number in pair.split("-"))
        cure = "check the cables, the speed of the interfaces, and --network"
        if seconds > max(LATENCY_FLOOR, LATENCY_FACTOR * latency):
            problems.append(
                f"{names} take {seconds * 1e3:.2f} ms for a message, others {latency * 1e3:.2f} ms; {cure}."
            )
        if rate < BANDWIDTH_FACTOR * bandwidth:
            problems.append(f"{names} reach {rate / MIB:.0f} MiB/s, others {bandwidth / MIB:.0f} MiB/s; {cure}.")
    return problems


def worst(hosts: list[str], pairs: Mapping[str, tuple[float, float]], rank: int) -> tuple[str, str]:
    """Returns the slowest message and the lowest bandwidth of a host, each with the other host."""
    own = {pair: value for pair, value in pairs.items() if str(rank) in pair.split("-")}
    if not own:
        return "-", "-"

    def other(pair: str) -> str:
        return hosts[next(int(number) for number in pair.split("-") if int(number) != rank)]

    slow = max(own, key=lambda pair: own[pair][0])
    narrow = min(own, key=lambda pair: own[pair][1])
    return f"{own[slow][0] * 1e6:.0f} us ({other(slow)})", f"{own[narrow][1] / MIB:.0f} MiB/s ({other(narrow)})"


def table(rows: list[Facts], pairs: Mapping[str, tuple[float, float]]) -> str:
    hosts = [row["host"] for row in rows]
    present = [name for name in (*FRAMEWORKS, "nccl", "driver") if any(row[name] for row in rows)]
    titles = [
        "host",
        "distrun",
        "python",
        *present,
        "GPUs",
        "CPUs",
        "/dev/shm",
        "files",
        "clock",
        "latency",
        "bandwidth",
    ]
    cells = [titles]
    for rank, row in enumerate(rows):
        shm = f"{row['shm'] // MIB} MiB" if row["shm"] >= MIB else f"{row['shm'] // 1024} KiB"
        known = [row["host"], row["distrun"], row["python"], *(row[name] or "-" for name in present)]
        files = str(row["files"]) if row["files"] >= 0 else "any"
        cells.append(
            [*known, str(len(row["gpus"])), str(row["cpus"]), shm, files, f"{row['clock']:+.3f} s"]
            + list(worst(hosts, pairs, rank))
        )
    widths = [max(len(line[column]) for line in cells) for column in range(len(titles))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
    )


def main(arguments: list[str]) -> None:
    basics.init()
    rows: list[Facts] = allgather_object({**facts(), "clock": clock_offset()}, name="check.facts")
    gathered = allgather_object(measure_pairs(basics.rank(), basics.size()), name="check.pairs")
    pairs = {pair: tuple(value) for part in gathered for pair, value in part.items()}
    problems = about_hosts(rows) + about_pairs([row["host"] for row in rows], pairs)
    if basics.rank() == 0:
        if "--json" in arguments:
            print(json.dumps({"hosts": rows, "pairs": pairs, "problems": problems}, indent=1))
        else:
            print(table(rows, pairs))
            print("\n".join(f"problem: {text}" for text in problems) or "no problem was found")
    basics.shutdown()


if __name__ == "__main__":
    main(sys.argv[1:])
