"""Marks the tests that slow.txt and full_only.txt list."""

from __future__ import annotations

import pytest
from left_out import FOLDER, FULL_ONLY, SLOW, lines_of, listed_tests, names_without_a_test, without_parameters

LISTED = {"slow": set(lines_of(SLOW.read_text())), "full": set(listed_tests(FULL_ONLY.read_text()))}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    there = set()
    for item in items:
        name = item.nodeid.removeprefix("test/")
        names = {name, without_parameters(name)}
        there |= names
        for mark, listed in LISTED.items():
            if listed & names:
                item.add_marker(mark)
    if not any("::" in argument for argument in config.args):
        everything = sorted(set[str]().union(*LISTED.values()))
        wrong = names_without_a_test(everything, FOLDER, {item.path for item in items}, there)
        if wrong:
            raise pytest.UsageError(f"{SLOW.name} or {FULL_ONLY.name} in test/ names what is no test: {wrong}")
