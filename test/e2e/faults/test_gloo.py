"""Gloo's calls block, and a rank that is no neighbour of the dead one notices nothing. distrun ends these calls."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from ..conftest import StartJob, needs_backend

pytestmark = needs_backend("gloo")
RAISED = r"raised (\d+) (\w+) ranks=\[(.*?)\] host=(\S*) cause=(.*) seconds=([\d.]+)"


@pytest.mark.parametrize("victim, stopped", [(3, None), (0, None), (3, 1), (4, 2)])
def test_five_ranks_and_a_dead_one(
    start_job: StartJob, python: str, programs: Path, victim: int, stopped: int | None
) -> None:
    """Rank `stopped` may be stopped, so that nothing travels around the ring. All other ranks get the cause, within 2 s
    on a machine that is not overloaded."""
    job = start_job("-np", "5", "--oversubscribe", "--grace", "5", "--backend", "gloo", python, programs / "loop.py")
    pids = job.ranks(5)
    time.sleep(0.2)
    if stopped is not None:
        os.kill(pids[stopped], signal.SIGSTOP)
    os.kill(pids[victim], signal.SIGKILL)
    assert job.finish() == 137, job.text
    raised = {int(match[1]): match for match in re.finditer(RAISED, job.text)}
    assert set(raised) >= {0, 1, 2, 3, 4} - {victim, stopped}, job.text
    for match in raised.values():
        assert match[2] == "RankLost" and match[3] == str(victim) and "SIGKILL" in match[5], job.text
        assert float(match[6]) < 5.0, job.text


def test_the_choice_is_said(start_job: StartJob, python: str, programs: Path) -> None:
    job = start_job("-np", "2", "--backend", "gloo", "-x", "DISTRUN_LOG_LEVEL=info", python, programs / "loop.py", "9")
    assert job.finish() == 0, job.text
    assert len(re.findall(r"process set 0: cpu: gloo \(", job.text)) == 2, job.text
