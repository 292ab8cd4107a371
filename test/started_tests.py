"""Shared by the conftests: the signals of programs under test, and the name of the running test."""

from __future__ import annotations

import os
import signal
from pathlib import Path


def use_default_signals() -> None:
    """A process passes ignored signals on to the programs that it starts. A shell ignores SIGINT and SIGQUIT in the
    background, and nohup ignores SIGHUP. Under nohup the tests must survive the end of the terminal, so SIGHUP gets a
    handler here. New programs then start with the default."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda number, frame: None)


def pytest_runtest_logstart(nodeid: str) -> None:
    """TEST_RUNNING is a file for the name of the running test. scripts/test reports this name if a suite exceeds its
    limit."""
    if file := os.environ.get("TEST_RUNNING"):
        Path(file).write_text(nodeid)
