"""distrun as a backend of torch.distributed: against gloo's results, against one process, and when a rank dies."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import PROGRAMS, RunRanks
from .test_programs import assert_passed


@pytest.mark.parametrize(("ranks", "backend"), [(2, "tcp"), (4, "auto")])
def test_collectives(run_ranks: RunRanks, ranks: int, backend: str) -> None:
    assert_passed(run_ranks(ranks, "c10d_ops.py", backend=backend).stdout, ranks)


def test_collectives_without_a_launcher() -> None:
    result = subprocess.run(
        [sys.executable, str(PROGRAMS / "c10d_ops.py")], capture_output=True, text=True, timeout=100, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert_passed(result.stdout, 1)


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_training(run_ranks: RunRanks, ranks: int) -> None:
    assert_passed(run_ranks(ranks, "c10d_training.py").stdout, ranks)


@pytest.mark.slow
def test_compiled(run_ranks: RunRanks) -> None:
    assert_passed(run_ranks(2, "c10d_compiled.py").stdout, 2)


SLOW = [pytest.param(way, marks=pytest.mark.slow) for way in ("wait", "functional")]


@pytest.mark.parametrize("way", ["future", "ddp", "abort", *SLOW])
def test_ended_in_mid_step(run_ranks: RunRanks, tmp_path: Path, way: str) -> None:
    result = run_ranks(2, "c10d_killed.py", str(tmp_path), way, check=False)
    assert result.returncode == (3 if way == "abort" else 137), result.stdout + result.stderr
    found = re.search(r"got (\w+) after ([\d.]+) s: (.*)", result.stdout)
    assert found is not None, result.stdout + result.stderr
    assert "rank 1" in found[3] and float(found[2]) < 2.0, found[0]
    assert way not in ("wait", "abort") or found[1] == "RankLost"
    assert way != "abort" or "aborted the group of ranks 0, 1" in found[3]
