"""A notice that the job is about to be ended: all ranks stop at the same step, and have the grace period to do so."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from ..conftest import Job, StartJob


def stopped(job: Job, ranks: int) -> int:
    found = {int(match[1]): int(match[2]) for match in re.finditer(r"stopped (\d+) (\d+)", job.text)}
    assert len(found) == ranks, job.text
    [step] = set(found.values())
    return step


@pytest.mark.parametrize("mode", ["", "free"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_signal_at_one_rank_stops_all_at_the_same_step(
    start_job: StartJob, python: str, programs: Path, ranks: int, number: int, mode: str
) -> None:
    job = start_job("-np", str(ranks), "--oversubscribe", python, programs / "steps.py", "0.002", mode)
    pids = job.ranks(ranks)
    os.kill(pids[ranks - 1], number)
    assert job.finish() == 0, job.text
    assert stopped(job, ranks) > 10
    assert "--grace" not in job.text


@pytest.mark.parametrize("name", ["TERM", "USR1"])
@pytest.mark.parametrize("backend", ["shm", "tcp"])
def test_a_signal_at_the_launcher(start_job: StartJob, python: str, programs: Path, name: str, backend: str) -> None:
    job = start_job("-np", "3", "--oversubscribe", "--preempt-signal", name, "--control", backend, python,
                    programs / "steps.py")  # fmt: skip
    job.ranks(3)
    job.process.send_signal(signal.Signals[f"SIG{name}"])
    assert job.finish() == 0, job.text
    stopped(job, 3)
    assert f"distrun: the launcher got SIG{name}: all ranks are to stop at the same step, and have 10 s" in job.text


def test_the_signal_at_a_rank_starts_the_grace_period(start_job: StartJob, python: str, programs: Path) -> None:
    job = start_job("-np", "2", "--preempt-signal", "USR1", "--grace", "1", python, programs / "steps.py", "0.01",
                    "stubborn")  # fmt: skip
    pids = job.ranks(2)
    before = time.monotonic()
    os.kill(pids[1], signal.SIGUSR1)
    assert job.finish() == 128 + signal.SIGUSR1, job.text
    assert time.monotonic() - before > 0.9
    assert re.search(r"distrun: rank 1 on \S+ got SIGUSR1: all ranks are to stop", job.text), job.text
    assert "ranks that were to stop have not ended within 1 s; ending the job" in job.text


def test_a_second_sigterm_means_it(start_job: StartJob, python: str, programs: Path) -> None:
    job = start_job("-np", "2", "--preempt-signal", "TERM", "--grace", "60", python, programs / "steps.py", "0.01",
                    "stubborn")  # fmt: skip
    job.ranks(2)
    for _ in range(3):
        job.signal(signal.SIGTERM)
    assert job.finish(30) == 143, job.text  # well within the grace period


def test_programs_that_do_not_use_distrun_get_the_signal(start_job: StartJob) -> None:
    job = start_job("-np", "2", "--preempt-signal", "TERM", "sh", "-c", "echo ready $RANK $$; sleep 100")
    job.ranks(2)
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 143, job.text


def test_a_notice_that_comes_late_does_not_kill_a_rank_that_is_ending(start_job: StartJob, python: str) -> None:
    program = (
        "import os, signal; import distrun.numpy as hvd; hvd.init()\n"
        "while not hvd.should_stop(request=True): pass\n"
        "hvd.shutdown(); os.kill(os.getpid(), signal.SIGUSR1); print('saved', flush=True)"
    )
    job = start_job("-np", "2", python, "-c", program)
    assert job.finish() == 0, job.text
    assert job.text.count("saved") == 2


def test_a_signal_that_the_program_handles_is_its_own(start_job: StartJob, python: str) -> None:
    program = (
        "import os, signal, sys; import distrun.numpy as hvd; "
        "signal.signal(signal.SIGTERM, lambda *_: print('mine', flush=True)); hvd.init(); "
        "assert not hvd.should_stop(); os.kill(os.getpid(), signal.SIGTERM); "
        "assert not any(hvd.should_stop() for _ in range(1000))"
    )
    job = start_job("-np", "2", python, "-c", program)
    assert job.finish() == 0, job.text
    assert job.text.count("mine") == 2
