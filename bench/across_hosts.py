"""Compares all-reduce between hosts, interleaved in one run: distrun's tcp and hierarchical backends, Open MPI, Gloo.

    sudo test/cluster/hosts --count 2 -- .venv/bin/python bench/across_hosts.py [--rounds 7] [--json FILE]

runs it on the head node of two hosts in a box, whose names are in HOSTS; `--hosts h1,h2` uses other hosts. With one
rank per host, the libraries use the same network link. With two, shared memory inside a host can help. The table has
medians. The ratios are medians of each round's ratio. The exit code is 1 if a target is missed. With `--protection` it
compares the backend tcp with itself under --checksum and --encrypt; that has no targets.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import sys
from pathlib import Path

from compare import (
    MIB,
    ROOT,
    Program,
    Target,
    build_folders,
    check_targets,
    find,
    in_place,
    print_table,
    run_rounds,
    write_json,
)

SIZES = (4, MIB, 16 * MIB, 64 * MIB)
OURS, OURS_TWICE = "distrun tcp", "distrun, 2 a host"
CHECKED, ENCRYPTED = "tcp --checksum", "tcp --encrypt"
GLOO, GLOO_TWICE, OPEN_MPI = "gloo", "gloo, 2 a host", "openmpi"
AGAINST_THE_BEST = 1.05
AGAINST_FLAT_GLOO = 1 / 1.3


def programs(hosts: list[str], seconds: float, protection: bool) -> list[Program]:
    """Returns the programs to compare. Exits if one is not built."""
    folders = build_folders()
    where = {"distrun": "launcher", "distrun-bench": "bench", "bench_gloo": "bench", "bench_mpi": "bench"}
    beside = Path(sys.executable).parent
    found = {name: find(name, [beside / name, *(f / part / name for f in folders)]) for name, part in where.items()}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        sys.exit(f"across_hosts.py: {', '.join(missing)} not built; run scripts/quickstart, then scripts/test --quick")
    tool = {name: str(path) for name, path in found.items()}
    work = ("--sizes", ",".join(map(str, SIZES)), "--seconds", str(seconds))

    def start(ranks: int, *options: str) -> tuple[str, ...]:
        return (tool["distrun"], "-H", ",".join(f"{host}:{ranks}" for host in hosts), *options, "--tag", "none")

    if protection:
        options = {OURS: (), CHECKED: ("--checksum",), ENCRYPTED: ("--encrypt",)}
        return [
            Program(name, (*start(1, "--backend", "tcp", *more), tool["distrun-bench"], *work))
            for name, more in options.items()
        ]
    made = [
        Program(OURS, (*start(1, "--backend", "tcp"), tool["distrun-bench"], *work)),
        Program(OURS_TWICE, (*start(2), tool["distrun-bench"], *work)),
        Program(GLOO, (*start(1), tool["bench_gloo"], *work)),
        Program(GLOO_TWICE, (*start(2), tool["bench_gloo"], *work)),
    ]
    if shutil.which("mpirun.openmpi"):
        one_each = ",".join(f"{host}:1" for host in hosts)
        run = ("mpirun.openmpi", "--allow-run-as-root", "-np", str(len(hosts)), "-H", one_each)
        made.append(Program(OPEN_MPI, (*run, tool["bench_mpi"], *work)))
    return made


def targets() -> list[Target]:
    made = []
    for size in SIZES[1:]:
        case = in_place(size)
        text = f"tcp at {size // MIB} MiB against the better of Open MPI and Gloo"
        made.append(Target(text, (OURS, case), AGAINST_THE_BEST, ((OPEN_MPI, case), (GLOO, case))))
        text = f"two ranks a host at {size // MIB} MiB against flat Gloo"
        made.append(Target(text, (OURS_TWICE, case), AGAINST_FLAT_GLOO, ((GLOO_TWICE, case),)))
    return made


def protection_ratios() -> list[Target]:
    """Returns ratios of the times with protection to the plain ones, without a limit."""
    return [
        Target(f"{name} at {size} bytes against plain tcp", (name, in_place(size)), math.inf, ((OURS, in_place(size)),))
        for name in (CHECKED, ENCRYPTED)
        for size in SIZES
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--hosts", default=",".join(os.environ.get("HOSTS", "").split(",")), help="names, comma-separated"
    )
    parser.add_argument("--rounds", type=int, default=7, help="rounds (default 7)")
    parser.add_argument("--seconds", type=float, default=0.3, help="time per case and round")
    parser.add_argument("--protection", action="store_true", help="tcp against itself with --checksum and --encrypt")
    parser.add_argument("--json", type=Path, help="write all rounds to this file")
    options = parser.parse_args()
    hosts = [host for host in options.hosts.split(",") if host]
    if len(hosts) < 2:
        parser.error("name at least two hosts, or run it in test/cluster/hosts")
    # Gloo's ranks meet in a folder. Hosts in a box share this tree, but not /tmp.
    shared = ROOT / "build"
    rounds = run_rounds(programs(hosts, options.seconds, options.protection), options.rounds, shared)
    if options.json:
        write_json(options.json, {"hosts": hosts}, rounds)
    print_table(rounds)
    return 0 if check_targets(rounds, protection_ratios() if options.protection else targets()) else 1


if __name__ == "__main__":
    sys.exit(main())
