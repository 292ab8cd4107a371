"""full_only.txt names tests that are there, and few."""

from __future__ import annotations

import subprocess
import sys

from conftest import full_only

from .conftest import ROOT


def collected(*options: str) -> set[str]:
    line = [sys.executable, "-m", "pytest", "--collect-only", "-q", *options, "test/python", "test/e2e", "test/cluster"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return {text.removeprefix("test/") for text in done.stdout.splitlines() if "::" in text}


def test_each_is_a_test_that_the_plain_run_leaves_out() -> None:
    listed = set(full_only((ROOT / "test/full_only.txt").read_text()))
    every, plain = collected(), collected("-m", "not full")
    assert listed <= every, f"not a test: {sorted(listed - every)}"
    assert plain and not listed & plain
    assert len(listed) < 0.15 * len(every)
