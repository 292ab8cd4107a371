"""The common parts of the frameworks' benchmarks: timing, runs under distrun, the table and the targets.

A benchmark starts itself again under distrun for each of its contenders (`--who`), all of them in every round. Rank 0
prints the results of such a run as one JSON line. The table has medians over the rounds. A target is compared with the
median of each round's ratio.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

Results = dict[str, float]
Round = dict[str, Results]
Agree = Callable[[int], int]

STEPS = ("MLP", "CNN", "ResNet-18", "transformer")  # the values of these cases are steps/s; all others are seconds
STEPS_AT_A_TIME = 4  # the first one is not measured


class Target(NamedTuple):
    """A limit for the median of `value` over the rounds."""

    text: str
    limit: float
    at_least: bool
    value: Callable[[Round], float]


def median_time(seconds: float, once: Callable[[], object], agree: Agree) -> float:
    """Returns the median time of `once`. Every rank runs it equally often, a number that they agree on, for
    `seconds`."""
    once()
    begin = time.perf_counter()
    for _ in range(3):
        once()
    each = (time.perf_counter() - begin) / 3
    found = []
    for _ in range(agree(max(5, min(3000, int(seconds / each))))):
        begin = time.perf_counter()
        once()
        found.append(time.perf_counter() - begin)
    return statistics.median(found)


def as_rank_0(count: int) -> int:
    """An Agree: returns rank 0's number on every rank, by distrun."""
    import distrun

    return int(distrun.broadcast_object(count, 0))


def rates(steps: dict[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """Returns the steps per second of each contender. They run in turn; the values are medians."""
    for once in steps.values():
        for _ in range(3):
            once()
    begin = time.perf_counter()
    for once in steps.values():
        once()
    each = (time.perf_counter() - begin) / len(steps)
    found: dict[str, list[float]] = {who: [] for who in steps}
    for _ in range(as_rank_0(max(5, int(seconds * 3 / each / STEPS_AT_A_TIME)))):
        for who, once in steps.items():
            once()
            for _ in range(STEPS_AT_A_TIME - 1):
                begin = time.perf_counter()
                once()
                found[who].append(time.perf_counter() - begin)
    return {who: 1.0 / statistics.median(times) for who, times in found.items()}


def c_api(seconds: float) -> float:
    """Returns the time of a blocking all-reduce of 4 bytes by the C API, called through ctypes."""
    from distrun import _abi, _operations, _session
    from distrun._library import library

    data = (ctypes.c_float * 1)(1.0)
    struct, handle = (_abi.OpStruct * 1)(), (ctypes.c_void_p * 1)()
    address = ctypes.addressof(data)
    kept = _operations.fill(
        struct[0], _operations.Op(_abi.Kind.ALLREDUCE, "c.api", int(_abi.DType.float32), (1,), address, address)
    )
    native, session = library(), _session.current().pointer

    def once() -> None:
        native.distrun_enqueue(session, struct, 1, handle)
        native.distrun_wait(handle[0], -1.0)
        native.distrun_release(handle[0])

    found = median_time(seconds, once, as_rank_0)
    del kept  # the struct pointed to it until now
    return found


def parse_options(description: str | None, who: Sequence[str], *more: tuple[str, str, str]) -> argparse.Namespace:
    """Parses the command line. `more`: further options as (name, default, help)."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--np", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="per measurement")
    parser.add_argument("--distrun", default=shutil.which("distrun") or "distrun", help="the command")
    parser.add_argument("--json", help="write all rounds there")
    parser.add_argument("--who", choices=who, help=argparse.SUPPRESS)
    for option, default, text in more:
        parser.add_argument(option, default=default, help=text)
    return parser.parse_args()


def say(results: Results | Round) -> None:
    """Prints a rank's results. Only rank 0 prints."""
    if os.environ["RANK"] == "0":
        print(json.dumps(results), flush=True)


def one_run(who: str, options: argparse.Namespace, environment: Mapping[str, str]) -> Any:
    """Runs a contender under distrun and returns rank 0's output.

    It is the Results of this contender, or the Round of a benchmark whose processes run all contenders.
    """
    command = [options.distrun, "-np", str(options.np), "--oversubscribe", "--tag", "none", "--timeout", "300"]
    command += [sys.executable, sys.argv[0], "--who", who, "--seconds", str(options.seconds)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        sys.exit(f"{who} gave no result:\n{done.stdout}\n{done.stderr}")
    return json.loads(lines[-1])


def finish(rounds: list[Round], targets: Sequence[Target], options: argparse.Namespace) -> int:
    """Prints the table and the ratios. Returns the exit code, 1 if a target is missed."""
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rounds, file, indent=1)
    for who in rounds[0]:
        for case in rounds[0][who]:
            value = statistics.median(one[who][case] for one in rounds)
            shown = f"{value:10.1f} steps/s" if case in STEPS else f"{value * 1e6:10.1f} us"
            print(f"{who:12} {case:14} {shown}")
    missed = 0
    for text, limit, at_least, of_round in targets:
        ratio = statistics.median(of_round(one) for one in rounds)
        met = ratio >= limit if at_least else ratio <= limit
        missed += not met
        print(f"{'met   ' if met else 'MISSED'} {text}: {ratio:.2f} ({'>=' if at_least else '<='} {limit:g})")
    return 1 if missed else 0
