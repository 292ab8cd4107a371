"""Ranks that mpirun, mpiexec or srun started without distrun. init() finds the world from their variables."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from .conftest import started
from .jobs import EXAMPLES, PROGRAMS, assert_nothing_left, job_environment, package_folders
from .rig import Cluster, Host
from .slurm import why_no_slurm
from .test_mpi import LAUNCHERS, OPEN_MPI, need

DIGITS = [sys.executable, str(EXAMPLES / "pytorch_digits.py"), "--epochs", "8"]
SETS = [sys.executable, str(PROGRAMS / "sets.py")]
WORLD = [sys.executable, str(PROGRAMS / "world.py")]
SLURM = ["-N2", "-n4"]
WAYS = {
    "mpirun": LAUNCHERS["mpirun.openmpi"],
    "hydra": LAUNCHERS["mpiexec.hydra"],
    "pmi2": ["srun", "--mpi=pmi2", *SLURM],
    "pmix": ["srun", "--mpi=pmix", *SLURM],
}


@pytest.fixture(scope="module")
def pair() -> Iterator[Cluster]:
    """Two hosts. They are Slurm's nodes as well, if it is installed."""
    with ExitStack() as stack:
        cluster = started(stack, 2, share=package_folders())
        if not why_no_slurm():
            cluster.slurm()
        yield cluster


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, pair: Cluster) -> list[str]:
    if request.param == "mpirun":
        need("mpirun.openmpi", "openmpi-bin")
    elif request.param == "hydra":
        need("mpiexec.hydra", "mpich")
    elif why_no_slurm():
        pytest.skip(why_no_slurm())
    elif request.param not in pair.head.run(["srun", "--mpi=list"]).stdout:
        pytest.skip(f"this Slurm has no {request.param}")
    return WAYS[request.param]


def run(head: Host, *command: str) -> subprocess.CompletedProcess[str]:
    carried = [item for name in ("PATH", "PYTHONPATH", "OMP_NUM_THREADS") for item in ("-x", name)]
    words = [command[0], *(carried if command[0] == "mpirun.openmpi" else []), *command[1:]]
    return head.run(words, env=OPEN_MPI | job_environment() | {"OMP_NUM_THREADS": "1"}, timeout=90)


UNASKED = "import distrun; distrun.init(); print('loaded', 'libmpi' in open('/proc/self/maps').read(), flush=True)"


def test_mpi_is_not_loaded_unasked(pair: Cluster, way: list[str]) -> None:
    """MPI's symbols are global. They would disturb another MPI that the program imports after init()."""
    done = run(pair.head, *way, sys.executable, "-c", UNASKED)
    assert done.stdout.count("loaded False") == 4, done.stdout + done.stderr
    assert_nothing_left(*pair.hosts)


def ranks_in(output: str) -> list[str]:
    return sorted(line for line in output.splitlines() if line.startswith("world "))


# rank/size local/local_size cross/cross_size sum, and the same sum after a second init
ALL_FOUR = [
    "world 0/4 local 0/2 cross 0/2 on h1: 6 6",
    "world 1/4 local 1/2 cross 0/2 on h1: 6 6",
    "world 2/4 local 0/2 cross 1/2 on h2: 6 6",
    "world 3/4 local 1/2 cross 1/2 on h2: 6 6",
]


def test_the_world_is_found(pair: Cluster, way: list[str]) -> None:
    done = run(pair.head, *way, *WORLD)
    assert done.returncode == 0, done.stderr
    assert ranks_in(done.stdout) == ALL_FOUR


@pytest.mark.parametrize(
    "way",
    [pytest.param(one, marks=() if one == "mpirun" else pytest.mark.full) for one in WAYS],
    indirect=True,
)
def test_an_example_trains(pair: Cluster, way: list[str]) -> None:
    done = run(pair.head, *way, *DIGITS)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.rsplit("accuracy: ", 1)[1].split()[0]) > 0.9


def test_memory_is_shared_inside_a_host(pair: Cluster, way: list[str]) -> None:
    done = run(pair.head, *way, *SETS)
    assert done.returncode == 0, done.stderr
    hosts = [line for line in done.stdout.splitlines() if line.startswith("host ")]
    assert len(hosts) == 2 and all("shm" in line and "hierarchical" in line for line in hosts), done.stdout


@pytest.mark.parametrize("how", ["raise", "kill", "kill-first"])
def test_a_lost_rank_ends_the_job(pair: Cluster, way: list[str], how: str) -> None:
    done = run(pair.head, *way, *WORLD, how)
    assert done.returncode != 0
    # If a rank is killed, mpirun and mpiexec end the others at once. srun leaves that to distrun.
    if how == "raise" or way[0] == "srun":
        assert f"lost ({0 if how == 'kill-first' else 3},)" in done.stdout, done.stdout + done.stderr
    assert_nothing_left(*pair.hosts, seconds=15)


@pytest.mark.parametrize("who", ["absent", "absent-first"])
def test_ranks_that_do_not_come_are_an_error(pair: Cluster, way: list[str], who: str) -> None:
    done = run(pair.head, *way, *WORLD, who)
    assert done.returncode != 0
    # mpirun ends a job if some ranks have called MPI_Init and another one ends without it.
    ranks_in = done.stdout + done.stderr
    assert "did not call init()" in ranks_in or 'did not call "init" before exiting' in ranks_in, ranks_in


def test_a_refusal_is_heard_by_every_rank(pair: Cluster, way: list[str]) -> None:
    """Ranks must not report the loss of a rank that was refused earlier. mpirun and mpiexec may end a rank before it
    prints."""
    done = run(pair.head, *way, *WORLD, "refused")
    assert done.returncode != 0
    heard = [line for line in done.stdout.splitlines() if line.startswith("heard ")]
    assert heard and all("There is no backend foo." in line for line in heard), done.stdout + done.stderr
    assert not any("RankLost" in line for line in heard), done.stdout
    assert_nothing_left(*pair.hosts, seconds=15)


def test_a_refusal_of_one_rank_is_told_to_the_others(pair: Cluster) -> None:
    """Uses PMI. PMIx needs a thread too, so the rank could not start at all.

    Ranks that are still in init() learn that rank 3 could not take part. The others learn that it failed.
    """
    need("mpiexec.hydra", "mpich")
    done = run(pair.head, *WAYS["hydra"], *WORLD, "refused-one")
    assert done.returncode != 0
    heard = [line for line in done.stdout.splitlines() if line.startswith("heard ")]
    assert any(re.search(r"rank 3 on h2 (cannot take part|failed): ", line) for line in heard), (
        done.stdout + done.stderr
    )
    assert all("cannot start the thread distrun-engine" in line for line in heard), done.stdout
    assert_nothing_left(*pair.hosts, seconds=15)


def test_srun_without_pmi_is_refused(pair: Cluster) -> None:
    if why_no_slurm():
        pytest.skip(why_no_slurm())
    done = run(pair.head, "srun", "--mpi=none", *SLURM, *WORLD)
    assert done.returncode != 0
    assert "SLURM_STEP_NUM_TASKS=4" in done.stderr and "srun --mpi=pmi2" in done.stderr


@pytest.mark.parametrize("launcher", ["mpirun", "hydra"])
def test_inside_an_allocation(pair: Cluster, launcher: str) -> None:
    if why_no_slurm():
        pytest.skip(why_no_slurm())
    need("mpirun.openmpi" if launcher == "mpirun" else "mpiexec.hydra", "openmpi-bin and mpich")
    command = ["mpirun.openmpi"] if launcher == "mpirun" else ["mpiexec.hydra"]
    done = pair.head.run(["salloc", *SLURM, *command, *WORLD], env=OPEN_MPI | job_environment(), timeout=90)
    assert done.returncode == 0, done.stderr
    assert ranks_in(done.stdout) == ALL_FOUR, done.stdout + done.stderr


def test_one_task_is_a_world_of_one(pair: Cluster) -> None:
    need("mpirun.openmpi", "openmpi-bin")
    done = run(pair.head, "mpirun.openmpi", "-np", "1", *WORLD)
    assert ranks_in(done.stdout) == ["world 0/1 local 0/1 cross 0/1 on localhost: 0 0"], done.stderr
