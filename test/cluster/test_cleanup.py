"""A rig ends with the process that uses it, whatever way that ends, and leaves nothing. Rigs do not affect each
other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .conftest import MakeCluster
from .rig import HERE, Cluster, Unavailable, remove_old_cgroups, why_unavailable

HOSTS = str(HERE / "hosts")


def wait_until(happened: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"after {seconds} s: {what}"
        time.sleep(0.01)


def with_marker(marker: str) -> list[int]:
    """The pids on the machine with the marker in their environment."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if f"RIG_MARKER={marker}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:
                continue
    return found


def rig_processes() -> set[int]:
    """The first processes of this process's rigs and of their hosts."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if b"cluster.keeper" in (folder / "cmdline").read_bytes().split(b"\0"):
                    parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    keepers = {pid for pid, parent in parents.items() if parent == os.getpid()}
    return keepers | {pid for pid, parent in parents.items() if parent in keepers}


def machine() -> dict[str, object]:
    """The state of the machine where a rig could leave something."""
    return {
        "mounts": Path("/proc/self/mountinfo").read_text(),
        "links": sorted(os.listdir("/sys/class/net")),
        "networks": sorted(os.listdir("/run/netns")) if os.path.isdir("/run/netns") else [],
        "temporary": os.path.exists("/tmp/keys"),
    }


class Kept:
    """A separate process that has a cluster."""

    def __init__(self) -> None:
        self.marker = uuid.uuid4().hex
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "kept_cluster.py"), self.marker],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        said = self.process.stdout.readline().split()
        assert said[:1] == ["running"], "the cluster did not start"
        self.keeper, self.cgroup = int(said[1]), said[2]
        # During exec a process has no environment.
        wait_until(lambda: len(with_marker(self.marker)) >= 8, 30, "the programs do not run")

    def gone(self) -> None:
        wait_until(lambda: not with_marker(self.marker), 30, "programs are left")
        # Children of a killed test stay zombies until the machine's first process waits for them, which may take a
        # while. A pid namespace ends only after them.
        wait_until(lambda: not os.path.exists(f"/proc/{self.keeper}"), 30, "the keeper is left")
        wait_until(lambda: not os.path.exists(self.cgroup), 30, self.cgroup + " is left")


@pytest.fixture
def kept() -> Iterator[Kept]:
    if why_unavailable():
        pytest.skip(why_unavailable())
    cluster = Kept()
    yield cluster
    cluster.process.kill()
    cluster.process.communicate()


def test_nothing_is_left_when_the_test_is_killed(kept: Kept) -> None:
    before = machine()
    kept.process.kill()
    kept.process.wait()
    kept.gone()
    assert machine() == before


def test_nothing_is_left_when_the_keeper_is_killed(kept: Kept) -> None:
    os.kill(kept.keeper, signal.SIGKILL)
    kept.process.communicate(timeout=60)
    kept.gone()


def test_nothing_is_left_after_a_normal_end(make_cluster: MakeCluster) -> None:
    before, running = machine(), rig_processes()
    descriptors = len(os.listdir("/proc/self/fd"))
    cluster = make_cluster(2)
    assert cluster._keeper is not None
    keeper, cgroup = cluster._keeper.pid, cluster.plan.cgroup
    left = cluster["h1"].popen(["sleep", "1000"])
    assert rig_processes() - running
    cluster.close()
    assert left.returncode == -signal.SIGKILL
    assert rig_processes() <= running and not os.path.exists(f"/proc/{keeper}")
    assert not cgroup or not os.path.exists(cgroup)
    assert machine() == before
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_start_that_fails_leaves_nothing(make_cluster: MakeCluster) -> None:
    make_cluster(1).close()
    running = rig_processes()
    with pytest.raises(RuntimeError, match=r"the switch: .*not a valid ifname"):
        Cluster(1, interface="longer-than-names-may-be").start()
    assert rig_processes() <= running


def test_a_rig_that_starts_keeps_its_group() -> None:
    """Another rig that starts at the same time removes only the groups of dead rigs."""
    starting = Cluster(1)
    folder = Path(starting._make_cgroup())
    if starting._cgroup_lock is None:
        pytest.skip("this machine has no cgroup v2 in which groups may be made")
    (folder / "h1").mkdir()
    remove_old_cgroups(folder.parent)
    assert (folder / "h1").is_dir()
    os.close(starting._cgroup_lock)
    remove_old_cgroups(folder.parent)
    wait_until(lambda: not folder.exists(), 30, f"{folder} is left")


def test_a_shared_folder_must_be_there() -> None:
    with pytest.raises(FileNotFoundError, match="/tmp/no"):
        Cluster(1, share=["/tmp/no/such/folder"])


def test_rigs_do_not_meet(make_cluster: MakeCluster) -> None:
    """Two rigs with the same names and addresses at the same time."""
    first, second = make_cluster(2), make_cluster(2)
    first["h1"].path("/tmp/which").write_text("first")
    second["h1"].path("/tmp/which").write_text("second")
    assert first.head.run(["ssh", "h1", "cat /tmp/which"]).stdout == "first"
    assert second.head.run(["ssh", "h1", "cat /tmp/which"]).stdout == "second"
    first["h1"].kill()
    first["h2"].drop("both")
    assert second.head.run(["ssh", "h1", "cat /tmp/which"]).stdout == "second"
    assert second["h1"].run(["ssh", "h2", "hostname"]).stdout == "h2\n"


@pytest.mark.parametrize("count, seconds", [(4, 15.0), (16, 40.0)])
def test_start_is_fast(make_cluster: MakeCluster, count: int, seconds: float) -> None:
    """On a machine that is not overloaded it takes a seventh of this."""
    start = time.monotonic()
    cluster = make_cluster(count)
    assert time.monotonic() - start < seconds
    assert cluster.head.run(["ssh", f"h{count}", "hostname"]).stdout == f"h{count}\n"


def test_what_the_machine_forbids_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    if why_unavailable():
        pytest.skip(why_unavailable())

    def refuse(_: int) -> None:
        raise PermissionError(1, "unshare: Operation not permitted")

    monkeypatch.setattr("cluster.kernel.unshare", refuse)
    with pytest.raises(Unavailable, match=r"need namespaces: .*Operation not permitted"):
        Cluster(1).start()


def test_the_tool_for_people(kept: Kept) -> None:
    """The fixture `kept` skips the test if the machine cannot have rigs."""
    command = [HOSTS, "--count", "2", "--", "sh", "-c", 'ssh -n ${HOSTS#*,} hostname; cat; echo "$HOSTS $OWN"; exit 5']
    environment = {**os.environ, "OWN": "my variable"}
    done = subprocess.run(
        command, env=environment, input="typed\n", capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.returncode) == ("h2\ntyped\nh1,h2 my variable\n", 5), done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_tool_cleans_up(kept: Kept, number: signal.Signals) -> None:
    environment = {**os.environ, "RIG_MARKER": kept.marker + "-tool"}
    command = [HOSTS, "--", "sh", "-c", "sleep 1000 & echo started; wait"]
    tool = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert tool.stdout is not None and tool.stdout.readline() == "started\n"
    # The shell prints before its child has become sleep. During exec a process has no environment.
    wait_until(lambda: len(with_marker(kept.marker + "-tool")) == 3, 30, "tool, shell and sleep do not run")
    tool.send_signal(number)
    assert tool.wait(60) == 128 + number
    assert with_marker(kept.marker + "-tool") == []
    tool.stdout.close()


def test_the_tool_says_why_it_cannot(kept: Kept) -> None:
    # The user needs this capability, because Python and the tool may be in folders that only root can enter.
    nobody = [
        "setpriv",
        "--reuid=nobody",
        "--clear-groups",
        *(f"--{kind}-caps=+dac_read_search" for kind in ("inh", "ambient")),
    ]
    command = [*nobody, sys.executable, HOSTS, "--", "true"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 69 and "need root" in done.stderr
