"""Ways by which ranks come to other hosts, besides ssh: Slurm's srun, any command, agents that dial in."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ..e2e.conftest import launcher_path
from .conftest import MakeCluster, started
from .rig import Cluster
from .slurm import Slurm, why_no_slurm

ROOT = Path(__file__).resolve().parents[2]
PI = [sys.executable, str(ROOT / "examples/numpy_pi.py")]
WHO = ["sh", "-c", "echo $DISTRUN_RANK on $(hostname)"]


@pytest.fixture(scope="module")
def slurm() -> Iterator[tuple[Cluster, Slurm]]:
    if why_no_slurm():
        pytest.skip(why_no_slurm())
    with ExitStack() as stack:
        cluster = started(stack, 2)
        yield cluster, cluster.slurm()


def lines(output: str) -> list[str]:
    return sorted(line.split("] ", 1)[1] for line in output.splitlines())


def test_an_allocation_gives_the_hosts_and_srun_the_agents(slurm: tuple[Cluster, Slurm]) -> None:
    cluster, _ = slurm
    done = cluster.head.run(["salloc", "-N2", "--ntasks-per-node=2", launcher_path(), *WHO], timeout=60)
    assert done.returncode == 0, done.stderr
    assert lines(done.stdout) == ["0 on h1", "1 on h1", "2 on h2", "3 on h2"]
    assert "found Slurm job" in done.stderr
    done = cluster.head.run(["salloc", "-N2", "--ntasks-per-node=2", launcher_path(), *PI], timeout=60)
    assert done.returncode == 0, done.stderr
    assert "4 ranks" in done.stdout


def test_a_batch_script_needs_no_ssh(slurm: tuple[Cluster, Slurm]) -> None:
    cluster, _ = slurm
    for host in cluster.hosts:
        host.run(["pkill", "-x", "sshd"])
    command = f"{launcher_path()} sh -c 'echo $DISTRUN_RANK on $(hostname) >> /proc/self/fd/1'"
    done = cluster.head.run(["salloc", "-N2", "-n2", "sh", "-c", command], timeout=60)
    assert done.returncode == 0, done.stderr
    assert lines(done.stdout) == ["0 on h1", "1 on h2"]


def test_a_failing_rank_ends_the_job_under_slurm(slurm: tuple[Cluster, Slurm]) -> None:
    cluster, _ = slurm
    script = "[ $DISTRUN_RANK = 1 ] && exit 7; sleep 1000"
    begin = time.monotonic()
    done = cluster.head.run(["salloc", "-N2", "-n2", launcher_path(), "--grace", "2", "sh", "-c", script], timeout=60)
    assert done.returncode == 7, done.stderr
    assert time.monotonic() - begin < 15
    assert [host.strays() for host in cluster.hosts] == [[], []]


def test_any_command_may_start_agents(cluster: Cluster) -> None:
    arguments = ["-np", "4", "-H", "h1:2,h2:2", "--launch-with", "ssh -T {host} {agent}"]
    done = cluster.head.run([launcher_path(), *arguments, *WHO], timeout=60)
    assert done.returncode == 0, done.stderr
    assert lines(done.stdout) == ["0 on h1", "1 on h1", "2 on h2", "3 on h2"]


def test_agents_dial_in_from_their_hosts(make_cluster: MakeCluster, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.touch(mode=0o600)
    key.write_bytes(bytes(range(32)))
    cluster = make_cluster(3, share=[tmp_path])
    agents = [
        host.popen([launcher_path(), "agent", "--connect", f"{cluster.head.address}:7000", "--key-file", str(key)])
        for host in cluster.hosts
    ]
    head = [launcher_path(), "-np", "6", "--agents", "3", "--listen", "7000", "--key-file", str(key)]
    done = cluster.head.run([*head, *PI], timeout=60)
    assert done.returncode == 0, done.stderr
    assert "6 ranks" in done.stdout
    assert [agent.wait(20) for agent in agents] == [0, 0, 0]
    assert "waiting for 3 agents" in done.stderr


def test_agents_whose_head_vanishes_end_their_ranks(make_cluster: MakeCluster, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.touch(mode=0o600)
    key.write_bytes(bytes(range(32)))
    cluster = make_cluster(2, share=[tmp_path])
    agents = [
        host.popen([launcher_path(), "agent", "--connect", f"{cluster.head.address}:7000", "--key-file", str(key)])
        for host in cluster.hosts
    ]
    head = [launcher_path(), "-np", "2", "--agents", "2", "--listen", "7000", "--key-file", str(key)]
    cluster.head.popen([*head, "sh", "-c", "sleep 1000; true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while not all(any(p.argv[:1] == ("sleep",) for p in host.processes()) for host in cluster.hosts):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    cluster.head.link_down()
    begin = time.monotonic()
    for agent in agents:
        agent.wait(30)
    assert 10 < time.monotonic() - begin < 25
    assert [host.strays() for host in cluster.hosts] == [[], []]
