"""A rank killed at a random moment: the others raise RankLost naming it, the exit code is 137, nothing is left."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..conftest import StartJob, agent_of, needs_backend

PHASES = 10  # per backend: in all 20 moments between the start and the end of a job
LIMIT = 5.0  # seconds until the others are told; within 2 on a machine that is not overloaded
RAISED = r"raised (\d+) (\w+) ranks=\[(.*?)\] host=(\S*) cause=(.*) seconds=([\d.]+)"


def assert_survivors_name(text: str, victim: int) -> None:
    for match in re.finditer(RAISED, text):
        assert match[2] == "RankLost", text
        assert str(victim) in match[3].split(", "), text
        assert "SIGKILL" in match[5] and match[4], text
        assert float(match[6]) < LIMIT, text


@pytest.mark.parametrize("backend", ["shm", "tcp", pytest.param("gloo", marks=needs_backend("gloo"))])
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


@pytest.mark.slow
@pytest.mark.parametrize("phase", range(6))
def test_killed_while_starting_or_ending(start_job: StartJob, python: str, programs: Path, phase: int) -> None:
    """Any moment of a short job: import, init, loop, shutdown. Whoever has joined is told; nobody hangs."""
    chance = random.Random(phase)
    size = chance.choice([2, 3])
    job = start_job("-np", str(size), "--oversubscribe", python, programs / "victim.py", str(0.15 * phase), "1")
    assert job.finish() == 137, job.text
    assert_survivors_name(job.text, 1)


@pytest.mark.parametrize("signals, grace", [(1, "0.5"), (2, "60")])
def test_a_stopped_agent_does_not_hold_the_launcher(
    start_job: StartJob, python: str, programs: Path, signals: int, grace: str
) -> None:
    """It has until the end of the grace period, or the second signal, and 2 s."""
    job = start_job("-np", "2", "--grace", grace, python, programs / "loop.py")
    job.ranks(2)
    os.kill(agent_of(job.process.pid), signal.SIGSTOP)
    before = time.monotonic()
    for _ in range(signals):
        job.signal(signal.SIGTERM)
    assert job.finish(30) == 143, job.text  # well within the longer grace period
    assert time.monotonic() - before > 2
    assert "the agent on host" in job.text and "is it stopped?" in job.text, job.text


@contextlib.contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Nothing ends a process in a frozen cgroup v1, as if the kernel kept it in a system call."""
    group = Path(f"/sys/fs/cgroup/freezer/distrun-test-frozen-{os.getpid()}")
    try:
        group.mkdir(exist_ok=True)
        (group / "cgroup.procs").write_text(str(pid))
        (group / "freezer.state").write_text("FROZEN")
    except OSError as error:
        pytest.skip(f"needs a freezer cgroup (v1) that may be written: {error}")
    try:
        yield
    finally:
        (group / "freezer.state").write_text("THAWED")
        deadline = time.monotonic() + 10
        while (group / "cgroup.procs").read_text() and time.monotonic() < deadline:
            time.sleep(0.02)
        group.rmdir()


@pytest.mark.slow
def test_a_process_that_cannot_be_killed_is_named_and_the_launcher_ends(start_job: StartJob) -> None:
    job = start_job("-np", "2", "--grace", "0.5", "sh", "-c", "echo ready $RANK $$; sleep 1000")
    pids = job.ranks(2)
    with frozen(pids[1]):
        before = time.monotonic()
        job.process.send_signal(signal.SIGTERM)
        assert job.process.wait(30) == 143, job.text
        assert time.monotonic() - before < 15
        [named, *_] = re.findall(r"these processes cannot be killed.*: (.*)", job.text)
        assert named == f"sh pid {pids[1]} of rank 1", job.text
    job.finish()
