"""Marks what full_only.txt lists."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent


def full_only(text: str) -> dict[str, int]:
    """By id below this folder: the faults that the test has found."""
    lines = (line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#"))
    return {name: int(faults) for faults, name in lines}


LISTED = full_only((FOLDER / "full_only.txt").read_text())
CASES_BESIDE = 81 + 20 + 11  # that --full has besides: under AddressSanitizer, under ThreadSanitizer, random programs


def names_without_a_test(
    listed: Iterable[str], folder: Path, files: Collection[Path], there: Collection[str]
) -> list[str]:
    """Of the files that were collected whole."""
    return [name for name in listed if folder / name.partition("::")[0] in files and name not in there]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    there = {item.nodeid.removeprefix("test/"): item for item in items}
    for name in LISTED.keys() & there.keys():
        there[name].add_marker("full")
    if not any("::" in argument for argument in config.args):
        wrong = names_without_a_test(LISTED, FOLDER, {item.path for item in items}, there.keys())
        if wrong:
            raise pytest.UsageError(f"test/full_only.txt names what is no test: {wrong}")
