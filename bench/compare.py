"""Compares distrun with other libraries, interleaved in one run, and prints ratios.

    .venv/bin/python bench/compare.py --np 2 [--rounds 7] [--json FILE] [--only distrun,openmpi]
    .venv/bin/python bench/compare.py --np 2 --against FOLDER

Every round runs every program once, in turn, so that other load on the machine slows all of them alike. The table has
medians over the rounds. The ratios are medians of each round's ratio. The exit code is 1 if a target is missed.

With --against, the other programs are two copies of distrun from FOLDER, the build folder of an older version (for
instance build/dev of its clone). A row is slower if the new build takes over 3 % longer than the old one, plus the
difference between the two copies of the old build. The exit code is 1 if a row is slower.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import peers

ROOT = Path(__file__).resolve().parent.parent
MIB = 1 << 20
SIZES = (4, 64 * 1024, MIB, 16 * MIB, 64 * MIB)
MODEL = "resnet50 161 tensors"
# Otherwise UCX or libfabric may bypass btl, and the ranks of one host would use shared memory.
OVER_TCP = ("--mca", "pml", "ob1", "--mca", "btl", "tcp,self")
NEW, OLD, AGAIN = "new", "old", "again"
TOLERANCE = 0.03
IDLE = "idle context switches, worst rank"
IDLE_CPU = "idle CPU time per second, worst rank"

Key = tuple[str, str]  # who, case
Round = dict[Key, float]


@dataclass(frozen=True)
class Program:
    """One command that prints results as JSON lines. `who` replaces the name that it prints."""

    who: str
    command: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Target:
    """A limit: the median over the rounds of `left` / the best of `right` must be at most `limit`.

    Without `right`, the value is `left` alone, or `left` - `without`.
    """

    text: str
    left: Key
    limit: float
    right: tuple[Key, ...] = ()
    without: Key | None = None

    def values(self, rounds: Iterable[Round]) -> list[float]:
        found = []
        for results in rounds:
            if not {self.left, *self.right, *([self.without] if self.without else [])} <= results.keys():
                continue
            if self.without:
                found.append(results[self.left] - results[self.without])
                continue
            found.append(results[self.left] / min((results[key] for key in self.right), default=1.0))
        return found


def in_place(size: int) -> str:
    return f"{size} B in place"


def delegated() -> list[Target]:
    """Returns targets for the time that the engine adds to another library's operation."""
    made = []
    pairs = (
        ("distrun mpi", "openmpi", 10e-6),
        ("distrun mpi tcp", "openmpi tcp", 10e-6),
        ("distrun gloo", "gloo", 60e-6),
    )
    for ours, theirs, added in pairs:
        small = in_place(4)
        made.append(Target(f"{ours}: 4 bytes, seconds more", (ours, small), added, without=(theirs, small)))
        for size in SIZES[2:]:
            key = in_place(size)
            made.append(Target(f"{ours}: {size // MIB} MiB", (ours, key), 1.05, ((theirs, key),)))
    return made


def targets() -> list[Target]:
    big, ours = in_place(64 * MIB), "distrun"
    return [
        Target("64 MiB in place against Open MPI", (ours, big), 0.6, (("openmpi", big),)),
        Target("64 MiB in place against Gloo", (ours, big), 0.4, (("gloo", big),)),
        Target("161 tensors against torch DDP", (ours, MODEL), 0.5, (("torch ddp", MODEL),)),
        Target("4 bytes, blocking, seconds", (ours, in_place(4)), 20e-6),
        Target("tcp 16 MiB against Gloo", ("distrun tcp", in_place(16 * MIB)), 1.0, (("gloo", in_place(16 * MIB)),)),
        Target("tcp 64 MiB against Gloo", ("distrun tcp", big), 1.0, (("gloo", big),)),
        Target("1 MiB, 8 ranks against 2", ("distrun 8 ranks", in_place(MIB)), 8.0, ((ours, in_place(MIB)),)),
        Target("4 bytes, 8 ranks, seconds", ("distrun 8 ranks", in_place(4)), 500e-6),
        Target("idle job, context switches in 5 s", (ours, IDLE), 0.0),
        *delegated(),
    ]


def find(name: str, candidates: Iterable[Path]) -> str | None:
    """Returns the first candidate that exists, or else the program on PATH."""
    for path in candidates:
        if path.is_file():
            return str(path)
    return shutil.which(name)


def build_folders() -> list[Path]:
    """Returns the folders that may have the programs: releases before developers' builds, and no sanitizer's build.

    BENCH_BUILD_DIR names another one, which comes first.
    """
    chosen = os.environ.get("BENCH_BUILD_DIR")
    return ([Path(chosen)] if chosen else []) + [ROOT / "build" / name for name in ("release", "dev", "bare")]


def starting(launcher: str, ranks: int) -> tuple[str, ...]:
    return (launcher, "-np", str(ranks), "--tag", "none")


def own_programs(launcher: str, bench: str, ranks: int, seconds: float) -> list[Program]:
    """Returns the programs of distrun on its own backends."""
    sizes = ",".join(map(str, SIZES))
    common = ("--seconds", str(seconds))
    start = starting(launcher, ranks)
    eight = (launcher, "-np", "8", "--oversubscribe", "--tag", "none")
    return [
        Program("distrun", (*start, bench, "--sizes", sizes, "--model", "resnet50", "--idle", "5", *common)),
        Program("distrun", (*start, bench, "--sizes", sizes, "--out-of-place", *common)),
        Program("distrun tcp", (*start, "--backend", "tcp", bench, "--sizes", sizes, *common)),
        Program("distrun 8 ranks", (*eight, bench, "--sizes", f"4,{MIB}", *common)),
    ]


def built(name: str) -> str | None:
    """Returns a benchmark program of the build."""
    return find(name, [folder / "bench" / name for folder in build_folders()])


def own_tools() -> tuple[str, str]:
    """Returns the launcher and the benchmark of distrun."""
    beside = Path(sys.executable).parent / "distrun"
    launcher = find("distrun", [beside, *(folder / "launcher/distrun" for folder in build_folders())])
    bench = built("distrun-bench")
    if launcher is None or bench is None:
        sys.exit("compare.py: distrun or distrun-bench is not built; run scripts/quickstart, then scripts/test --quick")
    return launcher, bench


def mpi_programs(ranks: int, bench: str, work: tuple[str, ...]) -> tuple[list[Program], list[str]]:
    """Returns the programs of all MPIs, and of distrun on Debian's Open MPI."""
    made = []
    others, missing = peers.from_pypi(built)
    mpi = peers.from_debian(built)
    for each in [*([mpi] if mpi else []), *others]:
        run = (*each.start, str(ranks), each.benchmark)
        for extra in (("--model", "resnet50"), ("--out-of-place",)):
            made.append(Program(each.who, (*run, *work, *extra), each.environment))
    if mpi is None:
        missing.insert(0, "Open MPI is not compared: install libopenmpi-dev and openmpi-bin, then build again")
        return made, missing
    run = (*mpi.start, str(ranks))
    by_tcp = (run[0], *OVER_TCP, *run[1:])
    on_mpi = {**mpi.environment, "DISTRUN_BACKEND": "mpi"}
    made.append(Program("distrun mpi", (*run, bench, *work), on_mpi))
    made.append(Program("openmpi tcp", (*by_tcp, mpi.benchmark, *work), mpi.environment))
    made.append(Program("distrun mpi tcp", (*by_tcp, bench, *work), on_mpi))
    return made, missing


def programs(ranks: int, seconds: float) -> tuple[list[Program], list[str]]:
    """Returns the programs to compare, and a sentence for each library that cannot be compared here."""
    launcher, bench = own_tools()
    common = ("--seconds", str(seconds))
    work = ("--sizes", ",".join(map(str, SIZES)), *common)
    start = starting(launcher, ranks)
    made = own_programs(launcher, bench, ranks, seconds)
    sweep = built("bench_sweep")
    if sweep is not None:
        made.append(Program("sweep", (sweep, "--sizes", ",".join(map(str, SIZES[2:])))))
    of_mpi, missing = mpi_programs(ranks, bench, work)
    made += of_mpi
    gloo = built("bench_gloo")
    if gloo is not None:
        made.append(Program("gloo", (*start, gloo, *work)))
        made.append(Program("distrun gloo", (*start, "--backend", "gloo", bench, *work)))
    else:
        missing.append("Gloo is not compared: install libgloo-dev, then build again")
    if subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode == 0:
        torch = (sys.executable, str(ROOT / "bench/torch_bench.py"), "--sizes", f"4,{MIB},{64 * MIB}")
        made.append(Program("", (*start, *torch, "--model", "resnet50", *common)))
    else:
        missing.append("torch is not compared: it is not installed for this Python")
    return made, missing


def versions(old: Path, ranks: int, seconds: float) -> list[Program]:
    """Returns the programs of the new build and of two copies of the old one. `who` begins with NEW, OLD or AGAIN."""
    new = next((folder for folder in build_folders() if (folder / "bench/distrun-bench").is_file()), None)
    made = []
    for label, folder in ((NEW, new), (OLD, old), (AGAIN, old)):
        launcher, bench = (folder / name if folder else None for name in ("launcher/distrun", "bench/distrun-bench"))
        if launcher is None or bench is None or not launcher.is_file() or not bench.is_file():
            place = folder or ROOT / "build"
            sys.exit(f"compare.py: {place} has no launcher/distrun and bench/distrun-bench; build the preset dev there")
        start, sizes = starting(str(launcher), ranks), ",".join(map(str, SIZES))
        mine = own_programs(str(launcher), str(bench), ranks, seconds)
        if any((folder or ROOT).glob("**/libdistrun_backend_gloo.so")):
            gloo = (*start, "--backend", "gloo", str(bench), "--sizes", sizes, "--seconds", str(seconds))
            mine.append(Program("distrun gloo", gloo))
        made += [replace(program, who=f"{label} {program.who}") for program in mine]
    return made


def run_program(program: Program, shared: Path | None = None) -> Round:
    """Runs one program and returns its results. An error ends the comparison with the program's own text.

    shared: a folder that all ranks can access.
    """
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        environment = {**os.environ, "BENCH_GLOO_STORE": folder, **program.environment}
        command = list(program.command)
        if "--tag" in command:  # distrun passes variables to ranks only with -x
            command[command.index("--tag") : command.index("--tag")] = ["-x", "BENCH_GLOO_STORE"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"compare.py: {' '.join(command)} ended with {done.returncode}\n{done.stderr[-2000:]}")
    results: Round = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            row = json.loads(line)
            results[(program.who or row["who"], row["case"])] = row["value"]
    return results


def run_rounds(chosen: list[Program], count: int, shared: Path | None = None) -> list[Round]:
    """Runs every program once in each round, in turn."""
    rounds: list[Round] = []
    for number in range(1, count + 1):
        results: Round = {}
        for program in chosen:
            progress = f"\rround {number} of {count}: {program.who or 'torch':<20}"
            print(progress, end="", file=sys.stderr, flush=True)
            results.update(run_program(program, shared))
        rounds.append(results)
    print(file=sys.stderr)
    return rounds


def write_json(file: Path, about: dict[str, object], rounds: list[Round]) -> None:
    """Writes all rounds to a file, for other statistics."""
    rows = [{f"{who}: {case}": value for (who, case), value in results.items()} for results in rounds]
    file.write_text(json.dumps({**about, "rounds": rows}, indent=1))


def spell(case: str, value: float) -> str:
    if case == IDLE:
        return f"{value:.0f}"
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value * 1e9:.0f} ns"


def print_table(rounds: list[Round]) -> None:
    """Prints one row per case and one column per contender: its median time, and distrun's time divided by it."""
    contenders = list(dict.fromkeys(who for results in rounds for who, _ in results))
    cases = list(dict.fromkeys(case for results in rounds for _, case in results))
    print(f"| case | {' | '.join(contenders)} |\n|{'---|' * (len(contenders) + 1)}")
    for case in cases:
        cells = []
        for who in contenders:
            times = [results[(who, case)] for results in rounds if (who, case) in results]
            if not times:
                cells.append("")
                continue
            ratios = Target("", ("distrun", case), 0.0, ((who, case),)).values(rounds) if min(times) > 0 else []
            ratio = f" (ours {statistics.median(ratios):.2f}x)" if ratios and not who.startswith("distrun") else ""
            cells.append(spell(case, statistics.median(times)) + ratio)
        print(f"| {case} | {' | '.join(cells)} |")


def check_targets(rounds: list[Round], wanted: list[Target]) -> bool:
    """Prints each target with the measured value. False if one is missed or could not be measured."""
    print("\n| target | limit | median | met |\n|---|---|---|---|")
    all_met = True
    for target in wanted:
        values = target.values(rounds)
        if not values:
            print(f"| {target.text} | {target.limit:g} | not measured | no |")
            all_met = False
            continue
        value = statistics.median(values)
        met = value <= target.limit
        all_met &= met
        print(f"| {target.text} | {target.limit:g} | {value:.3g} | {'yes' if met else '**no**'} |")
    return all_met


@dataclass(frozen=True)
class Row:
    """One case of one program: its time in the old build, and two ratios to that time, as medians over the rounds."""

    name: str
    old: float
    new_over_old: float
    again_over_old: float

    @property
    def slower(self) -> bool:
        return self.new_over_old > 1 + TOLERANCE + abs(self.again_over_old - 1)


def ratio(left: float, right: float) -> float:
    """Returns left / right; 1 if both are 0, like the context switches of idle jobs."""
    return left / right if right else (1.0 if not left else float("inf"))


def compare_versions(rounds: list[Round]) -> list[Row]:
    """Returns one row for each case that all three builds have measured in every round."""
    rows = []
    for who, case in [key for key in rounds[0] if key[0].startswith(OLD)]:
        if case == IDLE_CPU:  # two runs of one build differ too much, and an older build may not have it
            continue
        keys = [(label + who.removeprefix(OLD), case) for label in (NEW, OLD, AGAIN)]
        if not all(key in results for key in keys for results in rounds):
            continue
        new, again = (
            statistics.median(ratio(results[key], results[keys[1]]) for results in rounds) for key in (keys[0], keys[2])
        )
        old = statistics.median(results[keys[1]] for results in rounds)
        rows.append(Row(f"{who.removeprefix(OLD).strip()}: {case}", old, new, again))
    return rows


def print_versions(rows: list[Row]) -> bool:
    """Prints the rows. False if one is slower."""
    print("| case | old | new over old | old again over old | slower |\n|---|---|---|---|---|")
    for row in rows:
        old = f"{row.old:.0f}" if row.name.endswith(IDLE) else spell("", row.old)
        verdict = "**yes**" if row.slower else "no"
        print(f"| {row.name} | {old} | {row.new_over_old:.3f} | {row.again_over_old:.3f} | {verdict} |")
    return not any(row.slower for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--np", type=int, default=2, help="ranks (default 2)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds (default 7)")
    parser.add_argument("--seconds", type=float, default=0.3, help="time per case and round")
    parser.add_argument("--json", type=Path, help="write all rounds to this file")
    parser.add_argument("--only", default="", help="contenders to run, comma-separated (no targets are checked)")
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="compare with this older build, see above")
    options = parser.parse_args()
    if options.against:
        rounds = run_rounds(versions(options.against, options.np, options.seconds), options.rounds)
        if options.json:
            write_json(options.json, {"np": options.np, "against": str(options.against)}, rounds)
        return 0 if print_versions(compare_versions(rounds)) else 1
    chosen, missing = programs(options.np, options.seconds)
    only = [name.strip() for name in options.only.split(",") if name.strip()]
    if only:
        chosen = [program for program in chosen if program.who in only or (not program.who and "torch" in only)]
    rounds = run_rounds(chosen, options.rounds)
    if options.json:
        write_json(options.json, {"np": options.np}, rounds)
    print_table(rounds)
    for sentence in missing:
        print(f"\n{sentence}")
    return 0 if only or check_targets(rounds, targets()) else 1


if __name__ == "__main__":
    sys.exit(main())
