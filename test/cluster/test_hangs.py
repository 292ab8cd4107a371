"""Ranks on two hosts that wait for each other: the report on where they are, and the end of the job."""

from __future__ import annotations

import re
import signal
import sys

from .jobs import Job, assert_nothing_left
from .rig import ROOT, Cluster

HANGS = (sys.executable, str(ROOT / "test/e2e/programs/hangs.py"))


def start(cluster: Cluster, *arguments: str, seconds: int = 6) -> Job:
    return Job(cluster.head, "-H", "h1:1,h2:1", "--grace", "4", "-x", f"SECONDS={seconds}", *arguments)


def test_a_deadlock_between_hosts_names_both(cluster: Cluster) -> None:
    job = start(cluster, "--deadlock-time", "3", "--stall-warning-time", "0", *HANGS, "crosswise")
    assert job.finish(90) == 1, job.text
    said = r"rank 0 \(h1\) waits in allreduce 'allreduce.b' for rank 1 \(h2\)"
    assert re.search(said, job.text), job.text
    assert re.search(r"rank 1 \(h2\) waits in allreduce 'allreduce.a' for rank 0 \(h1\)", job.text), job.text
    assert len(job.found(r"hangs.py:\d+ in wait_for")) >= 1, job.text
    assert_nothing_left(cluster.head, *cluster.hosts)


def test_the_lines_of_ranks_on_two_hosts(cluster: Cluster) -> None:
    job = start(cluster, "--stall-warning-time", "1", *HANGS, "evaluates", seconds=8)
    job.wait_for(r"rank 1 \(h2\), which others wait for, is in no operation")
    job.wait_for(r"hangs.py:\d+ in evaluates")
    job.signal(signal.SIGQUIT)
    job.wait_for("where the ranks are", count=2)
    assert job.finish(60) == 0, job.text
    assert_nothing_left(cluster.head, *cluster.hosts)


def test_an_exception_that_waits_on_another_host_is_named(cluster: Cluster) -> None:
    job = start(cluster, "--stall-warning-time", "1", "--timeout", "7", *HANGS, "unwinds", "with")
    assert job.finish(60) == 124, job.text
    assert len(job.found(r"handling ValueError: a bad sample on rank 1 \(")) == 3, job.text
    assert_nothing_left(cluster.head, *cluster.hosts)
