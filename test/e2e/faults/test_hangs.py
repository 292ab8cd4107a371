"""Ranks that wait for each other: the reports while they wait and when the job ends."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from ..conftest import Job, StartJob


@pytest.fixture
def hangs(start_job: StartJob, python: str, programs: Path):  # type: ignore[no-untyped-def]
    def start(*what: str, size: int = 2, options: tuple[str, ...] = (), seconds: float = 6) -> Job:
        fixed = ("-np", str(size), "--oversubscribe", "--grace", "4", "-x", f"SECONDS={seconds}")
        return start_job(*fixed, *options, python, programs / "hangs.py", *what)

    return start


WARNS = ("--stall-warning-time", "1")
DEADLOCK = ("--deadlock-time", "3", "--stall-warning-time", "0")


def stacks(job: Job) -> list[str]:
    """The lines of the first report on where the ranks are."""
    job.wait_lines("where the ranks are", errors=True)
    time.sleep(0.5)
    lines = [line.removeprefix("distrun: ") for line in job.err]
    first = next(index for index, line in enumerate(lines) if line.startswith("where the ranks are"))
    return lines[first : first + 15]


@pytest.mark.parametrize(("what", "size"), [("crosswise", 2), ("kinds", 4), ("in_a_set", 3)])
def test_ranks_that_wait_for_each_other_for_ever_end_the_job(hangs, tmp_path: Path, what: str, size: int) -> None:  # type: ignore[no-untyped-def]
    report = tmp_path / "report.json"
    job = hangs(what, size=size, options=(*DEADLOCK, "--report", str(report)))
    assert job.finish(90) == 1, job.text
    assert time.monotonic() - job.started >= 3, job.text
    assert "deadlock: every rank has waited for others for 3.0 s" in job.text, job.text
    assert re.search(r"^distrun: deadlock: every rank has waited for others for 3.0 s", job.text, re.MULTILINE), (
        job.text
    )
    assert "blocked the other ranks" not in job.text, job.text
    named = job.text.split("no wait can end: ", 1)[1].splitlines()[0]
    for rank in range(size):
        assert re.search(rf"\b{rank} \(\S+\)[^;]* waits? in ", named), named
    assert "hangs.py:" in "\n".join(stacks(job)), job.text
    facts = json.loads(report.read_text())
    assert facts["cause"]["kind"] == "deadlock" and facts["exit_code"] == 1
    assert facts["rank"] is None and facts["host"] is None, facts
    assert {rank for wait in facts["waits"] for rank in wait["waiting"]} == set(range(size)), facts
    lines = [frame for stack in facts["stacks"] for thread in stack["threads"] for frame in thread["frames"]]
    assert any(frame["file"].endswith("hangs.py") and frame["line"] > 0 for frame in lines), facts


def test_each_rank_raises_timeout_in_a_deadlock(start_job: StartJob, python: str, tmp_path: Path) -> None:
    program = tmp_path / "raises.py"
    program.write_text(
        "import numpy as np, distrun.numpy as hvd\n"
        "hvd.init()\n"
        "try:\n"
        "    hvd.allreduce(np.ones(1, np.float32), name=str(hvd.rank()))\n"
        "except hvd.JobEnded as error:\n"
        "    print('raised', hvd.rank(), isinstance(error, (hvd.Timeout, hvd.RankLost)), flush=True)\n"
    )
    job = start_job("-np", "3", "--oversubscribe", *DEADLOCK, python, program)
    assert job.finish(90) == 1, job.text
    assert set(re.findall(r"raised (\d) True", job.text)) == set("012"), job.text


@pytest.mark.parametrize("what", ["evaluates", "computes", "limited"])
def test_nothing_ends_while_a_rank_is_outside_a_wait(hangs, what: str) -> None:  # type: ignore[no-untyped-def]
    job = hangs(what, options=("--deadlock-time", "1.5", "--stall-warning-time", "0"), seconds=7)
    assert job.finish(90) == 0, job.text
    assert sorted(re.findall(r"went on (\d)", job.text)) == ["0", "1"], job.text


def test_a_limit_of_0_lets_ranks_wait(hangs) -> None:  # type: ignore[no-untyped-def]
    job = hangs("crosswise", options=("--deadlock-time", "0", "--stall-warning-time", "0", "--timeout", "5"))
    assert job.finish(60) == 124, job.text


@pytest.mark.parametrize("limit", ["--deadlock-time", "--stall-shutdown-time"])
def test_a_rank_that_raised_and_then_waits_is_the_cause_of_a_wait_both_ways(hangs, limit: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    report = tmp_path / "report.json"
    options = (limit, "3", "--stall-warning-time", "0", "--report", str(report))
    job = hangs("both_ways", size=3, options=options)
    assert job.finish(90) == 1, job.text
    said = r"rank 1 on host \S+ \(pid \d+\) raised ValueError: a bad sample on rank 1 \(hangs.py:\d+\) and then waited"
    assert re.search(f"^distrun: {said} for other ranks: ", job.text, re.MULTILINE), job.text
    facts = json.loads(report.read_text())
    assert (facts["rank"], facts["cause"]["kind"], facts["exit_code"]) == (1, "stalled", 1), facts
    assert facts["cause"]["exception"].startswith("ValueError: a bad sample on rank 1 (hangs.py:"), facts
    assert facts["place"]["file"].endswith("hangs.py") and facts["place"]["line"] > 0, facts


@pytest.mark.parametrize("stopped", [False, True])
def test_the_tensor_of_a_stall_is_a_field_of_the_report(hangs, stopped: bool, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    report = tmp_path / "report.json"
    options = ("--stall-warning-time", "0", "--stall-shutdown-time", "3", "--report", str(report))
    job = hangs("evaluates", options=options, seconds=30)
    if stopped:
        os.kill(job.ranks(2)[1], signal.SIGSTOP)
    assert job.finish(90) != 0, job.text
    facts = json.loads(report.read_text())
    assert (facts["rank"], facts["cause"]["kind"]) == (1, "stalled"), facts
    assert facts["tensor"] == "allreduce.x", facts


@pytest.mark.parametrize("way", ["with", "finally", "except", "generator", "chained", "closed", "excepthook"])
def test_an_exception_that_waits_is_named(hangs, way: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    report = tmp_path / "report.json"
    job = hangs("unwinds", way, options=(*WARNS, "--timeout", "5", "--report", str(report)))
    assert job.finish(60) == 124, job.text
    named = "ValueError: a bad sample on rank 1" + (" (from KeyError: 'y')" if way == "chained" else "")
    said = rf"handling {re.escape(named)} \(\S*hangs.py:\d+\)"
    assert len(re.findall(said, job.text)) == 3, job.text  # once in the first report of the wait, then at the end
    facts = json.loads(report.read_text())
    [stack] = [stack for stack in facts["stacks"] if stack["exception"]]
    assert stack["exception"] == named, facts
    assert stack["ranks"] == [1] and stack["raised_at"]["line"] > 0, facts


def test_the_first_report_of_a_wait_shows_stacks_once(hangs) -> None:  # type: ignore[no-untyped-def]
    job = hangs("evaluates", options=WARNS, size=3, seconds=7)
    shown = "\n".join(stacks(job))
    assert re.search(r"rank 1 \(\S+\), which others wait for, is in no operation\n", shown), shown
    assert re.search(r"  \S*hangs.py:\d+ in evaluates\n", shown), shown
    assert re.search(r"ranks? 0\S* .*has allreduce 'allreduce.x' in flight for", shown), shown
    assert job.finish() == 0, job.text
    assert job.text.count("where the ranks are") == 1, job.text


def test_a_limit_of_time_shows_where_ranks_are_and_what_they_handle(hangs) -> None:  # type: ignore[no-untyped-def]
    job = hangs("unwinds", "finally", options=("--stall-warning-time", "0", "--timeout", "3"))
    assert job.finish() == 124, job.text
    assert job.text.count("handling ValueError: a bad sample on rank 1 (") == 2, job.text
    assert job.text.index("where the ranks are") < job.text.index("which is its --timeout; ending it"), job.text


def test_a_limit_of_time_waits_for_no_rank_that_is_silent(hangs) -> None:  # type: ignore[no-untyped-def]
    job = hangs("evaluates", options=("--stall-warning-time", "0", "--timeout", "4"), seconds=30)
    os.kill(job.ranks(2)[1], signal.SIGSTOP)
    assert job.finish() == 124, job.text
    assert "rank 1 (localhost) is stopped (T: by a signal)" in job.text, job.text


def test_stall_shutdown_shows_stacks_where_no_warning_has(hangs) -> None:  # type: ignore[no-untyped-def]
    options = ("--stall-warning-time", "0", "--stall-shutdown-time", "1.5")
    job = hangs("evaluates", options=options, seconds=30)
    assert job.finish() == 1, job.text
    assert re.search(r"hangs.py:\d+ in evaluates", "\n".join(stacks(job))), job.text


def test_a_rank_that_holds_pythons_lock_is_said_to_do_so(hangs) -> None:  # type: ignore[no-untyped-def]
    job = hangs("holds_the_lock", options=WARNS, seconds=8)
    assert "C code holds the interpreter's lock" in "\n".join(stacks(job)), job.text
    assert job.finish() == 0, job.text


def test_a_stopped_rank_holds_up_no_report(hangs) -> None:  # type: ignore[no-untyped-def]
    job = hangs("evaluates", options=WARNS, seconds=1)
    pids = job.ranks(2)
    os.kill(pids[1], signal.SIGSTOP)
    job.wait_lines("where the ranks are", errors=True, timeout=20)
    job.wait_lines(r"rank 1 \(\S+\), which others wait for, is stopped \(T: by a signal\)", errors=True, timeout=5)
    os.kill(pids[1], signal.SIGCONT)
    assert job.finish() == 0, job.text


def test_the_programs_own_signals_and_faulthandler_are_left_alone(hangs) -> None:  # type: ignore[no-untyped-def]
    job = hangs("has_handlers", options=WARNS, seconds=4)
    assert "in evaluates" in "\n".join(stacks(job)), job.text
    job.signal(signal.SIGQUIT)
    assert job.finish() == 0, job.text
    assert re.findall(r"signals (\d) (\[.*\])", job.text) and "signals 1 []" in job.text, job.text


def test_ctrl_backslash_shows_all_ranks_and_the_job_goes_on(hangs) -> None:  # type: ignore[no-untyped-def]
    job = hangs("evaluates", size=3, seconds=4)
    job.ranks(3)
    time.sleep(1.5)  # by then the other ranks wait
    job.signal(signal.SIGQUIT)
    shown = "\n".join(stacks(job))
    assert re.search(r"rank 1 \(\S+\) is in no operation", shown), shown
    assert re.search(r"ranks 0, 2 have allreduce 'allreduce.x' in flight", shown), shown
    assert job.finish() == 0, job.text


def test_ctrl_backslash_where_ranks_are_in_no_session(hangs, start_job: StartJob) -> None:  # type: ignore[no-untyped-def]
    job = hangs("late", size=2, seconds=6)
    job.ranks(2)
    time.sleep(1.5)  # by then rank 0 waits in init()
    job.signal(signal.SIGQUIT)
    shown = "\n".join(stacks(job))
    assert re.search(r"rank 0 \(\S+\) is in init\(\), which waits for rank 1$", shown, re.MULTILINE), shown
    assert re.search(r"rank 1 \(\S+\) is in no session: before init\(\)", shown), shown
    assert job.finish() == 0, job.text
    shell = start_job("-np", "2", "--oversubscribe", "sh", "-c", "echo up; sleep 3")
    shell.wait_lines("up")
    shell.signal(signal.SIGQUIT)
    assert "ranks 0-1 are in no session" in "\n".join(stacks(shell)), shell.text
    assert shell.finish() == 0, shell.text
