"""A notice that the job will be ended soon. All ranks stop at the same step, in the time that the notice gives."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from pathlib import Path

import pytest

from ..conftest import Job, StartJob, agent_of, signal_waits


def stopped(job: Job, ranks: int) -> int:
    found = {int(match[1]): int(match[2]) for match in re.finditer(r"stopped (\d+) (\d+)", job.text)}
    assert len(found) == ranks, job.text
    [step] = set(found.values())
    return step


@pytest.mark.parametrize("mode", ["", "free"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
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


@pytest.mark.parametrize("name", ["TERM", "USR1", "USR2"])
@pytest.mark.parametrize("backend", ["shm", "tcp"])
def test_a_signal_at_the_launcher(start_job: StartJob, python: str, programs: Path, name: str, backend: str) -> None:
    job = start_job("-np", "3", "--oversubscribe", "--preempt-signal", name, "--control", backend, python,
                    programs / "steps.py")  # fmt: skip
    job.ranks(3)
    job.process.send_signal(signal.Signals[f"SIG{name}"])
    assert job.finish() == 0, job.text
    stopped(job, 3)
    said = f"distrun: the launcher got SIG{name}: all ranks are to stop at the same step, and have as long"
    assert said in job.text


def test_without_grace_there_is_no_limit_after_a_notice(start_job: StartJob, python: str) -> None:
    program = (
        "import os, time; import distrun.numpy as hvd; hvd.init()\n"
        "print('ready', hvd.rank(), os.getpid(), flush=True)\n"
        "while not hvd.should_stop(): pass\n"
        "time.sleep(10.5); print('saved', flush=True)"  # longer than the grace period
    )
    job = start_job("-np", "2", "--preempt-signal", "USR1", python, "-c", program)
    job.ranks(2)
    job.process.send_signal(signal.SIGUSR1)
    assert job.finish(60) == 0, job.text
    assert job.text.count("saved") == 2, job.text


def test_ranks_may_end_with_a_code_that_has_the_job_started_again(start_job: StartJob, python: str) -> None:
    """The program of docs/howto/stop-at-a-preemption.md, with one rank that takes longer to save."""
    program = (
        "import os, sys, time; import distrun.numpy as hvd; hvd.init()\n"
        "print('ready', hvd.rank(), os.getpid(), flush=True)\n"
        "while not hvd.should_stop(): pass\n"
        "time.sleep(hvd.rank() == 1); print('saved', flush=True)\n"
        "hvd.barrier(); sys.exit(85)"
    )
    job = start_job("-np", "3", "--oversubscribe", "--preempt-signal", "TERM", python, "-c", program)
    job.ranks(3)
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 85, job.text
    assert job.text.count("] saved") == 3, job.text


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
    job.signal(signal.SIGTERM)
    job.signal(signal.SIGTERM)
    job.wait_lines("got SIGTERM; ranks get TERM and 60 s to end", errors=True)
    time.sleep(1.1)  # an earlier signal counts as the same notice
    job.signal(signal.SIGTERM)
    assert job.finish(30) == 143, job.text  # well within the grace period


def test_programs_that_do_not_use_distrun_get_the_signal(start_job: StartJob) -> None:
    job = start_job("-np", "2", "--preempt-signal", "TERM", "sh", "-c", "echo ready $RANK $$; sleep 100")
    job.ranks(2)
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 143, job.text


@pytest.mark.parametrize("first", ["agent", "launcher"])
def test_a_notice_at_many_processes_is_one(start_job: StartJob, first: str) -> None:
    """A batch system signals many processes. Ranks that do not use distrun get TERM and the grace period, and no
    KILL."""
    saves = "trap 'sleep 1; echo saved; exit 0' TERM; echo ready $RANK $$; while :; do sleep 0.1; done"
    job = start_job("-np", "2", "--preempt-signal", "TERM", "sh", "-c", saves)
    job.ranks(2)
    launcher, agent = job.process.pid, agent_of(job.process.pid)
    for pid in (agent, launcher, agent) if first == "agent" else (launcher, agent):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        time.sleep(0.1)
    assert job.finish() == 143, job.text
    assert job.text.count("saved") == 2, job.text
    who = "the agent on host localhost" if first == "agent" else "distrun"
    assert f"{who} got SIGTERM; ranks get TERM and 10 s to end" in job.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_the_launcher_s_own_notice_may_follow_an_agent_s(start_job: StartJob, python: str, number: int) -> None:
    program = (
        "import os, time; import distrun.numpy as hvd; hvd.init()\n"
        "print('ready', hvd.rank(), os.getpid(), flush=True)\n"
        "while not hvd.should_stop(): pass\n"
        "time.sleep(1); print('saved', flush=True)"
    )
    name = signal.Signals(number).name
    job = start_job("-np", "2", "--preempt-signal", name.removeprefix("SIG"), python, "-c", program)
    job.ranks(2)
    os.kill(agent_of(job.process.pid), number)
    deadline = time.monotonic() + 20
    while f"the agent on host localhost got {name}: all ranks are to stop" not in job.text:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    job.process.send_signal(number)
    assert job.finish() == 0, job.text
    assert job.text.count("saved") == 2


@pytest.mark.parametrize("last", ["agent", "launcher"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_one_that_is_read_after_the_ranks_have_left_is_the_same_notice(
    start_job: StartJob, python: str, tmp_path: Path, number: signal.Signals, last: str
) -> None:
    """As on a busy machine: a batch system signals all processes, and the launcher does not run before the ranks have
    stopped."""
    program = (
        "import os, pathlib, sys, threading; import distrun.numpy as hvd; hvd.init(); rank = hvd.rank()\n"
        "print('ready', rank, os.getpid(), flush=True)\n"
        "while not hvd.should_stop(): pass\n"
        "left = pathlib.Path(sys.argv[1], str(rank))\n"
        "threading.Timer(0.3, left.touch).start()\n"  # the launcher does not answer
        "hvd.shutdown()"
    )
    job = start_job("-np", "2", "--preempt-signal", number.name[3:], python, "-c", program, tmp_path)
    pids = job.ranks(2).values()
    launcher = job.process.pid
    also = agent_of(launcher) if last == "agent" else launcher
    os.kill(launcher, signal.SIGSTOP)
    for pid in pids:
        os.kill(pid, number)
    deadline = time.monotonic() + 60
    while len(list(tmp_path.iterdir())) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(also, number)
    while also != launcher and signal_waits(also, number):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(launcher, signal.SIGCONT)
    assert job.finish() == 0, job.text
    assert job.text.count("all ranks are to stop at the same step") == 1, job.text


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


def test_a_signal_to_a_forked_child_ends_the_child_and_stops_nobody(start_job: StartJob, python: str) -> None:
    program = (
        "import os, signal; import distrun.numpy as hvd; hvd.init(); assert not hvd.should_stop()\n"
        "child = os.fork()\n"
        "if child == 0: signal.pause(); os._exit(3)\n"
        "os.kill(child, signal.SIGTERM); _, status = os.waitpid(child, 0)\n"
        "assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM, status\n"
        "hvd.barrier(); assert not any(hvd.should_stop() for _ in range(1000)); print('went on', flush=True)"
    )
    job = start_job("-np", "2", python, "-c", program)
    assert job.finish() == 0, job.text
    assert job.text.count("went on") == 2
