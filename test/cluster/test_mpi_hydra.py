"""`distrun --mpi=hydra`: mpiexec of MPICH starts the ranks. It passes its standard input to rank 0 only."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from .conftest import started
from .jobs import Job, assert_nothing_left, job_environment, package_folders, wait_until
from .rig import Cluster, Host
from .test_mpi import need
from .test_mpi_mode import HOSTS, MPI4PY, kill, run, untagged, waits_for_a_late_host

LIBRARY = Path(f"/usr/lib/{os.uname().machine}-linux-gnu/libmpich.so.12")
WAITING = ("sh", "-c", "echo ready $DISTRUN_RANK $$; exec sleep 1000")
# Across hosts, MPICH 4.0.2 hangs in MPI_Finalize in one of five runs, with mpiexec alone as well.
NO_FINALIZE = """
import os, platform
from mpi4py import MPI
world = MPI.COMM_WORLD
print(f"{world.rank}/{world.size} {world.allreduce(world.rank)} {platform.node()}", flush=True)
os._exit(0)
"""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Path]]:
    """Two hosts with a shared folder. It has MPICH's library under the name that mpi4py looks for."""
    need("mpiexec.hydra", "mpich")
    folder = tmp_path_factory.mktemp("shared")
    (folder / "libmpi.so.12").symlink_to(LIBRARY)
    with ExitStack() as stack:
        yield started(stack, 2, share=[folder, *package_folders()]), folder


def with_mpich(folder: Path) -> list[str]:
    if importlib.util.find_spec("mpi4py") is None or not LIBRARY.exists():
        pytest.skip(f"needs mpi4py and {LIBRARY}")
    return ["-x", "MPI4PY_MPIABI=mpich", "-x", f"LD_LIBRARY_PATH={folder}"]


def assert_all_ended(cluster: Cluster) -> None:
    def idle(host: Host) -> bool:
        return not any(Path(each.argv[0]).name in ("mpiexec.hydra", "distrun") for each in host.processes())

    wait_until(lambda: idle(cluster.head), "the head is idle")
    assert_nothing_left(*cluster.hosts, seconds=15)


def test_ranks_are_where_the_plan_has_them(pair: tuple[Cluster, Path]) -> None:
    cluster, _ = pair
    done = run(cluster.head, "--mpi=hydra", *HOSTS, "sh", "-c", "echo $DISTRUN_RANK $PMI_RANK $LOCAL_RANK $(hostname)")
    assert done.returncode == 0, done.stderr
    assert untagged(done.stdout) == ["0 0 0 h1", "1 1 1 h1", "2 2 0 h2", "3 3 1 h2"]
    assert_all_ended(cluster)


def test_mpi_works_across_hosts(pair: tuple[Cluster, Path]) -> None:
    cluster, folder = pair
    done = run(cluster.head, "--mpi=hydra", *with_mpich(folder), *HOSTS, sys.executable, "-c", NO_FINALIZE)
    assert done.returncode == 0, done.stderr
    assert untagged(done.stdout) == ["0/4 6 h1", "1/4 6 h1", "2/4 6 h2", "3/4 6 h2"]
    assert_all_ended(cluster)


@pytest.mark.parametrize(("ranks", "lines"), [(1, ["0/1 0 h1"]), (2, ["0/2 1 h1", "1/2 1 h1"])])
def test_an_unmodified_mpi4py_script(pair: tuple[Cluster, Path], ranks: int, lines: list[str]) -> None:
    cluster, folder = pair
    done = run(cluster.head, "--mpi=hydra", *with_mpich(folder), "-H", f"h1:{ranks}", *MPI4PY)
    assert done.returncode == 0, done.stderr
    assert untagged(done.stdout) == lines
    assert_all_ended(cluster)


def test_a_host_that_is_unknown_is_told_soon(pair: tuple[Cluster, Path]) -> None:
    cluster, _ = pair
    before = time.monotonic()
    done = run(cluster.head, "--mpi=hydra", "-np", "2", "-H", "h1:1,nosuch:1", "hostname")
    assert done.returncode == 69, done.stderr
    assert "it cannot reach a host" in done.stderr and "Could not resolve hostname nosuch" in done.stderr, done.stderr
    assert time.monotonic() - before < 20
    assert_all_ended(cluster)


def test_a_host_that_comes_late_is_waited_for(pair: tuple[Cluster, Path]) -> None:
    cluster, _ = pair
    waits_for_a_late_host(cluster, "--mpi=hydra")
    assert_all_ended(cluster)


@pytest.mark.parametrize(("ends", "code"), [("exit 7", 7), ("kill -9 $$", 137)])
def test_a_failing_rank_ends_the_job(pair: tuple[Cluster, Path], ends: str, code: int) -> None:
    cluster, _ = pair
    done = run(cluster.head, "--mpi=hydra", *HOSTS, "sh", "-c", f"[ $DISTRUN_RANK = 2 ] && {ends}; sleep 1000")
    assert done.returncode == code, done.stderr
    assert "rank 2" in done.stderr
    assert_all_ended(cluster)


def test_the_key_is_on_no_command_line_and_ctrl_c_ends_everything(pair: tuple[Cluster, Path]) -> None:
    cluster, _ = pair
    job = Job(cluster.head, "--mpi=hydra", *HOSTS, *WAITING)
    job.ranks(4)
    words = [word for host in (cluster.head, *cluster.hosts) for each in host.processes() for word in each.argv]
    assert "--key-by-pmi" in words and not any(re.search("[0-9a-f]{64}", word) for word in words)
    job.signal(2)
    assert job.finish() == 130, job.text
    assert_all_ended(cluster)


def test_standard_input_reaches_rank_0(pair: tuple[Cluster, Path]) -> None:
    words = ["distrun", "--mpi=hydra", *HOSTS, "sh", "-c", "[ $DISTRUN_RANK != 0 ] || cat"]
    done = pair[0].head.run(words, env=job_environment(), input="hello\n")
    assert (done.returncode, done.stdout) == (0, "[0] hello\n"), done.stderr


@pytest.mark.parametrize(
    ("where", "program", "named"),
    [
        (
            "head",
            "mpiexec.hydra",
            r"distrun: mpiexec.hydra \(pid \d+\) was killed by signal 9 \(SIGKILL\) on host head",
        ),
        ("h2", "hydra_pmi_proxy", r"hydra_pmi_proxy \(pid \d+\) on host h2 has ended while rank [23] ran below it"),
        ("h2", "agent --mpi", r"distrun's wrapper \(pid \d+\) on host h2 has ended while rank [23] ran below it"),
    ],
    ids=["mpiexec", "proxy", "wrapper"],
)
def test_the_report_names_the_part_that_was_killed(
    pair: tuple[Cluster, Path], where: str, program: str, named: str
) -> None:
    cluster, _ = pair
    job = Job(cluster.head, "--mpi=hydra", *HOSTS, *WAITING)
    job.ranks(4)
    kill(cluster.head if where == "head" else cluster[where], program)
    assert job.finish() == 75, job.text
    assert job.found(named) and "is lost" not in job.text, job.text
    assert_all_ended(cluster)
