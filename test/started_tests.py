"""What the conftests share: the signals of programs under test, and which test is running."""

from __future__ import annotations

import os
import signal
from pathlib import Path


def use_default_signals() -> None:
    """What ignores a signal passes that on to the programs that it starts. A shell ignores SIGINT and SIGQUIT in the
    background, nohup SIGHUP. Under nohup the tests themselves outlive the end of the terminal: a signal that has a
    handler is the default again in a new program."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda number, frame: None)


def pytest_runtest_logstart(nodeid: str) -> None:
    """TEST_RUNNING names a file for the test that runs: scripts/test names it where a suite is over its limit."""
    if file := os.environ.get("TEST_RUNNING"):
        Path(file).write_text(nodeid)
