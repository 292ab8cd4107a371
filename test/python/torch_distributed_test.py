"""Runs torch's own distributed_test (torch.testing._internal.distributed) and compares the passed tests with the list
torch_distributed_test.txt. scripts/test --full runs this; docs/reference/torch-distributed.md has the counts.

    python test/python/torch_distributed_test.py                  # all tests of the list: fails if one does not pass
    python test/python/torch_distributed_test.py --all gloo       # what passes with gloo; or distrun, distrun-as-gloo
"""

from __future__ import annotations

import argparse
import collections
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
PROGRAM = HERE / "programs/c10d_torchs_own.py"
EXPECTED = HERE / "torch_distributed_test.txt"
OUTCOME = re.compile(r"^outcome \d+ (\w+) (passed|skipped|failed) ?(.*)$", re.MULTILINE)


class Outcome(NamedTuple):
    kind: str  # passed: no rank fails the test, and at least one rank does not skip it
    text: str


def expected(backend: str) -> list[str]:
    """The tests that pass with this backend. The other lines of the list are comments for readers."""
    words = [line.split() for line in EXPECTED.read_text().splitlines()]
    return [line[1] for line in words if line and line[0] == backend]


def all_tests() -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        line = [sys.executable, str(PROGRAM), "gloo", folder, "0"]
        return subprocess.run(line, capture_output=True, text=True, check=True).stdout.split()


def job(options: argparse.Namespace, backend: str, tests: list[str]) -> dict[str, Outcome]:
    """The results that the ranks report, up to the first test that fails."""
    with tempfile.TemporaryDirectory() as folder:
        line = [options.command, "-np", str(options.ranks), "--oversubscribe", "--tag", "none", sys.executable]
        line += [str(PROGRAM), backend, folder, str(options.limit), *tests]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
    said: dict[str, list[Outcome]] = collections.defaultdict(list)
    for test, kind, text in OUTCOME.findall(done.stdout):
        said[test].append(Outcome(kind, text))
    outcomes: dict[str, Outcome] = {}
    for test in tests:
        outcomes[test] = judged(said[test], options.ranks, done.stderr)
        if outcomes[test].kind == "failed":
            break
    return outcomes


def judged(said: list[Outcome], ranks: int, errors: str) -> Outcome:
    for kind in ("failed", "passed", "skipped"):
        for outcome in said:
            if outcome.kind == kind and (kind == "failed" or len(said) == ranks):
                return outcome
    last = [line.strip() for line in errors.splitlines() if "rror" in line or "Timeout" in line]
    return Outcome("failed", (last or ["the job ended"])[-1][:300])


def run(options: argparse.Namespace, backend: str, tests: list[str]) -> dict[str, Outcome]:
    """Results of all tests, in as many jobs as needed."""
    outcomes: dict[str, Outcome] = {}
    while left := [test for test in tests if test not in outcomes]:
        outcomes |= job(options, backend, left)
        print(f"{backend}: {len(outcomes)} of {len(tests)} tests", file=sys.stderr, flush=True)
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--limit", type=int, default=90, help="seconds for one test")
    parser.add_argument("--command", default="distrun", help="the distrun command")
    parser.add_argument("--all", metavar="BACKEND", help="all tests there are, with this backend")
    parser.add_argument("--part", default="1/1", help="2/5: the second fifth of the tests")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    lost = 0
    for backend in [options.all] if options.all else ["distrun", "distrun-as-gloo"]:
        start = time.monotonic()
        tests = (all_tests() if options.all else expected(backend))[part - 1 :: parts]
        outcomes = run(options, backend, tests)
        for test, (kind, text) in outcomes.items():
            print(f"{kind:8} {backend} {test} {text}".rstrip())
        counts = collections.Counter(kind for kind, _ in outcomes.values())
        print(f"{backend}: {dict(counts)} in {time.monotonic() - start:.0f} s", flush=True)
        lost += sum(outcomes[test].kind != "passed" for test in expected(backend) if test in outcomes)
    print(f"{lost} tests of {EXPECTED.name} do not pass")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
