"""A rank is killed at a random moment. The others raise RankLost naming it, the exit code is 137, nothing is left."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.rig import children_in

from ..conftest import StartJob, agent_of, needs_backend

PHASES = 10  # for each backend
MOMENTS = 6  # between the start and the end of sessions
LIMIT = 5.0  # seconds until the other ranks get the error; within 2 on a machine that is not overloaded
RAISED = r"raised (\d+) (\w+) ranks=\[(.*?)\] host=(\S*) cause=(.*) seconds=([\d.]+)"


def assert_named(text: str, victim: int) -> list[int]:
    """Checks each rank's error, and returns the ranks that got one."""
    raised = list(re.finditer(RAISED, text))
    for match in raised:
        assert match[2] == "RankLost", text
        assert str(victim) in match[3].split(", "), text
        assert "SIGKILL" in match[5] and match[4], text
        assert float(match[6]) < LIMIT, text
    return sorted(int(match[1]) for match in raised)


def all_but(victim: int, size: int) -> list[int]:
    return [rank for rank in range(size) if rank != victim]


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
    assert assert_named(job.text, victim) == all_but(victim, size), job.text


@pytest.mark.parametrize("phase", ["init", "idle"])
@pytest.mark.parametrize("victim", [0, 2])
def test_killed_while_nothing_runs(
    start_job: StartJob, python: str, programs: Path, tmp_path: Path, phase: str, victim: int
) -> None:
    words = (phase, str(victim), "KILL")
    job = start_job("-np", "3", "--oversubscribe", python, programs / "phases.py", *words, env={"SEEN": str(tmp_path)})
    assert job.finish() == 137, job.text
    assert assert_named(job.text, victim) == all_but(victim, 3), job.text


@pytest.mark.parametrize("victim", [0, 2])
def test_killed_while_the_others_leave(
    start_job: StartJob, python: str, programs: Path, tmp_path: Path, victim: int
) -> None:
    """The other ranks have done their work: they leave at once without an error. The launcher reports the killed
    rank."""
    words = ("shutdown", str(victim), "KILL")
    job = start_job("-np", "3", "--oversubscribe", python, programs / "phases.py", *words, env={"SEEN": str(tmp_path)})
    assert job.finish() == 137, job.text
    left = list(re.finditer(r"left (\d) waited=([\d.]+) seconds=([\d.]+)", job.text))
    assert sorted(int(match[1]) for match in left) == all_but(victim, 3), job.text
    assert all(float(match[2]) > 0.4 and float(match[3]) < LIMIT for match in left), job.text
    assert re.search(rf"rank {victim} on host \S+ \(pid \d+\) was killed by signal 9 \(SIGKILL\)", job.text), job.text


def test_killed_at_random_moments(start_job: StartJob, python: str, programs: Path) -> None:
    """Sessions follow each other, so the moments fall into init, operations and shutdown alike. A rank between two
    sessions is ended at once. No other rank is ended by force."""
    for moment in range(MOMENTS):
        chance = random.Random(moment)
        size = chance.choice([2, 3])
        victim = chance.randrange(size)
        options = ("-np", str(size), "--oversubscribe", "--grace", str(8 * LIMIT))
        job = start_job(*options, python, programs / "phases.py", "sessions", str(victim), "KILL")
        pids = job.ranks(size)
        time.sleep(chance.uniform(0.0, 0.3))
        before = time.monotonic()
        os.kill(pids[victim], signal.SIGKILL)
        assert job.finish() == 137, job.text
        assert time.monotonic() - before < 3 * LIMIT, job.text  # ranks are killed after half the grace period
        ranks = assert_named(job.text, victim)
        assert ranks == all_but(victim, size) or re.search(r"the launcher ended \d", job.text), job.text


@pytest.mark.parametrize("signals, grace", [(1, "0.5"), (2, "60")])
def test_a_stopped_agent_does_not_hold_the_launcher(
    start_job: StartJob, python: str, programs: Path, signals: int, grace: str
) -> None:
    """The agent has until the end of the grace period or the second signal, and then 2 s."""
    job = start_job("-np", "2", "--grace", grace, python, programs / "loop.py")
    job.ranks(2)
    os.kill(agent_of(job.process.pid), signal.SIGSTOP)
    before = time.monotonic()
    job.signal(signal.SIGTERM)
    if signals > 1:
        time.sleep(1.1)  # an earlier signal counts as the same request
        job.signal(signal.SIGTERM)
    assert job.finish(30) == 143, job.text  # well within the longer grace period
    assert time.monotonic() - before > 2
    assert "the agent on host" in job.text and "is it stopped?" in job.text, job.text


@contextlib.contextmanager
def held(pid: int) -> Iterator[None]:
    """Keeps the process, as if the kernel held it in a system call. `pid` is the first process of a pid namespace, so
    it ends only after all others in there. Our child in there stays a zombie until we wait for it."""
    namespace = os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    with children_in(namespace):
        child = subprocess.Popen(["true"])
    os.close(namespace)
    try:
        yield
    finally:
        child.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a pid namespace")
def test_a_process_that_cannot_be_killed_is_named_and_the_launcher_ends(start_job: StartJob) -> None:
    script = "echo ready $RANK $$; [ $RANK = 1 ] || exec sleep 1000; exec unshare --pid --fork sleep 1000"
    job = start_job("-np", "2", "--grace", "0.5", "sh", "-c", script)
    children = ["pgrep", "-P", str(job.ranks(2)[1]), "-x", "sleep"]
    deadline = time.monotonic() + 30
    while not (found := subprocess.run(children, capture_output=True, text=True).stdout.split()):
        assert time.monotonic() < deadline, job.text
        time.sleep(0.02)
    with held(int(found[0])):
        before = time.monotonic()
        job.process.send_signal(signal.SIGTERM)
        assert job.process.wait(30) == 143, job.text
        assert time.monotonic() - before < 15
        # The process has no environment any more, so its rank is unknown.
        [named, *_] = re.findall(r"because the kernel cannot kill them.*: (.*)", job.text)
        assert named == f"sleep pid {found[0]}", job.text
    job.finish()
