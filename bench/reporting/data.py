"""The figures of one part of the report, and statistics of them. One JSON file for each part keeps them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

Values = dict[str, dict[str, list[float]]]  # contender -> case -> one value for each round
DIGITS = 4


@dataclass(frozen=True)
class About:
    """Where figures come from."""

    commit: str
    date: str
    rounds: int
    command: str
    machine: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """One part of the report. All lists in `values` have the same rounds in the same order."""

    name: str
    about: About
    values: Values

    def has(self, who: str, case: str) -> bool:
        return case in self.values.get(who, {})

    def median(self, who: str, case: str) -> float:
        return float(statistics.median(self.values[who][case]))

    def lowest(self, who: str, case: str) -> float:
        return min(self.values[who][case])

    def highest(self, who: str, case: str) -> float:
        return max(self.values[who][case])

    def ratio(self, who: str, others: Iterable[str], case: str) -> float:
        """Returns the smallest of the others' medians, divided by the contender's: both are in the tables."""
        return min(self.median(other, case) for other in others if self.has(other, case)) / self.median(who, case)


def collect(rounds: Iterable[Mapping[tuple[str, str], float]]) -> Values:
    """Returns the values of several rounds. Each round has its values by (contender, case).

    A case that is missing in one round is left out.
    """
    listed = list(rounds)
    values: Values = {}
    for who, case in listed[0]:
        if all((who, case) in results for results in listed):
            of_case = [float(f"{results[(who, case)]:.{DIGITS}g}") for results in listed]
            values.setdefault(who, {})[case] = of_case
    return values


def to_text(part: Part) -> str:
    """Returns the JSON of a part, with one line for each case."""
    about = json.dumps(asdict(part.about), indent=1, ensure_ascii=False).replace("\n", "\n ")
    rows = [
        (json.dumps(who), [f"   {json.dumps(case)}: {json.dumps(values)}" for case, values in cases.items()])
        for who, cases in part.values.items()
    ]
    listed = ",\n".join(f"  {who}: {{\n" + ",\n".join(lines) + "\n  }" for who, lines in rows)
    return f'{{\n "about": {about},\n "values": {{\n{listed}\n }}\n}}\n'


def read(file: Path) -> Part:
    found = json.loads(file.read_text())
    return Part(file.stem, About(**found["about"]), found["values"])


def read_all(folder: Path) -> dict[str, Part]:
    """Returns the parts that are kept in a folder, by name."""
    return {file.stem: read(file) for file in sorted(folder.glob("*.json"))}
