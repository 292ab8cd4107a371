"""Two hosts that do not reach each other, while both reach the head. The report names the network between them, no
rank."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from .jobs import LOOP, Job, assert_nothing_left
from .rig import ROOT, Cluster, Host
from .test_ssh_faults import agent_of, kill, pid_there

PYTHON = sys.executable
HOST_TIMEOUT = ("--host-timeout", "5")
SETS = ROOT / "test/e2e/programs/sets.py"
SOON = 30.0  # seconds; 12 on a machine that is not overloaded


def start(head: Host, hosts: str, *options: str, program: tuple[str, ...] = (str(LOOP), "1000000", "0.01")) -> Job:
    return Job(head, "-H", hosts, *HOST_TIMEOUT, *options, PYTHON, *program)


def ours(job: Job) -> list[str]:
    """The lines that distrun itself has printed."""
    return [line for _, line in job.lines if not line.startswith("[")]


def cause_in(job: Job) -> str:
    """The line of the report with the first cause. The next line says that it ended the job."""
    lines = ours(job)
    return lines[next(index for index, line in enumerate(lines) if "This ended the job" in line) - 1]


def address(host: str) -> str:
    return f"10.99.0.{host.removeprefix('h')}"


def assert_cut(job: Job, pair: tuple[str, str]) -> None:
    struck = time.monotonic()
    assert job.finish(90) == 75, job.text
    assert job.ended - struck < SOON, job.text
    one, other = sorted(pair)
    expected = f"the network between {one} ({address(one)}) and {other} ({address(other)}) is broken"
    assert any(expected in line for line in ours(job)), job.text
    assert not re.search(r"rank \d+ on host \S+ \(pid \d+\) (exited|failed|held|left)", job.text), job.text


@pytest.mark.parametrize("backend", ["gloo", "tcp", "auto"])
def test_a_pair_of_hosts_that_is_cut(cluster: Cluster, shared_path: Path, backend: str) -> None:
    """Not a pair with the leader. The ranks' pings go through the leader, so all of them are answered."""
    report = shared_path / "report.json"
    choice = () if backend == "auto" else ("--backend", backend)
    job = start(cluster.head, "h1:1,h2:2,h3:1", *choice, "--report", str(report))
    job.ranks(4)
    cluster["h2"].drop("both", peer="h3")
    assert_cut(job, ("h2", "h3"))
    cause = json.loads(report.read_text())["cause"]
    assert cause["kind"] == "network_broken", cause
    ends = {cause["link"][end]["host"]: cause["link"][end]["address"] for end in ("from", "to")}
    assert ends == {"h2": address("h2"), "h3": address("h3")}, cause
    cluster["h2"].heal()
    assert_nothing_left(cluster.head, *cluster.hosts)


@pytest.mark.parametrize("backend", ["gloo", "tcp"])
def test_a_pair_of_hosts_that_is_cut_for_a_moment(cluster: Cluster, backend: str) -> None:
    job = Job(
        cluster.head, "-H", "h1:1,h2:1,h3:1", "--host-timeout", "20", "--backend", backend, PYTHON, LOOP, "400", "0.01"
    )
    job.ranks(3)
    cluster["h2"].drop("both", peer="h3")
    time.sleep(4)
    cluster["h2"].heal()
    assert job.finish(90) == 0, job.text
    assert "broken" not in job.text and "lost" not in job.text, job.text


# Rank 1 closes all its connections to other ranks and lives on.
CLOSES = """
import os, time, numpy, distrun, distrun.numpy as hvd
hvd.init()
rank = hvd.rank()
print("ready", rank, os.getpid(), flush=True)
hvd.allreduce(numpy.ones(1), name="x")
if rank == 1:
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2 and os.readlink(f"/proc/self/fd/{name}").startswith("socket:"): os.close(int(name))
        except OSError:
            pass
    time.sleep(1000)
while True: hvd.allreduce(numpy.ones(1), name="x")
"""


def test_the_rank_that_reports_and_exits_first_is_not_blamed(cluster: Cluster) -> None:
    job = start(cluster.head, "h1:1,h2:1,h3:1", "--backend", "tcp", "--grace", "2", program=("-c", CLOSES))
    job.ranks(3)
    assert job.finish(90) not in (0, 70), job.text
    first = cause_in(job)
    assert first.startswith("distrun: rank 1 on host h2 "), job.text


def test_a_host_whose_agent_does_not_answer_is_lost(cluster: Cluster) -> None:
    """A rank there is missing while the agent is stopped. The host is given up long before host_timeout."""
    job = Job(
        cluster.head, "-H", "h1:1,h2:1", "--host-timeout", "60", "--backend", "tcp", PYTHON, LOOP, "1000000", "0.01"
    )
    job.ranks(2)
    kill(cluster["h2"], agent_of(cluster["h2"]), signal.SIGSTOP)
    kill(cluster["h2"], pid_there(cluster["h2"], 1), signal.SIGKILL)
    struck = time.monotonic()
    assert job.finish(60) == 75, job.text
    assert job.ended - struck < SOON, job.text
    first = ours(job)[0]
    assert first.startswith("distrun: host h2 is lost: it has not answered for 2 s, and another rank has lost"), (
        job.text
    )
    assert_nothing_left(cluster.head, *cluster.hosts)


@pytest.mark.parametrize("backend", ["tcp", "gloo"])
def test_a_rank_that_is_stopped_while_a_process_set_is_made(cluster: Cluster, backend: str) -> None:
    job = start(
        cluster.head, "h1:2,h2:2,h3:1", "--backend", backend, "--stall-shutdown-time", "4", "--grace", "2",
        program=(str(SETS),),
    )  # fmt: skip
    job.ranks(5)
    time.sleep(0.2)
    kill(cluster["h3"], next(each for each in cluster["h3"].processes() if str(SETS) in each.argv), signal.SIGSTOP)
    assert job.finish(90) == 1, job.text
    first = cause_in(job)
    stopped = r"distrun: rank 4 on host h3 \(pid \d+\) is stopped \(T: by a signal\) and blocked"
    assert re.match(stopped, first), job.text
    assert_nothing_left(cluster.head, *cluster.hosts)
