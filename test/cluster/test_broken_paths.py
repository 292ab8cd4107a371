"""Paths between hosts that pass only some packets, and foreign bytes in streams. The job ends with the reason and the
ranks or hosts. A stopped reader is not such a failure."""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Iterator

import pytest

from .jobs import LOOP, PROGRAMS, Job, assert_nothing_left, run
from .rig import Cluster, Host

PYTHON = sys.executable
HOST_TIMEOUT = ("--host-timeout", "5")
MTU = "small messages pass, large ones do not: check the MTU"
# The host timeout, time for the launcher, the ranks' end by TERM, and a reserve for an overloaded machine.
NOTICED = 45.0
# No operation runs: two ranks wait until the third one submits its part.
AGREEING = """
import time, numpy, distrun.numpy as hvd
hvd.init()
hvd.allreduce(numpy.ones(9))
print("ready", hvd.rank(), 0, flush=True)
time.sleep(900) if hvd.rank() == 0 else hvd.allreduce(numpy.ones(9), name="late")
"""
LOSE_LARGE = """
add table inet holes
add chain inet holes into {{ type filter hook input priority 0; }}
add rule inet holes into ip saddr {four} meta length > 1000 drop
add rule inet holes into ip6 saddr {six} meta length > 1000 drop
"""


def lose_large(one: Host, other: Host) -> None:
    """Silently drops packets above 1,000 bytes between the two hosts."""
    for here, there in ((one, other), (other, one)):
        six = f"fd99::{int(there.address.rpartition('.')[2]):x}"
        here.run(["nft", "-f", "-"], input=LOSE_LARGE.format(four=there.address, six=six), check=True)


@pytest.fixture
def hosts(cluster: Cluster) -> Iterator[Cluster]:
    yield cluster
    for host in (cluster.head, *cluster.hosts):
        host.run(["nft", "delete", "table", "inet", "holes"])


def end(job: Job, began: float) -> int:
    code = job.finish(NOTICED)
    assert job.ended - began < NOTICED
    return code


@pytest.mark.parametrize("backend", ["auto", "gloo"])
def test_large_packets_that_are_lost_are_found_before_the_ranks_start(hosts: Cluster, backend: str) -> None:
    lose_large(hosts["h1"], hosts["h2"])
    done = run(hosts.head, "--backend", backend, "-H", "h1:1,h2:1", "hostname", timeout=60)
    assert done.returncode == 69, done.stderr
    assert done.stderr.count(MTU) == 1, done.stderr
    assert "h1" in done.stderr and "h2" in done.stderr and "10.99.0.2" in done.stderr
    assert_nothing_left(hosts["h1"], hosts["h2"])


def test_a_check_of_hosts_finds_large_packets_that_are_lost(hosts: Cluster) -> None:
    lose_large(hosts["h1"], hosts["h3"])
    done = run(hosts.head, "check", "-H", "h1,h2,h3", timeout=70)
    assert done.returncode != 0
    assert MTU in done.stderr and "10.99.0.3" in done.stderr, done.stderr


def test_a_check_finds_large_packets_that_are_lost_between_the_head_and_a_host(hosts: Cluster) -> None:
    """ssh's key exchange does not get through, so the host has no agent."""
    lose_large(hosts.head, hosts["h2"])
    done = run(hosts.head, "check", "-H", "h1,h2", "--timeout", "20", timeout=70)
    assert done.returncode != 0
    assert done.stderr.count(MTU) == 1 and f"this machine -> h2: {MTU}" in done.stderr, done.stderr


def test_random_loss_is_no_matter_of_the_mtu(cluster: Cluster) -> None:
    for host in (cluster["h1"], cluster["h2"]):
        host.loss(20)
    done = run(cluster.head, "check", "-H", "h1,h2", "--timeout", "60", timeout=90)
    assert MTU not in done.stderr, done.stderr


@pytest.mark.parametrize("backend", ["auto", "tcp"])
def test_large_packets_that_are_lost_later_end_the_job(hosts: Cluster, backend: str) -> None:
    job = Job(hosts.head, *HOST_TIMEOUT, "--backend", backend, "-H", "h1:1,h2:1", PYTHON, str(LOOP), "1000000", "0.01")
    job.ranks(2)
    lose_large(hosts["h1"], hosts["h2"])
    began = time.monotonic()
    assert end(job, began) != 0
    assert MTU in job.text, job.text
    assert_nothing_left(hosts["h1"], hosts["h2"])


# With gloo, h2 and h3 have no connection of distrun. Gloo's own sockets report no loss.
@pytest.mark.parametrize(
    "pair, backend", [("h1-h3", "auto"), ("h2-h3", "auto"), ("h1-h3", "tcp"), ("h2-h3", "tcp"), ("h1-h3", "gloo")]
)
def test_two_hosts_that_lose_each_other_end_the_job(cluster: Cluster, pair: str, backend: str) -> None:
    ranks = 5 if backend == "auto" else 3
    options = ("-np", str(ranks), "--backend", backend)
    slots = "h1:2,h2:2,h3:1" if ranks == 5 else "h1:1,h2:1,h3:1"
    job = Job(cluster.head, *HOST_TIMEOUT, *options, "-H", slots, PYTHON, str(LOOP), "1000000", "0.01")
    job.ranks(ranks)
    one, other = pair.split("-")
    cluster[one].drop("both", peer=other)
    assert end(job, time.monotonic()) != 0
    assert job.found(r"raised \d+ \w+ ranks=\[\d"), job.text
    assert_nothing_left(*cluster.hosts[:3])


def test_two_hosts_that_lose_each_other_are_missed_while_no_operation_runs(cluster: Cluster) -> None:
    options = (*HOST_TIMEOUT, "--backend", "tcp", "--all-errors", "-H", "h1:1,h2:1,h3:1")
    job = Job(cluster.head, *options, PYTHON, "-c", AGREEING)
    job.ranks(3)
    cluster["h2"].drop("both", peer="h3")
    assert end(job, time.monotonic()) != 0
    broken = r"the network between h2 \(10\.99\.0\.2\) and h3 \(10\.99\.0\.3\) is broken"
    assert re.search(rf"^distrun: rank [12] \(h[23]\) .*{broken}", job.text, re.MULTILINE), job.text
    assert re.search(rf"RankLost: rank [12] \(h[23]\) .*{broken}", job.text), job.text
    assert_nothing_left(*cluster.hosts[:3])


# Each connection of a rank: to the store, on the control plane, and to both neighbours in the ring.
@pytest.mark.parametrize("writer", [0, 1])
@pytest.mark.parametrize("index", [0, 1, 2, 3])
def test_foreign_bytes_in_a_stream_end_the_job_with_their_writers_name(
    cluster: Cluster, writer: int, index: int
) -> None:
    program = str(PROGRAMS / "foreign.py")
    options = (*HOST_TIMEOUT, "--backend", "tcp", "-H", "h1:1,h2:1")
    job = Job(cluster.head, *options, PYTHON, program, str(writer), str(index))
    (wrote,) = job.wait_for(r"^(?:\[\d+\] ?)?(?:.*)(wrote into|none)")
    assert wrote[1] != "none", job.text
    assert end(job, time.monotonic()) != 0
    assert re.search(rf"rank {writer}\b", job.text), job.text
    assert_nothing_left(cluster["h1"], cluster["h2"])


def test_foreign_bytes_between_ranks_of_one_host_end_the_job_too(cluster: Cluster) -> None:
    foreign = (PYTHON, str(PROGRAMS / "foreign.py"), "1", "1")
    job = Job(cluster.head, *HOST_TIMEOUT, "--all-errors", "-H", "h1:2,h2:1", *foreign)
    (wrote,) = job.wait_for(r"wrote into \('(\S+)', \d+\) to \('(\S+)', \d+\)")
    assert wrote[1] == wrote[2], job.text  # the connection of the control plane, to rank 0
    assert end(job, time.monotonic()) != 0
    assert re.search(r"rank 1 on h1 was lost: its control connection ended", job.text), job.text
    assert_nothing_left(cluster["h1"], cluster["h2"])


def test_a_rank_that_is_stopped_for_longer_than_the_limit_is_no_broken_network(cluster: Cluster) -> None:
    job = Job(cluster.head, *HOST_TIMEOUT, "--backend", "tcp", "-H", "h1:1,h2:1", PYTHON, str(LOOP), "60", "0.01")
    pids = job.ranks(2)
    cluster["h2"].run(["kill", f"-{int(signal.SIGSTOP)}", str(pids[1])], check=True)
    time.sleep(14)
    cluster["h2"].run(["kill", f"-{int(signal.SIGCONT)}", str(pids[1])], check=True)
    assert job.finish(60) == 0, job.text
