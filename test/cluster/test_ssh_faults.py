"""Failures in the middle of a job on several hosts. The job notices them in time, names them, and leaves nothing."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from cgroups import limited_memory

from .conftest import started
from .jobs import LOOP, Job, agents, assert_nothing_left, end_strays, package_folders, wait_until
from .rig import ROOT, Cluster, Host, Process

PYTHON = sys.executable
HOST_TIMEOUT = ("--host-timeout", "5")  # seconds; the default is 30
NOTICED = 10.0  # seconds until a silent host is lost; 6 on a machine that is not overloaded
LEASE = 15.0  # seconds that ranks may outlive their host's network; 5 on a machine that is not overloaded
RAISED = r"raised (\d+) (\w+) ranks=\[(.*?)\] host=(\S*) cause=(.*) seconds=([\d.]+)"
# Each rank has a grandchild in a new session.
HIDING = (
    "sh",
    "-c",
    'setsid sleep 1000 </dev/null >/dev/null 2>&1 & exec "$@"',
    "sh",
    PYTHON,
    str(LOOP),
    "1000000",
    "0.01",
)


def start(head: Host, hosts: str, *options: str) -> Job:
    return Job(head, "-H", hosts, *options, *HIDING)


def guard_of(host: Host) -> Process:
    both = agents(host)
    return next(each for each in both if each.parent not in [other.pid for other in both])


def agent_of(host: Host) -> Process:
    both = agents(host)
    return next(each for each in both if each.parent in [other.pid for other in both])


def kill(host: Host, process: Process, number: int = signal.SIGKILL) -> None:
    host.run(["kill", f"-{int(number)}", str(process.pid)], check=True)


def pid_there(host: Host, rank: int) -> Process:
    """The process of a rank, found by its environment."""
    for each in host.processes():
        try:
            variables = host.path(f"/proc/{each.pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"DISTRUN_RANK={rank}".encode() in variables and str(LOOP) in each.argv and each.argv[0] != "sh":
            return each
    raise AssertionError(f"rank {rank} does not run on {host.name}")


def assert_reported(job: Job, survivors: set[int], lost: list[int], host: str, seconds: float) -> None:
    raised = {int(match[1]): match for _, match in job.found(RAISED)}
    assert set(raised) == survivors, job.text
    for match in raised.values():
        assert match[2] == "RankLost" and match[4] == host, job.text
        assert set(map(int, match[3].split(", "))) & set(lost), job.text
        assert float(match[6]) < seconds, job.text


def test_a_killed_rank(cluster: Cluster) -> None:
    job = start(cluster.head, "h1:2,h2:2")
    job.ranks(4)
    kill(cluster["h2"], pid_there(cluster["h2"], 3))
    assert job.finish() == 137, job.text
    assert_reported(job, {0, 1, 2}, [3], "h2", 2.0)
    assert re.search(r"rank 3 on host h2 \(pid \d+\) was killed by signal 9 \(SIGKILL\)", job.text), job.text
    assert_nothing_left(cluster.head, *cluster.hosts)


def sshd_session(host: Host) -> Process:
    titles = ("sshd: root", "sshd-session: root")  # the second one from OpenSSH 9.8 on
    return next(each for each in host.processes() if each.argv[0].startswith(titles))


def ssh_to(host: str) -> Callable[[Host], Process]:
    return lambda head: next(each for each in head.processes() if each.argv[0] == "ssh" and host in each.argv)


@pytest.mark.parametrize(
    "where, victim, text",
    [
        ("h2", agent_of, "its agent was killed by signal 9"),
        ("h2", guard_of, ""),
        ("h2", sshd_session, "closed by"),
        ("head", ssh_to("h2"), "what carries its agent was killed by signal 9"),
    ],
    ids=["agent", "guard", "sshd", "ssh"],
)
def test_a_broken_chain_to_the_ranks(
    cluster: Cluster, where: str, victim: Callable[[Host], Process], text: str
) -> None:
    job = start(cluster.head, "h1:1,h2:2")
    job.ranks(3)
    kill(cluster[where], victim(cluster[where]))
    assert job.finish() == 75, job.text
    [first, *_] = [line for _, line in job.lines if not line.startswith("[")]
    assert first.startswith("distrun: host h2 is lost: ") and text in first, job.text
    assert first.endswith((".", "?")), job.text
    assert "  Ranks 1-2 ran there. This ended the job; exit code 75." in job.text, job.text
    assert_reported(job, {0}, [1, 2], "h2", 2.0)
    assert_nothing_left(cluster.head, *cluster.hosts)


# Stays for a while after it has got the error.
LINGERING = """
import time, numpy, distrun, distrun.numpy as hvd
hvd.init()
print("ready", hvd.rank(), 0, flush=True)
try:
    while True: hvd.allreduce(numpy.ones(1), name="x")
except distrun.DistrunError:
    time.sleep(2)
"""


def test_the_ranks_of_a_lost_host_have_not_lost_their_connections_only(cluster: Cluster) -> None:
    job = Job(cluster.head, "-H", "h1:1,h2:2", PYTHON, "-c", LINGERING)
    job.ranks(3)
    kill(cluster["h2"], guard_of(cluster["h2"]))
    assert job.finish() == 75, job.text
    assert "host h2 is lost" in job.text and "connection of rank" not in job.text, job.text
    assert "lost its connection to the launcher" not in job.text, job.text
    assert_nothing_left(cluster.head, *cluster.hosts)


def test_a_killed_launcher(cluster: Cluster) -> None:
    job = start(cluster.head, "head:1,h1:1,h2:2")
    job.ranks(4)
    job.process.kill()
    assert job.process.wait(30) == -9
    assert_nothing_left(cluster.head, *cluster.hosts)


def test_ctrl_c(cluster: Cluster) -> None:
    job = start(cluster.head, "head:1,h1:1,h2:2")
    job.ranks(4)
    before = time.monotonic()
    job.signal(signal.SIGINT)
    assert job.finish() == 130, job.text
    assert job.ended - before < 8 and "interrupted; ranks get INT" in job.text
    assert_nothing_left(cluster.head, *cluster.hosts)


def test_ctrl_c_twice(cluster: Cluster) -> None:
    stubborn = "trap '' INT TERM; echo ready $RANK $$; sleep 1000 & wait; wait; sleep 1000"
    job = Job(cluster.head, "-H", "h1:1,h2:1", "--grace", "60", "sh", "-c", stubborn)
    job.ranks(2)
    job.signal(signal.SIGINT)
    job.wait_for("interrupted")
    time.sleep(0.3)  # less than 250 ms apart they are one
    job.signal(signal.SIGINT)
    assert job.finish(30) == 130, job.text  # well within the grace period
    assert_nothing_left(cluster.head, *cluster.hosts)


def test_a_stopped_agent_and_two_signals(cluster: Cluster) -> None:
    job = start(cluster.head, "h1:1,h2:2", "--grace", "60")
    job.ranks(3)
    kill(cluster["h2"], agent_of(cluster["h2"]), signal.SIGSTOP)
    job.signal(signal.SIGTERM)
    job.wait_for("distrun got SIGTERM")
    time.sleep(1.1)  # an earlier signal counts as the same request
    job.signal(signal.SIGTERM)
    assert job.finish(30) == 143, job.text  # well within the grace period
    assert_nothing_left(cluster.head, *cluster.hosts)


def test_a_stopped_guard(cluster: Cluster) -> None:
    job = Job(cluster.head, "-H", "h1:1,h2:1", "sh", "-c", "echo ready $RANK $$; sleep 1.5")
    job.ranks(2)
    guard = guard_of(cluster["h2"])
    kill(cluster["h2"], guard, signal.SIGSTOP)
    assert job.finish() == 0, job.text
    kill(cluster["h2"], guard, signal.SIGCONT)
    assert_nothing_left(cluster.head, *cluster.hosts)


def test_six_seconds_of_silence_are_two_lines(cluster: Cluster) -> None:
    """A live migration or a converging switch takes as long. With the default limit the job goes on."""
    job = Job(cluster.head, "-H", "h1:1,h2:2", PYTHON, LOOP, "1000", "0.01")
    job.ranks(3)
    cluster["h2"].drop("both")
    time.sleep(6)
    cluster["h2"].heal()
    assert job.finish(120) == 0, job.text
    assert len(job.found(r"done \d")) == 3, job.text
    warnings = [line for _, line in job.lines if not line.startswith("[")]
    assert warnings[0] == "distrun: host h2 has been silent for 3.5 s; it is given up after 30 s (--host-timeout)", (
        job.text
    )
    assert re.fullmatch(r"distrun: host h2 is back after \d+ s", warnings[1]) and len(warnings) == 2, job.text
    assert_nothing_left(cluster.head, *cluster.hosts)


@pytest.mark.parametrize("victims", [("h2", "h3", "h4"), ("h1", "h2", "h3", "h4")], ids=["three", "all"])
def test_several_hosts_that_vanish_together(cluster: Cluster, victims: tuple[str, ...]) -> None:
    """One line names all of them. If no other host is left, the cause is the launcher's own network."""
    report = cluster.head.path("/tmp/report.json")
    job = start(cluster.head, "h1:1,h2:1,h3:1,h4:1", *HOST_TIMEOUT, "--report", "/tmp/report.json")
    job.ranks(4)
    for name in victims:
        cluster[name].drop("both")
    assert job.finish() == 75, job.text
    failure = json.loads(report.read_text())
    report.unlink()
    warnings = [line for _, line in job.lines if line.startswith("distrun: ")]
    assert len([line for line in warnings if "silent for 3.5 s" in line]) == 1, job.text
    [cause] = [line.removeprefix("distrun: ") for line in warnings if "nothing has come" in line]
    if len(victims) < 4:
        text = "hosts h2 to h4 are silent (3 of 4): nothing has come from there for 5 s"
        assert cause == f"{text}.", job.text
        assert "  Ranks 1-3 ran there. This ended the job; exit code 75.\n" in job.text, job.text
        assert (failure["host"], failure["hosts"]) == (None, list(victims)) and failure["cause"]["kind"] == "host_lost"
    else:
        text = "this machine's own network is gone: nothing has come from any other host for 5 s"
        assert cause == f"{text}.", job.text
        assert "  Ranks 0-3 ran there. This ended the job; exit code 75.\n" in job.text, job.text
        assert (failure["host"], failure["hosts"]) == (None, list(victims))
        assert failure["cause"]["kind"] == "own_network" and failure["cure"], failure
    assert failure["cause"]["text"] == text
    for name in victims:
        wait_until(lambda name=name: not cluster[name].strays(), f"{name} has ended its ranks")  # type: ignore[misc]
        cluster[name].heal()
    assert_nothing_left(cluster.head, *cluster.hosts)


def test_a_line_that_loses_packets(cluster: Cluster) -> None:
    """5 % in each direction: all data arrive, and the host is not taken for lost."""
    cluster["h2"].loss(5)
    job = Job(cluster.head, "-H", "h1:2,h2:2", PYTHON, LOOP, "24", "0.01")
    assert job.finish(90) == 0, job.text
    cluster["h2"].heal()
    assert len(job.found(r"done \d")) == 4 and "lost" not in job.text, job.text
    assert_nothing_left(cluster.head, *cluster.hosts)


# The slow tests run at the same time, each on different hosts.


@dataclass
class Storm:
    cluster: Cluster
    jobs: dict[str, Job]  # fault to its job
    struck: dict[str, float]  # fault to the time at which it began
    resumed: float


def freeze_and_cut(host: Host) -> None:
    kill(host, agent_of(host), signal.SIGSTOP)
    host.link_down()


VICTIMS = {"power": "h2", "cable": "h4", "deaf": "h6", "mute": "h8", "frozen": "h12", "frozen and cut": "h14"}
FAULTS: dict[str, Callable[[Host], None]] = {
    "power": lambda host: host.kill(),
    "cable": lambda host: host.link_down(),
    "deaf": lambda host: host.drop("in"),
    "mute": lambda host: host.drop("out"),
    "frozen": lambda host: kill(host, agent_of(host), signal.SIGSTOP),
    "frozen and cut": freeze_and_cut,
}


def partner_of(victim: str) -> str:
    return f"h{int(victim[1:]) - 1}"


STOPPED = 20.0  # seconds; longer than a lease
SUSPENDED = {"h17": ("head", "host"), "h18": ("host", "head")}  # host to the order of the sides that go on
OVERSLEPT = {"h19": ("head", "host"), "h20": ("host", "head")}  # the same, but for longer than the lease
AWAY = 17.0  # seconds; also longer than a lease. Afterwards a connection retries within about the same time again


def signal_side(job: Job, host: Host, side: str, number: int) -> None:
    """A batch system suspends a job in this way: it stops each process that it finds on each machine of the job."""
    if side == "head":
        return job.signal(number)
    for process in (guard_of(host), agent_of(host), *(pid_there(host, rank) for rank in (0, 1))):
        kill(host, process, number)


def wake(job: Job, host: Host, side: str) -> None:
    """A process that has slept for too long may have ended before it is woken."""
    if side == "head":
        return job.signal(signal.SIGCONT)
    stopped = [str(each.pid) for each in host.processes() if each.parent]
    host.run(["sh", "-c", f"kill -CONT {' '.join(stopped)} 2>/dev/null; true"])


# Job to its hosts and options.
PATIENT = ("--host-timeout", "120")
PAUSED = {
    "away": ("h15:1,h16:2", PATIENT),
    "stopped": ("h1:1,h3:1", HOST_TIMEOUT),
    **{host: (f"{host}:2", PATIENT) for host in SUSPENDED},
    **{host: (f"{host}:2", HOST_TIMEOUT) for host in OVERSLEPT},
}


def pause(name: str, job: Job, cluster: Cluster) -> None:
    if name == "away":
        return cluster["h16"].link_down()
    if name == "stopped":
        return job.signal(signal.SIGTSTP)
    for side in ("head", "host"):
        signal_side(job, cluster[name], side, signal.SIGSTOP)


@pytest.fixture(scope="module")
def storm() -> Iterator[Storm]:
    with ExitStack() as stack:
        cluster = started(stack, 20, share=package_folders())
        head = cluster.head
        jobs = {
            fault: start(head, f"{partner_of(victim)}:1,{victim}:2", *HOST_TIMEOUT) for fault, victim in VICTIMS.items()
        }
        jobs["head"] = start(cluster["h9"], "h9:1,h10:2", *HOST_TIMEOUT)
        for job in jobs.values():
            job.wait_for("ready", 3)
        struck = {}
        # These jobs go on and end, so each one is paused directly after its start.
        for name, (hosts, options) in PAUSED.items():
            jobs[name] = Job(head, *options, "-H", hosts, PYTHON, LOOP, "1000", "0.01", job_control=name == "stopped")
            jobs[name].wait_for("ready", 3 if name == "away" else 2)
            pause(name, jobs[name], cluster)
            struck[name] = time.monotonic()
        for fault, strike in FAULTS.items():
            strike(cluster[VICTIMS[fault]])
            struck[fault] = time.monotonic()
        cluster["h9"].link_down()
        struck["head"] = time.monotonic()
        yield Storm(cluster, jobs, struck, 0.0)
        for host in [*cluster.hosts, head]:
            if host.alive:
                end_strays(host)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_host_that_vanishes(storm: Storm, fault: str) -> None:
    job, victim = storm.jobs[fault], VICTIMS[fault]
    assert job.finish() == 75, job.text
    # A rank on the other host may miss its connection first and end. What it started is then reported between these.
    [(_, silent), (when, lost), *_] = [(when, line) for when, line in job.lines if line.startswith("distrun: host ")]
    expected = f"host {victim} has been silent for 3.5 s; it is given up after 5 s (--host-timeout)"
    assert silent == f"distrun: {expected}", job.text
    # The guard of a stopped agent acts a moment before the launcher.
    expected = rf"host {victim} is lost: nothing has come from there for [45] s\."
    assert re.fullmatch(f"distrun: {expected}", lost), job.text
    assert when - storm.struck[fault] < NOTICED, job.text
    assert job.ended - storm.struck[fault] < NOTICED + 3
    assert_reported(job, {0}, [1, 2], victim, NOTICED + 1)
    if fault not in ("power", "cable"):  # a second job runs on the other hosts of these faults
        assert_nothing_left(storm.cluster[partner_of(victim)])


def test_a_head_without_network(storm: Storm) -> None:
    """The launcher notices it, and so do the agents that it cannot reach any more."""
    job = storm.jobs["head"]
    assert job.finish() == 75, job.text
    assert "this machine's own network is gone" in job.text and "host h10 is lost" not in job.text, job.text
    assert_nothing_left(storm.cluster["h9"])
    left = LEASE - (time.monotonic() - storm.struck["head"])
    assert_nothing_left(storm.cluster["h10"], seconds=max(0.1, left))


@pytest.mark.parametrize("fault", ["cable", "deaf", "mute", "frozen", "frozen and cut"])
def test_a_host_without_network_ends_its_ranks(storm: Storm, fault: str) -> None:
    left = LEASE - (time.monotonic() - storm.struck[fault])
    assert_nothing_left(storm.cluster[VICTIMS[fault]], seconds=max(0.1, left))


def test_a_network_that_is_away_for_less_than_host_timeout(storm: Storm) -> None:
    job, hosts = storm.jobs["away"], [storm.cluster["h15"], storm.cluster["h16"]]
    time.sleep(max(0.0, storm.struck["away"] + AWAY - time.monotonic()))
    assert not job.found("done") and "lost" not in job.text, job.text
    hosts[1].link_up()
    assert job.finish(90) == 0, job.text
    assert len(job.found(r"done \d")) == 3 and "lost" not in job.text, job.text
    assert len(job.found("host h16 has been silent for 3.5 s; it is given up after 120 s")) == 1, job.text
    assert len(job.found(r"host h16 is back after \d+ s")) == 1, job.text
    assert_nothing_left(*hosts)


@pytest.mark.parametrize("host", SUSPENDED)
def test_a_suspend_of_the_whole_job_for_less_than_host_timeout(storm: Storm, host: str) -> None:
    """The machines go on one after the other."""
    job = storm.jobs[host]
    time.sleep(max(0.0, storm.struck[host] + AWAY - time.monotonic()))
    for side in SUSPENDED[host]:
        signal_side(job, storm.cluster[host], side, signal.SIGCONT)
        time.sleep(0.5)
    assert job.finish() == 0, job.text
    assert len(job.found(r"done \d")) == 2 and "lost" not in job.text, job.text
    assert_nothing_left(storm.cluster[host])


@pytest.mark.parametrize("host", OVERSLEPT)
def test_a_suspend_of_the_whole_job_for_longer_than_a_lease(storm: Storm, host: str) -> None:
    """Other work may have been started on the hosts since then, so no rank goes on."""
    job = storm.jobs[host]
    time.sleep(max(0.0, storm.struck[host] + AWAY - time.monotonic()))
    for side in OVERSLEPT[host]:
        wake(job, storm.cluster[host], side)
        time.sleep(0.5)
    assert job.finish() == 75, job.text
    assert not job.found("done"), job.text
    [line] = [line for _, line in job.lines if line.startswith(f"distrun: host {host} ")]
    assert "has heard nothing from the launcher for 5 s" in line or "its ranks have been ended there" in line, job.text
    assert_nothing_left(storm.cluster[host])


def test_ctrl_z_for_longer_than_a_lease(storm: Storm) -> None:
    job = storm.jobs["stopped"]
    time.sleep(max(0.0, storm.struck["stopped"] + STOPPED - time.monotonic()))
    assert not job.found("done"), job.text
    job.signal(signal.SIGCONT)
    assert job.finish() == 0, job.text
    assert len(job.found(r"done \d")) == 2, job.text
    assert_nothing_left(storm.cluster.head, storm.cluster["h1"], storm.cluster["h3"])


def test_memory_that_runs_out_on_another_host(cluster: Cluster) -> None:
    """The agent on that host runs in a cgroup with a limit, and so do its ranks."""
    with limited_memory(64 << 20) as group:
        carrier = f"ssh -T {{host}} echo 0 '>' {group}/cgroup.procs '&&' {{agent}}"
        hungry = "import os; x = bytearray(256 << 20 if os.environ['RANK'] == '2' else 1); import time; time.sleep(100)"
        options = ("-H", "h1:2,h2:1", "--grace", "1", "--launch-with", carrier)
        job = Job(cluster.head, *options, PYTHON, "-c", hungry)
        assert job.finish() == 137, job.text
    assert re.search(r"rank 2 on host h2 \(pid \d+\) was killed by signal 9 \(SIGKILL\).*OOM", job.text), job.text
    assert_nothing_left(cluster.head, *cluster.hosts)


@pytest.mark.parametrize("ranks", ["h1:1,h2:1", "h1:2,h2:2"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_notice_at_one_rank_stops_all_at_the_same_step(cluster: Cluster, ranks: str, number: int) -> None:
    size = 2 if ranks == "h1:1,h2:1" else 4
    job = Job(cluster.head, "-H", ranks, PYTHON, ROOT / "test/e2e/programs/steps.py", "0.002", "free")
    pids = job.ranks(size)
    cluster["h2"].run(["kill", f"-{int(number)}", str(pids[size - 1])], check=True)
    assert job.finish() == 0, job.text
    steps = {match[2] for _, match in job.found(r"stopped (\d+) (\d+)")}
    assert len(job.found("stopped")) == size and len(steps) == 1, job.text


def test_a_notice_at_all_hosts_ends_ranks_that_do_not_use_distrun_once(cluster: Cluster) -> None:
    saves = "trap 'sleep 1; echo saved; exit 0' TERM; echo ready $RANK $$; while :; do sleep 0.1; done"
    job = Job(cluster.head, "-H", "h1:1,h2:1", "--preempt-signal", "TERM", "sh", "-c", saves)
    job.ranks(2)
    for host in (cluster["h1"], cluster["h2"]):
        host.run(["kill", *[str(each.pid) for each in agents(host)]], check=True)
    job.signal(signal.SIGTERM)
    assert job.finish() == 143, job.text
    assert len(job.found("saved")) == 2, job.text


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_notice_at_every_process_of_a_host(cluster: Cluster, number: signal.Signals) -> None:
    """A batch system gives the notice to the agent and its guard too."""
    job = Job(cluster.head, "-H", "h1:1,h2:2", "--preempt-signal", number.name.removeprefix("SIG"), PYTHON,
              ROOT / "test/e2e/programs/steps.py", "0.002")  # fmt: skip
    pids = job.ranks(3)
    everybody = [str(each.pid) for each in agents(cluster["h2"])] + [str(pids[1]), str(pids[2])]
    cluster["h2"].run(["kill", f"-{int(number)}", *everybody], check=True)
    assert job.finish() == 0, job.text
    steps = {match[2] for _, match in job.found(r"stopped (\d+) (\d+)")}
    assert len(job.found("stopped")) == 3 and len(steps) == 1, job.text
    assert "all ranks are to stop at the same step" in job.text
