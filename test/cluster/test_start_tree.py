"""If a job has more hosts than the head starts itself, running agents start the others. Here this begins with three
hosts: h1 starts h3 and h4, h2 starts h5 and h6."""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from .conftest import MakeCluster, started
from .jobs import LOOP, Job, agents, assert_nothing_left, end_strays, package_folders, run, wait_until
from .rig import Cluster, Host, Process

HOSTS = "h1:1,h2:1,h3:1,h4:1,h5:1,h6:1"
TREE = ("--start-fan-out", "2", "-H", HOSTS)
CONFIG = "/run/home/root/.ssh/config"
KEY = "/run/home/root/.ssh/id_ed25519"
WAITING = (*TREE, "sh", "-c", "echo ready $RANK $$; exec sleep 1000")


@pytest.fixture(scope="module")
def six(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield started(stack, 6, share=package_folders())


@pytest.fixture
def hosts(six: Cluster) -> Iterator[Cluster]:
    yield six
    everyone = [six.head, *six.hosts]
    for host in everyone:
        host.heal()
    left = {host.name: end_strays(host) for host in everyone}
    assert not any(left.values()), left


def ssh_of(host: Host) -> list[Process]:
    return [each for each in host.processes() if each.argv[0] == "ssh"]


def joined(host: Host) -> list[Process]:
    return [each for each in host.processes() if each.argv[1:] == ("agent", "--join")]


@contextmanager
def ssh_config(host: Host, text: str) -> Iterator[None]:
    host.path(CONFIG).write_text(text)
    try:
        yield
    finally:
        host.path(CONFIG).unlink()


@contextmanager
def no_key(*hosts: Host) -> Iterator[None]:
    """From these hosts, ssh to other hosts fails."""
    for host in hosts:
        host.path(KEY).rename(host.path(KEY + ".away"))
    try:
        yield
    finally:
        for host in hosts:
            host.path(KEY + ".away").rename(host.path(KEY))


def test_agents_start_others(hosts: Cluster) -> None:
    job = Job(hosts.head, "-v", "--ssh-option", "ConnectTimeout=9", *WAITING)
    job.ranks(6)
    assert "agents: 2 of 6 are started from this machine" in job.text
    assert len(ssh_of(hosts.head)) == 2
    for name, others in (("h1", {"h3", "h4"}), ("h2", {"h5", "h6"})):
        started_there = ssh_of(hosts[name])
        assert {other for each in started_there for other in others if other in each.argv} == others
        assert all("ConnectTimeout=9" in each.argv for each in started_there)
        assert len(agents(hosts[name])) == 2 and not joined(hosts[name])
    assert len(joined(hosts["h6"])) == 2 and not ssh_of(hosts["h6"])
    job.signal(signal.SIGTERM)
    assert job.finish() == 143, job.text
    assert_nothing_left(hosts.head, *hosts.hosts)


@pytest.mark.parametrize("fan_out", ["1", "3"])
def test_a_job_from_start_to_end(hosts: Cluster, fan_out: str) -> None:
    begin = time.monotonic()
    program = ("sh", "-c", "echo I am $RANK on $(hostname)")
    done = run(hosts.head, "--grace", "60", "--start-fan-out", fan_out, "-H", HOSTS, *program)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] I am {rank} on h{rank + 1}" for rank in range(6)]
    # A starter waits for the ssh processes of the other agents, not for the grace period, as it has left nothing
    # behind.
    assert time.monotonic() - begin < 40
    assert_nothing_left(hosts.head, *hosts.hosts)


def test_hosts_without_slots_are_asked_through_the_tree(hosts: Cluster) -> None:
    done = run(hosts.head, "--start-fan-out", "2", "-np", "6", "-H", "h1,h2,h3,h4,h5,h6", "hostname")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 6
    assert_nothing_left(hosts.head, *hosts.hosts)


def test_starters_whose_ranks_end_early_stay_for_the_others(hosts: Cluster) -> None:
    """Processes that their ranks leave behind are still reported and ended."""
    program = 'echo ready $RANK $$; [ "$RANK" -lt 2 ] || sleep 3; [ "$RANK" != 0 ] || (setsid sleep 1000 &)'
    done = run(hosts.head, "--grace", "1", *TREE, "sh", "-c", program)
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"all ranks on host h1 have ended, but processes that they started still run. .*: sleep pid", done.stderr
    )
    assert "ssh pid" not in done.stderr and "host h2" not in done.stderr
    assert_nothing_left(hosts.head, *hosts.hosts)


def test_hosts_that_cannot_reach_others_leave_it_to_the_head(hosts: Cluster) -> None:
    with no_key(hosts["h1"], hosts["h2"]):
        done = run(hosts.head, "-v", *TREE, "hostname")
    assert done.returncode == 0, done.stderr
    refused = re.findall(r"host h[12] could not start the agent of host h[3-6]: .*Permission denied.*", done.stderr)
    assert len(refused) == 1 and "This machine starts it, and others" in refused[0], done.stderr
    assert_nothing_left(hosts.head, *hosts.hosts)


def test_a_host_that_nobody_reaches_is_named_with_who_tried(hosts: Cluster) -> None:
    done = run(hosts.head, "--start-fan-out", "2", "-H", "h1:1,h2:1,h3:1,nosuch:1", "hostname")
    assert done.returncode == 69
    assert re.search(
        r"host nosuch: .*Could not resolve hostname.* \(before that, host h2 was to start it: .*nosuch", done.stderr
    ), done.stderr
    assert_nothing_left(hosts.head, *hosts.hosts)


def test_all_hosts_that_cannot_take_part_are_named(hosts: Cluster) -> None:
    """The starters are among them. The head then asks the starters' hosts itself."""
    hosts["h6"].path("/tmp/program").write_text("#!/bin/sh\n")
    hosts["h6"].path("/tmp/program").chmod(0o755)
    done = run(hosts.head, *TREE, "/tmp/program")
    assert done.returncode == 69
    named = set(re.findall(r"^  .*\b(h[1-6])\b", done.stderr, re.MULTILINE))
    assert named == {"h1", "h2", "h3", "h4", "h5"}, done.stderr
    assert_nothing_left(hosts.head, *hosts.hosts)


def test_a_starter_that_does_not_get_through_is_replaced(hosts: Cluster) -> None:
    """The starter's ssh to h3 hangs."""
    with ssh_config(hosts["h1"], "Host h3\n  ProxyCommand sleep 1000\n"):
        job = Job(hosts.head, "-v", "--ssh-option", "ConnectTimeout=3", *WAITING)
        job.ranks(6)
        assert "host h1 could not start the agent of host h3" in job.text
        job.signal(signal.SIGTERM)
        assert job.finish() == 143, job.text
    assert_nothing_left(hosts.head, *hosts.hosts)


@pytest.mark.parametrize("how", ["agent killed", "guard killed", "link cut"])
def test_a_starter_that_goes_in_the_middle(hosts: Cluster, how: str) -> None:
    h1 = hosts["h1"]
    with ssh_config(h1, "Host h3 h4\n  ProxyCommand sleep 1000\n"):
        job = Job(hosts.head, "--grace", "60", "--host-timeout", "5", *WAITING)
        wait_until(lambda: len(ssh_of(h1)) == 2 and len(joined(hosts["h6"])) == 2, "the starters start")
        begin = time.monotonic()
        if how == "link cut":
            h1.drop("both")
        else:
            both = agents(h1)
            guards = [each for each in both if each.parent not in [other.pid for other in both]]
            victim = guards[0] if how == "guard killed" else next(each for each in both if each not in guards)
            h1.run(["kill", "-9", str(victim.pid)], check=True)
        assert job.finish() == 69, job.text
    assert time.monotonic() - begin < 40, job.text  # well within the grace period
    assert re.search(r"host h1: ", job.text), job.text
    h1.heal()
    assert_nothing_left(hosts.head, *hosts.hosts, seconds=20)


def test_a_starter_killed_during_the_job(hosts: Cluster) -> None:
    job = Job(hosts.head, *TREE, sys.executable, LOOP, "1000000", "0.01")
    job.ranks(6)
    h1 = hosts["h1"]
    [agent] = [each for each in agents(h1) if each.parent in [other.pid for other in agents(h1)]]
    h1.run(["kill", "-9", str(agent.pid)], check=True)
    assert job.finish() == 75, job.text
    assert "host h1 is lost" in job.text and "host h3 is lost" not in job.text
    assert_nothing_left(hosts.head, *hosts.hosts)


def test_a_host_of_the_tree_that_vanishes(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(6, share=package_folders())
    options = ("--host-timeout", "5", "--grace", "60")
    job = Job(cluster.head, *options, *TREE, sys.executable, LOOP, "1000000", "0.01")
    job.ranks(6)
    cluster["h3"].kill()
    begin = time.monotonic()
    job.wait_for("host h3 is lost")
    lost = time.monotonic()
    assert lost - begin < 10.0  # seconds; 6 on a machine that is not overloaded
    assert job.finish() == 75, job.text
    assert job.ended - lost < 10.0, job.text  # without a kill, h1's ssh to it would stay for the whole grace period
    assert_nothing_left(cluster.head, *(cluster[name] for name in ("h1", "h2", "h4", "h5", "h6")))


def test_a_killed_launcher(hosts: Cluster) -> None:
    job = Job(hosts.head, *WAITING)
    job.ranks(6)
    job.process.kill()
    assert job.process.wait(30) == -9
    assert_nothing_left(hosts.head, *hosts.hosts)


def test_no_key_on_any_command_line(hosts: Cluster) -> None:
    job = Job(hosts.head, *WAITING)
    job.ranks(6)
    words = {word for host in (hosts.head, *hosts.hosts) for each in host.processes() for word in each.argv}
    assert not [word for word in words if re.fullmatch(r"[0-9a-f]{32,}|[A-Za-z0-9+/]{43}=?", word)]
    job.signal(signal.SIGTERM)
    assert job.finish() == 143
    assert_nothing_left(hosts.head, *hosts.hosts)
