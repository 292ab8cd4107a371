"""Sorts pages: the plain run has those of Get started, `scripts/test --full` the others too."""

from __future__ import annotations

from pathlib import Path

import pytest
from started_tests import pytest_runtest_logstart, use_default_signals  # noqa: F401  # a hook

from .run_page import ROOT

use_default_signals()

SITE = ROOT / "docs"
FOLDERS = ("start", "howto", "concepts", "reference", "troubleshooting", "performance", "internals")


def pages() -> list[Path]:
    return sorted(path for folder in FOLDERS for path in (SITE / folder).rglob("*.md"))


def in_plain_run(page: Path) -> bool:
    return page.is_relative_to(SITE / "start")


def case_of(page: Path) -> object:
    """A case of pytest, named after the page."""
    marks = [pytest.mark.slow] if in_plain_run(page) else [pytest.mark.full]
    return pytest.param(page, id=page.relative_to(SITE).as_posix(), marks=marks)
