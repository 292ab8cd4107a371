"""Slurm runs on hosts in a box."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from .conftest import started
from .jobs import assert_nothing_left
from .plan import Setup, host_plans
from .rig import HERE, Cluster
from .slurm import Slurm, slurm_conf, why_no_slurm
from .test_mpi import OPEN_MPI, need

EACH = ["sh", "-c", "echo $SLURM_PROCID $(hostname)"]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Slurm, Path]]:
    """Four nodes with two CPUs each and a shared folder."""
    if why_no_slurm():
        pytest.skip(why_no_slurm())
    folder = tmp_path_factory.mktemp("shared")
    with ExitStack() as stack:
        cluster = started(stack, 4, share=[folder])
        yield cluster, cluster.slurm(), folder


def test_configuration_names_the_nodes_by_address() -> None:
    *hosts, head = host_plans(2, Setup(), {})
    text = slurm_conf(head, hosts, cpus=8, node_timeout=30)
    assert "SlurmctldHost=head(10.99.0.254)\n" in text and "SlurmdTimeout=30\n" in text
    assert "NodeName=h2 NodeAddr=10.99.0.2 CPUs=8 State=UNKNOWN\n" in text


def test_srun_starts_tasks_on_every_node(nodes: tuple[Cluster, Slurm, Path]) -> None:
    cluster, slurm, _ = nodes
    assert slurm.states() == {"h1": "idle", "h2": "idle", "h3": "idle", "h4": "idle"}
    done = cluster.head.run(["srun", "-N4", "-n8", *EACH], check=True)
    assert sorted(done.stdout.splitlines()) == [f"{rank} h{rank // 2 + 1}" for rank in range(8)]
    assert cluster.head.run(["srun", "-N2", "sh", "-c", "exit 42"]).returncode == 42
    assert_nothing_left(*cluster.hosts)


def test_salloc_describes_its_nodes(nodes: tuple[Cluster, Slurm, Path]) -> None:
    cluster, _, _ = nodes
    show = ["sh", "-c", 'echo "$SLURM_JOB_NODELIST $SLURM_TASKS_PER_NODE"; srun hostname']
    done = cluster.head.run(["salloc", "-N3", "-n5", *show], check=True)
    first, *names = done.stdout.splitlines()
    assert first == "h[1-3] 2(x2),1" and sorted(names) == ["h1", "h1", "h2", "h2", "h3"]


def test_sbatch_runs_on_the_first_node(nodes: tuple[Cluster, Slurm, Path]) -> None:
    cluster, slurm, folder = nodes
    script = folder / "job.sh"
    script.write_text("#!/bin/sh\nhostname\nsrun hostname\n")
    cluster.head.run(["sbatch", "--wait", "-N2", f"--output={folder}/out", script], check=True)
    assert sorted((folder / "out").read_text().split()) == ["h1", "h1", "h2"]
    slurm.wait_idle()


@pytest.mark.parametrize("how", ["mpirun", "srun"])
def test_mpi_inside_an_allocation(nodes: tuple[Cluster, Slurm, Path], how: str) -> None:
    need("mpicc.openmpi", "libopenmpi-dev")
    cluster, _, folder = nodes
    if how == "srun" and "pmix" not in cluster.head.run(["srun", "--mpi=list"]).stdout:
        pytest.skip("this Slurm has no PMIx")
    program = folder / "allreduce"
    subprocess.run([shutil.which("mpicc.openmpi") or "", HERE / "allreduce.c", "-o", program], check=True)
    inside = ["salloc", "-N2", "-n4", "mpirun.openmpi"] if how == "mpirun" else ["srun", "--mpi=pmix", "-N2", "-n4"]
    done = cluster.head.run([*inside, program], env=OPEN_MPI, check=True)
    assert sorted(done.stdout.splitlines()) == ["0/4 6 h1", "1/4 6 h1", "2/4 6 h2", "3/4 6 h2"]


def test_the_tool_starts_slurm(nodes: tuple[Cluster, Slurm, Path]) -> None:
    """Beside the running cluster, because two Slurms must not affect each other."""
    command = [str(HERE / "hosts"), "--slurm", "--", "srun", "-N2", "-n2", "hostname"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert (sorted(done.stdout.split()), done.returncode) == (["h1", "h2"], 0), done.stderr
