"""A rank killed at a random moment: the others raise RankLost naming it, the exit code is 137, nothing is left."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from pathlib import Path

import pytest

from ..conftest import StartJob

PHASES = 10  # per backend: in all 20 moments between the start and the end of a job
RAISED = r"raised (\d+) (\w+) ranks=\[(.*?)\] host=(\S*) cause=(.*) seconds=([\d.]+)"


def assert_survivors_name(text: str, victim: int) -> None:
    for match in re.finditer(RAISED, text):
        assert match[2] == "RankLost", text
        assert str(victim) in match[3].split(", "), text
        assert "SIGKILL" in match[5] and match[4], text
        assert float(match[6]) < 2.5, text


@pytest.mark.parametrize("backend", ["shm", "tcp"])
@pytest.mark.parametrize("phase", range(PHASES))
def test_killed_in_the_loop(start_job: StartJob, python: str, programs: Path, backend: str, phase: int) -> None:
    chance = random.Random(f"{backend}{phase}")
    size = chance.choice([2, 3, 4, 5])
    victim = chance.randrange(size)
    job = start_job(
        "-np", str(size), "--oversubscribe", "--backend", backend, "-x", "FAULTS_WORKERS", python, programs / "loop.py",
        env={"FAULTS_WORKERS": "1"},
    )  # fmt: skip
    pids = job.ranks(size)
    time.sleep(chance.uniform(0.0, 0.4))
    os.kill(pids[victim], signal.SIGKILL)
    assert job.finish() == 137, job.text
    assert len(re.findall(RAISED, job.text)) == size - 1, job.text
    assert_survivors_name(job.text, victim)


@pytest.mark.parametrize("phase", range(6))
def test_killed_while_starting_or_ending(start_job: StartJob, python: str, programs: Path, phase: int) -> None:
    """Any moment of a short job: import, init, loop, shutdown. Whoever has joined is told; nobody hangs."""
    chance = random.Random(phase)
    size = chance.choice([2, 3])
    job = start_job("-np", str(size), "--oversubscribe", python, programs / "victim.py", str(0.15 * phase), "1")
    assert job.finish() == 137, job.text
    assert_survivors_name(job.text, 1)


def test_stopped_rank_is_reported_then_ends_the_job(start_job: StartJob, python: str, programs: Path) -> None:
    job = start_job(
        "-np", "2", "-x", "DISTRUN_STALL_WARNING_TIME=1", "-x", "DISTRUN_STALL_SHUTDOWN_TIME=3", python,
        programs / "loop.py",
    )  # fmt: skip
    pids = job.ranks(2)
    os.kill(pids[1], signal.SIGSTOP)
    code = job.finish()
    assert code != 0
    assert "rank 1" in job.text or "ranks 1" in job.text, job.text
    assert re.search(r"raised 0 \w+ ranks=\[1\]", job.text), job.text


def test_stopped_for_a_while_is_no_failure(start_job: StartJob, python: str, programs: Path) -> None:
    job = start_job("-np", "2", python, programs / "loop.py", "400", "0.002")
    pids = job.ranks(2)
    os.kill(pids[1], signal.SIGSTOP)
    time.sleep(1.5)
    os.kill(pids[1], signal.SIGCONT)
    assert job.finish() == 0, job.text
    assert len(job.wait_lines(r"done \d")) == 2
