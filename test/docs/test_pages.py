"""Every terminal block of the site runs, and prints what the page shows. `scripts/docs --run PAGE` runs one page."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import case_of, pages
from .pages import read_page
from .run_page import LIMIT, CannotRun, report, run_page

# Blocks that need a GPU, Slurm or a real cluster. Their output is not checked, so there are few.
MOST_NOT_RUN = 12
WITH_COMMANDS = [page for page in pages() if read_page(page).commands]


@pytest.mark.timeout(LIMIT + 60)
@pytest.mark.parametrize("path", [case_of(page) for page in WITH_COMMANDS])
def test_the_page_shows_what_the_commands_print(path: Path) -> None:
    try:
        faults = report(run_page(read_page(path)))
    except CannotRun as reason:
        pytest.skip(str(reason))
    assert not faults, f"{path}:\n{faults}"


def test_few_blocks_are_not_run() -> None:
    blocks = [f"{page.name}:{line}: {why}" for page in pages() for line, why in read_page(page).not_run]
    assert len(blocks) <= MOST_NOT_RUN, "\n".join(blocks)
