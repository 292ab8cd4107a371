"""A rank is stopped by SIGSTOP. All other ranks and the launcher's report name it, and the job ends at the limit."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ..conftest import Job, StartJob, needs_backend

# Short limits. The launcher does not wait long for a rank that cannot end by itself.
LIMITS = {"DISTRUN_STALL_WARNING_TIME": "0.5", "DISTRUN_STALL_SHUTDOWN_TIME": "1.5", "DISTRUN_START_TIMEOUT": "15"}
RAISED = r"raised (\d+) (\w+) ranks=\[(.*?)\] host=(\S*) cause="
MOMENTS = 10  # for each backend


def arguments(size: int, backend: str, *more: str) -> list[str]:
    settings = [word for name, value in LIMITS.items() for word in ("-x", f"{name}={value}")]
    return ["-np", str(size), "--oversubscribe", "--grace", "2", "--backend", backend, *settings, *more]


def assert_named(job: Job, victim: int, reported_by: int, *, leaving: bool = False) -> None:
    """`reported_by` other ranks raised an error that names only the victim. The report names it as the first cause.

    leaving: the first rank that waits too long ends the job. Ranks that are leaving by then have left without an error.
    """
    code = job.finish(60)
    assert code not in (0, 70), job.text
    stopped = rf"rank {victim} on host \S+ \(pid \d+\) is stopped \(T: by a signal\) and blocked the other ranks: "
    assert re.search(stopped, job.text), job.text
    raised = [match for match in re.finditer(RAISED, job.text) if int(match[1]) != victim]
    for match in raised:
        assert match[2] in ("Timeout", "RankLost") and match[3] == str(victim), job.text
    ended = [match[1] for match in raised]
    if leaving and ended:
        ended += re.findall(r"left (\d+) waited=", job.text)
    assert len(set(ended)) == len(ended) == reported_by, job.text
    assert "failed: shutdown failed" not in job.text, job.text


@pytest.mark.parametrize("backend", ["shm", "tcp", pytest.param("gloo", marks=needs_backend("gloo"))])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_stopped_in_mid_operation(start_job: StartJob, python: str, programs: Path, backend: str, size: int) -> None:
    """DataLoader workers are alive. The victim is rank 0, which coordinates, and then the last rank."""
    for victim in (0, size - 1):
        job = start_job(
            *arguments(size, backend), "-x", "FAULTS_WORKERS", python, programs / "loop.py", env={"FAULTS_WORKERS": "1"}
        )
        pids = job.ranks(size)
        time.sleep(0.1)
        os.kill(pids[victim], signal.SIGSTOP)
        assert_named(job, victim, size - 1)


@pytest.mark.parametrize("phase", ["idle", "shutdown", "should_stop"])
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_stopped_while_nothing_runs(
    start_job: StartJob, python: str, programs: Path, tmp_path: Path, phase: str, victim: int
) -> None:
    program = (programs / "phases.py", phase, str(victim), "STOP")
    job = start_job(*arguments(3, "shm"), python, *program, env={"SEEN": str(tmp_path)})
    assert_named(job, victim, 2, leaving=phase == "shutdown")


def test_stopped_in_a_process_set_without_the_coordinator(start_job: StartJob, python: str, programs: Path) -> None:
    job = start_job(*arguments(3, "shm"), python, programs / "phases.py", "subset", "2", "STOP")
    assert_named(job, 2, 1)  # rank 0 is not in this set


@pytest.mark.parametrize("backend", ["shm", pytest.param("gloo", marks=needs_backend("gloo"))])
def test_stopped_while_a_process_set_is_made(start_job: StartJob, python: str, programs: Path, backend: str) -> None:
    """The members' engines create backends and answer no messages. The agent reports which of them cannot run."""

    def run(moment: int) -> None:
        job = start_job(*arguments(5, backend), python, programs / "sets.py")
        pids = job.ranks(5)
        time.sleep(random.Random(f"{backend}{moment}").uniform(0.0, 0.3))
        os.kill(pids[4], signal.SIGSTOP)
        assert job.finish(60) == 1, job.text
        stopped = r"rank 4 on host \S+ \(pid \d+\) is stopped \(T: by a signal\) and blocked the other ranks: "
        assert re.search(stopped, job.text), job.text

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(run, range(3)))


@pytest.mark.parametrize("victim", [0, 2])
def test_stopped_before_init(start_job: StartJob, python: str, programs: Path, tmp_path: Path, victim: int) -> None:
    more = ("-x", "DISTRUN_START_TIMEOUT=4")
    program = (programs / "phases.py", "init", str(victim), "STOP")
    job = start_job(*arguments(3, "tcp"), *more, python, *program, env={"SEEN": str(tmp_path)})
    assert_named(job, victim, 2)


@pytest.mark.parametrize("backend", ["shm", "tcp", pytest.param("gloo", marks=needs_backend("gloo"))])
def test_stopped_at_random_moments(start_job: StartJob, python: str, programs: Path, backend: str) -> None:
    """Sessions follow each other, so the moments fall into init, operations and shutdown alike."""

    def run(moment: int) -> None:
        chance = random.Random(f"{backend}{moment}")
        size = chance.choice([2, 3, 5])
        victim = chance.randrange(size)
        job = start_job(*arguments(size, backend), python, programs / "phases.py", "sessions", str(victim), "STOP")
        pids = job.ranks(size)
        time.sleep(chance.uniform(0.0, 0.5))
        os.kill(pids[victim], signal.SIGSTOP)
        assert_named(job, victim, size - 1)

    # The jobs spend most of their time waiting for their limits.
    with ThreadPoolExecutor(5) as pool:
        list(pool.map(run, range(MOMENTS)))


def test_stopped_for_a_while_is_no_failure(start_job: StartJob, python: str, programs: Path) -> None:
    job = start_job("-np", "2", python, programs / "loop.py", "800", "0.002")
    pids = job.ranks(2)
    os.kill(pids[1], signal.SIGSTOP)
    time.sleep(1.5)
    os.kill(pids[1], signal.SIGCONT)
    assert job.finish() == 0, job.text
    assert len(job.wait_lines(r"done \d")) == 2
