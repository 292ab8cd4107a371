"""Runs the benchmarks. Each part runs its contenders in turn, round after round, for a given time."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peers
from compare import ROOT, Program, Round, built, own_tools, run_program, starting

from . import names
from .data import About, Part, collect
from .machine import machine, versions

RANKS = 2
LEAST_ROUNDS = 3
FOLDER = ROOT / "build/report"
TENSORFLOW = ROOT / "build/environments/tensorflow"
HOSTS_OF_START = 16
FAILED_TARGETS = 1  # the exit code of a benchmark that has run and missed a target


@dataclass(frozen=True)
class Effort:
    """How long a part may take in all, how long each case of a benchmark takes, and the rounds in hosts in a box."""

    minutes: float
    seconds: float
    rounds_in_a_box: int = 0


# Together less than 15 minutes.
EFFORTS = {
    "allreduce": Effort(5.0, 0.15),
    "torch": Effort(2.2, 0.3),
    "tensorflow": Effort(2.2, 0.3),
    "hosts": Effort(1.5, 0.15, 5),
    "start": Effort(1.7, 0.0, 5),
    "idle": Effort(1.0, names.IDLE_SECONDS),
}
TRIAL = Effort(0.0, 0.02, 1)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def rounds_within(name: str, effort: Effort, one_round: Callable[[], Round]) -> list[Round]:
    """Runs rounds until the next one would not fit into the time, but at least a few."""
    least = LEAST_ROUNDS if effort is not TRIAL else 1
    rounds: list[Round] = []
    begin = time.monotonic()
    while True:
        used = time.monotonic() - begin
        if len(rounds) >= least and used * (len(rounds) + 1) / len(rounds) > effort.minutes * 60:
            return rounds
        say(f"{name}: round {len(rounds) + 1}, {used:.0f} of {effort.minutes * 60:.0f} s")
        rounds.append(one_round())


def programs_of(name: str, seconds: float) -> list[Program]:
    """Returns the programs of the parts on one host that need no framework."""
    launcher, bench = own_tools()
    start = starting(launcher, RANKS)
    idle = name == "idle"
    sizes = ",".join(map(str, names.SIZES))
    work = ("--sizes", "4", "--seconds", "0.01", "--idle", str(seconds)) if idle else ("--sizes", sizes)
    work = work if idle else (*work, "--seconds", str(seconds))
    model = () if idle else ("--model", "resnet50")
    mpis = peers.from_pypi(built)[0]
    debian, gloo, sweep = peers.from_debian(built), built("bench_gloo"), built("bench_sweep")
    made = [Program(names.DISTRUN, (*start, bench, *work, *model))]
    for mpi in [*mpis, *([debian] if debian else [])]:
        made.append(Program(mpi.who, (*mpi.start, str(RANKS), mpi.benchmark, *work, *model), mpi.environment))
    if gloo is not None:
        made.append(Program(names.GLOO, (*start, gloo, *work)))
    if not idle:
        made.append(Program("", (*start, sys.executable, str(ROOT / "bench/torch_bench.py"), *work, *model)))
    if not idle and sweep is not None:
        swept = [size for size in names.SIZES if size >= 16 * names.KIB]
        made.append(Program(names.SWEEP, (sweep, "--sizes", ",".join(map(str, [*swept, names.MODEL_BYTES])))))
    return made


def with_programs(name: str, effort: Effort) -> list[Round]:
    """Measures programs that print one JSON line for each case."""
    programs = programs_of(name, effort.seconds)

    def one_round() -> Round:
        results: Round = {}
        for program in programs:
            results |= run_program(program)
        return results

    return rounds_within(name, effort, one_round)


def kept_json(command: list[str]) -> Any:
    """Runs a benchmark that writes its rounds to a file, and returns its content."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:  # hosts in a box do not share /tmp
        file = Path(folder) / "rounds.json"
        command = [*command, "--json", str(file)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode not in (0, FAILED_TARGETS) or not file.exists():
            sys.exit(f"bench/report: {' '.join(command)} ended with {done.returncode}\n{done.stdout}{done.stderr}")
        return json.loads(file.read_text())


def with_framework(name: str, effort: Effort) -> list[Round]:
    """Measures the training steps of one framework."""
    python = TENSORFLOW / "bin/python" if name == "tensorflow" else Path(sys.executable)
    script = {"torch": "torch_training.py", "tensorflow": "tensorflow_bench.py"}[name]
    command = [str(python), str(ROOT / "bench" / script), "--rounds", "1", "--seconds", str(effort.seconds)]
    command += ["--distrun", own_tools()[0]]

    def one_round() -> Round:
        (found,) = kept_json(command)
        return {(who, case): value for who, cases in found.items() for case, value in cases.items()}

    return rounds_within(name, effort, one_round)


def in_a_box(hosts: int, script: str, *options: str) -> Any:
    """Runs a benchmark on the head node of hosts in a box, which needs root."""
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    box = [*root, str(ROOT / "test/cluster/hosts"), "--count", str(hosts)]
    box += ["--slurm"] if script == "launch.py" else []
    build = f"BENCH_BUILD_DIR={os.environ.get('BENCH_BUILD_DIR', '')}"
    return kept_json([*box, "--", "env", build, sys.executable, str(ROOT / "bench" / script), *options])


def between_hosts(name: str, effort: Effort) -> list[Round]:
    say(f"{name}: {effort.rounds_in_a_box} rounds on 2 hosts in a box")
    options = ("--rounds", str(effort.rounds_in_a_box), "--seconds", str(effort.seconds))
    found = in_a_box(2, "across_hosts.py", *options)
    return [rows_of(row) for row in found["rounds"]]


def rows_of(row: dict[str, float]) -> Round:
    """Returns the results that compare.write_json has written as `who: case`."""
    pairs = ((key.rpartition(": "), value) for key, value in row.items())
    return {(who, case): value for (who, _, case), value in pairs}


def start_of_jobs(name: str, effort: Effort) -> list[Round]:
    say(f"{name}: {effort.rounds_in_a_box} rounds on {HOSTS_OF_START} hosts in a box")
    found = in_a_box(HOSTS_OF_START, "launch.py", "--rounds", str(effort.rounds_in_a_box))
    return [start_row(row) for row in found]


def start_row(row: dict[str, float]) -> Round:
    """Returns the results of launch.py. `16 hosts: mpirun, last line` becomes ("mpirun", "16 hosts, last line")."""
    results: Round = {}
    for key, value in row.items():
        where, _, what = key.partition(": ")
        who, _, part = what.partition(", ")
        results[(who, f"{where}, {part}" if part else where)] = value
    return results


MEASURES: dict[str, Callable[[str, Effort], list[Round]]] = {
    "allreduce": with_programs,
    "torch": with_framework,
    "tensorflow": with_framework,
    "hosts": between_hosts,
    "start": start_of_jobs,
    "idle": with_programs,
}


def git(*arguments: str) -> str:
    command = ["git", "-c", "safe.directory=*", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def changed_files() -> str:
    """Returns the files that differ from the commit, one on each line. The report's own pages may differ."""
    return git("status", "--porcelain", "--", ".", ":!docs/performance", ":!README.md")


def measure(name: str, trial: bool) -> Part:
    """Measures one part."""
    begin = time.monotonic()
    rounds = MEASURES[name](name, TRIAL if trial else EFFORTS[name])
    say(f"{name}: {len(rounds)} rounds in {time.monotonic() - begin:.0f} s")
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    command = "bench/report --trial" if trial else "bench/report"
    about = About(git("rev-parse", "HEAD"), date, len(rounds), command, machine(), versions(TENSORFLOW))
    return Part(name, about, collect(rounds))
