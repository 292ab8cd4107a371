"""Debian's MPI launchers start ranks on hosts in a box, over the rig's ssh."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import open_mpi
import pytest

from .conftest import started
from .rig import HERE, Cluster

OPEN_MPI = open_mpi.AS_ROOT
LAUNCHERS = {
    "mpirun.openmpi": ["mpirun.openmpi", "-np", "4", "-H", "h1:2,h2:2"],
    "mpiexec.hydra": ["mpiexec.hydra", "-n", "4", "-hosts", "h1:2,h2:2"],
}
RANK = "${OMPI_COMM_WORLD_RANK-$PMI_RANK}"


def need(program: str, package: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"needs the package {package}")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Path]]:
    """Two hosts and a folder that they share."""
    folder = tmp_path_factory.mktemp("shared")
    with ExitStack() as stack:
        yield started(stack, 2, share=[folder]), folder


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_ranks_start_on_every_host(pair: tuple[Cluster, Path], launcher: str) -> None:
    need(launcher, "openmpi-bin" if "openmpi" in launcher else "mpich")
    cluster, _ = pair
    done = cluster.head.run([*LAUNCHERS[launcher], "sh", "-c", f"echo {RANK} $(hostname)"], env=OPEN_MPI, check=True)
    assert sorted(done.stdout.splitlines()) == ["0 h1", "1 h1", "2 h2", "3 h2"]
    failed = cluster.head.run([*LAUNCHERS[launcher], "sh", "-c", f"[ {RANK} != 3 ] || exit 42"], env=OPEN_MPI)
    assert failed.returncode == 42


def test_an_mpi_program_spans_hosts(pair: tuple[Cluster, Path]) -> None:
    need("mpicc.openmpi", "libopenmpi-dev")
    cluster, folder = pair
    subprocess.run(["mpicc.openmpi", HERE / "allreduce.c", "-o", folder / "allreduce"], check=True)
    done = cluster.head.run([*LAUNCHERS["mpirun.openmpi"], folder / "allreduce"], env=OPEN_MPI, check=True)
    assert sorted(done.stdout.splitlines()) == ["0/4 6 h1", "1/4 6 h1", "2/4 6 h2", "3/4 6 h2"]


def test_mpicc_is_still_open_mpi_s() -> None:
    """The backend `mpi` is built with it. MPICH is installed only for its launcher."""
    need("mpicc", "libopenmpi-dev")
    assert (
        "Open MPI" in subprocess.run(["mpicc", "--showme:version"], capture_output=True, text=True, check=True).stdout
    )
