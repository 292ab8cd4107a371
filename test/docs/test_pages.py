"""Every terminal block of the site runs, and prints what the page shows. `scripts/docs --run PAGE` runs one page."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from .conftest import case_of, pages
from .pages import Page, read_page
from .run_page import LIMIT, CannotRun, report, run_page, search_path

# Blocks that need a GPU, Slurm or a real cluster. Their output is not checked, so there are few.
MOST_NOT_RUN = 12
USAGE = 64  # exit code of a wrong command line
NOT_A_JOB = ("distrun check", "distrun agent", "distrun help", "distrun --version", "distrun --cflags")
OF_THIS_MACHINE = ("--explain and --agents cannot be used together", "GPUs and this host has")  # refusals
PROGRAMS = ("train.py", "hosts", "job.conf", ".ssh/cluster")
WITH_COMMANDS = [page for page in pages() if read_page(page).commands]


@pytest.mark.timeout(LIMIT + 60)
@pytest.mark.parametrize("path", [case_of(page) for page in WITH_COMMANDS])
def test_the_page_shows_what_the_commands_print(path: Path) -> None:
    try:
        faults = report(run_page(read_page(path)))
    except CannotRun as reason:
        pytest.skip(str(reason))
    assert not faults, f"{path}:\n{faults}"


def test_every_terminal_block_for_newcomers_is_run() -> None:
    """It is a console block, a file, or marked `% not run here:`. In the other folders some blocks only show a form."""
    read = {page: read_page(page) for page in pages() if page.parent.name in ("start", "howto")}
    assert [f"{page.name}:{block.line}" for page, found in read.items() for block in found.not_checked] == []


def shown_commands(page: Path) -> list[tuple[int, str]]:
    """The commands of distrun in blocks that no test runs, each with its line. A comment and what follows a pipe go."""
    found = []
    for block in read_page(page).not_checked:
        for number, line in enumerate("\n".join(block.lines).replace("\\\n", " ").splitlines(), block.line + 1):
            if line.startswith("distrun ") and not line.startswith(NOT_A_JOB):
                found.append((number, re.split(r"\s+(?:#|[|&>]|2>)", line)[0]))
    return found


@pytest.mark.slow
def test_commands_that_are_only_shown_have_options_of_distrun(tmp_path: Path) -> None:
    """`--explain` reads all options and starts nothing."""
    (tmp_path / ".ssh").mkdir()
    for name in PROGRAMS:
        (tmp_path / name).touch()
    (tmp_path / "key").write_bytes(bytes(32))
    (tmp_path / "key").chmod(0o600)
    environment = os.environ | {"PATH": search_path(Page()), "HOME": str(tmp_path)}
    refused = []
    for page in pages():
        for line, command in shown_commands(page):
            explained = f'distrun() {{ command distrun --explain "$@"; }}; {command}'
            done = subprocess.run(
                ["bash", "-c", explained], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
            )
            if done.returncode == USAGE and not any(text in done.stderr for text in OF_THIS_MACHINE):
                refused.append(f"{page.name}:{line}: {command}\n  {done.stderr}")
    assert refused == [], "\n".join(refused)


def test_few_blocks_are_not_run() -> None:
    blocks = [f"{page.name}:{line}: {why}" for page in pages() for line, why in read_page(page).not_run]
    assert len(blocks) <= MOST_NOT_RUN, "\n".join(blocks)
