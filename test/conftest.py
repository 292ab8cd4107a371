"""Marks what full_only.txt lists."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent


def full_only(text: str) -> dict[str, int]:
    """By id below this folder: the faults that the test has found."""
    lines = (line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#"))
    return {name: int(faults) for faults, name in lines}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    listed = full_only((FOLDER / "full_only.txt").read_text())
    for item in items:
        if item.nodeid.removeprefix("test/") in listed:
            item.add_marker("full")
