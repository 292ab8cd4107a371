"""kill -9 of all processes that watch a host's ranks, at the same moment. The kernel and the next agent end the
rest."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from pathlib import Path

from .jobs import LOOP, Job, agents, assert_nothing_left, end_strays, launcher, run, wait_until
from .rig import Cluster, Host, Process

LOOPING = f"{shlex.quote(sys.executable)} {shlex.quote(str(LOOP))} 1000000 0.01"
# The rank is a shell. The kernel ends the shell with its agent, but not the child of the shell.
BELOW_A_SHELL = ("sh", "-c", f"{LOOPING} & wait; true")
# The child starts a new session to hide.
HIDING = ("sh", "-c", f"setsid sleep 4321 </dev/null >/dev/null 2>&1 & exec {LOOPING}")


def kill_all(host: Host, processes: list[Process]) -> None:
    """Stops the processes before it kills them, so that none can react to the end of the other."""
    assert len(processes) == 2, processes
    for number in (signal.SIGSTOP, signal.SIGKILL):
        host.run(["kill", f"-{int(number)}", *[str(each.pid) for each in processes]], check=True)


def launcher_and_agent(host: Host) -> list[Process]:
    return [each for each in host.processes() if each.argv[0] in ("distrun", str(launcher()))]


def hidden(host: Host) -> list[Process]:
    return [each for each in host.processes() if each.argv == ("sleep", "4321")]


def cgroups_of_ranks(cluster: Cluster) -> set[Path]:
    """The groups of ranks on the cluster's hosts. os.walk skips groups that are removed at the same time."""
    if not cluster.plan.cgroup:
        return set()
    found = (Path(folder, name) for folder, names, _ in os.walk(cluster.plan.cgroup) for name in names)
    return {path for path in found if path.name.startswith("distrun-ranks-")}


def test_pkill_distrun_on_a_host_ends_its_ranks(cluster: Cluster) -> None:
    job = Job(cluster.head, "-H", "h1:1,h2:2", *HIDING)
    job.ranks(3)
    assert hidden(cluster["h2"])
    cluster["h2"].run(["pkill", "-9", "distrun"], check=True)
    assert job.finish() == 75, job.text
    assert_nothing_left(cluster.head, *cluster.hosts)


def test_pkill_distrun_on_the_head_ends_the_job(cluster: Cluster) -> None:
    job = Job(cluster.head, "-H", "head:1,h1:2", *HIDING)
    job.ranks(3)
    cluster.head.run(["pkill", "-9", "distrun"], check=True)
    assert job.process.wait(30) == -9
    assert_nothing_left(cluster.head, *cluster.hosts)


def test_agent_and_guard_killed_at_once(cluster: Cluster) -> None:
    job = Job(cluster.head, "-H", "h1:1,h2:2", *BELOW_A_SHELL)
    job.ranks(3)
    kill_all(cluster["h2"], agents(cluster["h2"]))
    assert job.finish() == 75, job.text
    assert_nothing_left(cluster.head, *cluster.hosts)


def test_launcher_and_agent_killed_at_once(cluster: Cluster) -> None:
    job = Job(cluster.head, "-np", "2", *BELOW_A_SHELL)
    job.ranks(2)
    kill_all(cluster.head, launcher_and_agent(cluster.head))
    assert job.process.wait(30) == -9
    assert_nothing_left(cluster.head)


def test_the_next_agent_ends_what_hid_from_the_last(cluster: Cluster) -> None:
    before = cgroups_of_ranks(cluster)
    job = Job(cluster.head, "-np", "2", *HIDING)
    job.ranks(2)
    made = cgroups_of_ranks(cluster) - before
    kill_all(cluster.head, launcher_and_agent(cluster.head))
    assert job.process.wait(30) == -9
    wait_until(lambda: cluster.head.strays() == hidden(cluster.head), "only what hides is left")
    assert len(hidden(cluster.head)) == 2
    if not made:  # no cgroup can be made here; docs/reference/end-of-a-job.md lists what is left in this case
        end_strays(cluster.head)
        return
    again = run(cluster.head, "-np", "1", "true")
    assert again.returncode == 0, again.stderr
    text = r"distrun has ended processes of an earlier job, whose agent was killed: pid \d"
    assert re.search(text, again.stderr), again.stderr
    assert_nothing_left(cluster.head)
    assert not cgroups_of_ranks(cluster) & made
