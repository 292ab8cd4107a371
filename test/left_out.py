"""The tests that runs leave out: slow.txt for `scripts/test --quick`, full_only.txt for `scripts/test`. Run as a
program, it prints the number of cases in full_only.txt."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
SLOW = FOLDER / "slow.txt"
FULL_ONLY = FOLDER / "full_only.txt"
LINE = re.compile(r"(?P<faults>\d+) (?:(?P<cases>\d+) cases: )?(?P<what>.+)")


def lines_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def matches_of(text: str) -> Iterable[re.Match[str]]:
    for line in lines_of(text):
        found = LINE.fullmatch(line)
        if found is None:
            raise ValueError(f"{FULL_ONLY}: neither 'FAULTS TEST' nor 'FAULTS N cases: WHAT': {line}")
        yield found


def listed_tests(text: str) -> dict[str, int]:
    """Test id below this folder, to the number of faults that the test has found."""
    return {line["what"]: int(line["faults"]) for line in matches_of(text) if line["cases"] is None}


def cases_of(text: str) -> int:
    """The number of cases that are left out. A test counts as one case."""
    return sum(int(line["cases"] or 1) for line in matches_of(text))


def without_parameters(name: str) -> str:
    return name.partition("[")[0]


def names_without_a_test(
    listed: Iterable[str], folder: Path, files: Collection[Path], there: Collection[str]
) -> list[str]:
    """The listed names without a test, in the files that were collected completely."""
    return [name for name in listed if folder / name.partition("::")[0] in files and name not in there]


if __name__ == "__main__":
    print(cases_of(FULL_ONLY.read_text()))
