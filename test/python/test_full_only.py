"""full_only.txt names tests that are there, and few."""

from __future__ import annotations

import re
import subprocess
import sys

from conftest import full_only

from .conftest import ROOT


def test_each_is_a_test_that_the_plain_run_leaves_out() -> None:
    listed = set(full_only((ROOT / "test/full_only.txt").read_text()))
    line = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-m",
        "full",
        "test/python",
        "test/e2e",
        "test/cluster",
    ]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    left_out = {text.removeprefix("test/") for text in done.stdout.splitlines() if "::" in text}
    assert listed and listed <= left_out, f"not a test: {sorted(listed - left_out)}"
    every = re.search(r"^\d+/(\d+) tests collected", done.stdout, re.MULTILINE)
    assert every and len(left_out) < 0.15 * int(every[1]), done.stdout
