"""What runs leave out: `scripts/test --quick` what slow.txt lists, and `scripts/test` what full_only.txt lists. As a
program it prints how many cases the latter are."""

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
    """By id below this folder: the faults that the test has found."""
    return {line["what"]: int(line["faults"]) for line in matches_of(text) if line["cases"] is None}


def cases_of(text: str) -> int:
    """All that is left out: each test is one."""
    return sum(int(line["cases"] or 1) for line in matches_of(text))


def without_parameters(name: str) -> str:
    return name.partition("[")[0]


def names_without_a_test(
    listed: Iterable[str], folder: Path, files: Collection[Path], there: Collection[str]
) -> list[str]:
    """Of the files that were collected whole."""
    return [name for name in listed if folder / name.partition("::")[0] in files and name not in there]


if __name__ == "__main__":
    print(cases_of(FULL_ONLY.read_text()))
