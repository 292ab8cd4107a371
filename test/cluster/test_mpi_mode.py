"""`distrun --mpi`: mpirun or srun starts the ranks, MPI works in them, and distrun watches them as usual."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from .conftest import MakeCluster, started
from .jobs import EXAMPLES, PROGRAMS, Job, assert_nothing_left, job_environment, package_folders, wait_until
from .rig import HERE, Cluster, Host
from .slurm import why_no_slurm
from .test_mpi import OPEN_MPI, need

HOSTS = ["-np", "4", "-H", "h1:2,h2:2"]
DIGITS = [sys.executable, str(EXAMPLES / "pytorch_digits.py"), "--epochs", "8"]
BOTH = [sys.executable, str(PROGRAMS / "with_mpi.py")]
MPI4PY = [sys.executable, str(PROGRAMS / "mpi4py_sum.py")]
SUMS = ["0/4 6 h1", "1/4 6 h1", "2/4 6 h2", "3/4 6 h2"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Path]]:
    """Two hosts that share a folder, with Slurm if it is there."""
    need("mpirun", "openmpi-bin")
    folder = tmp_path_factory.mktemp("shared")
    with ExitStack() as stack:
        cluster = started(stack, 2, share=[folder, *package_folders()])
        if not why_no_slurm():
            cluster.slurm()
        yield cluster, folder


def need_mpi4py() -> None:
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("needs mpi4py")


def run(head: Host, *words: str, inside: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return head.run([*inside, "distrun", *words], env=OPEN_MPI | job_environment(), timeout=90)


def assert_all_ended(cluster: Cluster) -> None:
    """On the head, the daemons of Slurm keep running."""
    ours = {"mpirun", "distrun", "srun"}
    wait_until(
        lambda: not any(Path(each.argv[0]).name in ours for each in cluster.head.processes()), "the head is idle"
    )
    assert_nothing_left(*cluster.hosts, seconds=15)


def untagged(output: str) -> list[str]:
    return sorted(re.sub(r"^\[\d+\] ", "", line) for line in output.splitlines())


def test_mpi_works_in_the_ranks(pair: tuple[Cluster, Path]) -> None:
    need("mpicc.openmpi", "libopenmpi-dev")
    cluster, folder = pair
    program = folder / "allreduce"
    subprocess.run(["mpicc.openmpi", HERE / "allreduce.c", "-o", program], check=True)
    done = run(cluster.head, "--mpi", *HOSTS, str(program))
    assert done.returncode == 0, done.stderr
    assert untagged(done.stdout) == SUMS
    assert all(re.match(rf"^\[{line.split('] ')[1][0]}\] ", line) for line in done.stdout.splitlines())
    assert_all_ended(cluster)


def test_an_unmodified_mpi4py_script(pair: tuple[Cluster, Path]) -> None:
    need_mpi4py()
    done = run(pair[0].head, "--mpi", *HOSTS, *MPI4PY)
    assert done.returncode == 0, done.stderr
    assert untagged(done.stdout) == SUMS


@pytest.mark.parametrize("order", ["mpi-first", "mpi-last"])
@pytest.mark.parametrize("how", ["--mpi", "mpirun"])
def test_mpi_and_distrun_in_one_program(pair: tuple[Cluster, Path], how: str, order: str) -> None:
    need_mpi4py()
    mpirun = ["mpirun", "-x", "PATH", "-x", "PYTHONPATH", *HOSTS, *BOTH, order]
    head = pair[0].head
    done = (
        run(head, "--mpi", *HOSTS, *BOTH, order)
        if how == "--mpi"
        else head.run(mpirun, env=OPEN_MPI | job_environment(), timeout=90)
    )
    assert done.returncode == 0, done.stderr
    assert untagged(done.stdout) == [f"both {rank}/4 6 6 True" for rank in range(4)], done.stdout


@pytest.mark.parametrize("order", ["mpi-first", "mpi-last"])
@pytest.mark.parametrize("how", ["--mpi", "mpirun"])
def test_mpi_moves_the_tensors(pair: tuple[Cluster, Path], how: str, order: str) -> None:
    """The program initialises MPI before distrun, or distrun initialises MPI and the program finds it."""
    need_mpi4py()
    mpirun = ["mpirun", "-x", "PATH", "-x", "PYTHONPATH", "-x", "DISTRUN_BACKEND", *HOSTS, *BOTH, order]
    head = pair[0].head
    done = (
        run(head, "--mpi", "--backend", "mpi", *HOSTS, *BOTH, order)
        if how == "--mpi"
        else head.run(mpirun, env=OPEN_MPI | job_environment() | {"DISTRUN_BACKEND": "mpi"}, timeout=90)
    )
    assert done.returncode == 0, done.stderr
    assert untagged(done.stdout) == [f"both {rank}/4 6 6 True" for rank in range(4)], done.stdout


@pytest.mark.parametrize("where", [[], ["-H", "h1:2"], ["-H", "h1:2,h2:2"]], ids=["no-hosts", "this-host", "mixed"])
def test_ranks_on_the_head_itself(pair: tuple[Cluster, Path], where: list[str]) -> None:
    """Open MPI's `--stdin all` passes nothing to ranks on the head."""
    need_mpi4py()
    count = 4 if "h2" in "".join(where) else 2
    done = run(pair[0]["h1"], "--mpi", "-np", str(count), *where, *MPI4PY)
    assert done.returncode == 0, done.stderr
    total = count * (count - 1) // 2
    assert untagged(done.stdout) == [f"{rank}/{count} {total} h{1 + rank // 2}" for rank in range(count)], done.stdout


@pytest.mark.full
def test_an_example_trains(pair: tuple[Cluster, Path]) -> None:
    done = run(pair[0].head, "--mpi", *HOSTS, *DIGITS)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.rsplit("accuracy: ", 1)[1].split()[0]) > 0.9


@pytest.mark.parametrize("plugin", ["pmix", "pmi2"])
def test_srun_starts_the_ranks(pair: tuple[Cluster, Path], plugin: str) -> None:
    if why_no_slurm():
        pytest.skip(why_no_slurm())
    # srun passes its variables on, and DISPLAY belongs to the head.
    who = ["sh", "-c", "echo $DISTRUN_RANK ${PMIX_RANK-$PMI_RANK} $LOCAL_RANK $NODE_RANK on $(hostname) $DISPLAY"]
    inside = ("env", "DISPLAY=:7", "salloc", "-N2", "--ntasks-per-node=2")
    done = run(pair[0].head, f"--mpi={plugin}", *who, inside=inside)
    assert done.returncode == 0, done.stderr
    assert untagged(done.stdout) == ["0 0 0 0 on h1", "1 1 1 0 on h1", "2 2 0 1 on h2", "3 3 1 1 on h2"]


def test_srun_starts_more_ranks_than_there_are_slots(pair: tuple[Cluster, Path]) -> None:
    if why_no_slurm():
        pytest.skip(why_no_slurm())
    who = ["sh", "-c", "echo $DISTRUN_RANK $PMI_RANK on $(hostname)"]
    inside = ("salloc", "-N2", "--ntasks-per-node=1")
    done = run(pair[0].head, "--mpi=pmi2", "-np", "4", "--oversubscribe", *who, inside=inside)
    assert done.returncode == 0, done.stderr
    assert untagged(done.stdout) == ["0 0 on h1", "1 1 on h1", "2 2 on h2", "3 3 on h2"]


@pytest.mark.parametrize(("ends", "code"), [("exit 7", 7), ("kill -9 $$", 137)])
def test_a_failing_rank_ends_the_job(pair: tuple[Cluster, Path], ends: str, code: int) -> None:
    cluster, _ = pair
    done = run(cluster.head, "--mpi", *HOSTS, "sh", "-c", f"[ $DISTRUN_RANK = 2 ] && {ends}; sleep 1000")
    assert done.returncode == code, done.stderr
    assert "rank 2" in done.stderr
    assert_all_ended(cluster)


def test_ctrl_c_ends_everything(pair: tuple[Cluster, Path]) -> None:
    cluster, _ = pair
    job = Job(cluster.head, "--mpi", *HOSTS, "sh", "-c", "echo ready $DISTRUN_RANK $$; exec sleep 1000", env=OPEN_MPI)
    job.ranks(4)
    job.signal(2)
    assert job.finish() == 130, job.text
    assert_all_ended(cluster)


WAITING = ("sh", "-c", "echo ready $DISTRUN_RANK $$; exec sleep 1000")
# With MPI in the ranks. Killing them leaves MPI's files in /tmp and in /dev/shm.
IN_MPI = """
import os, time
from mpi4py import MPI
print("ready", MPI.COMM_WORLD.rank, os.getpid(), flush=True)
time.sleep(1000)
"""
WAITING_IN_MPI = (sys.executable, "-c", IN_MPI)


def kill(host: Host, name: str, signal: str = "KILL") -> None:
    """Signals the first process of a program or with these words in its command line: the parent of the others."""
    found = [
        each.pid
        for each in host.processes()
        if (" " in name and name in " ".join(each.argv)) or Path(each.argv[0]).name == name
    ]
    host.run(["kill", f"-{signal}", str(min(found))], check=True)


@pytest.mark.parametrize(
    ("where", "what", "named"),
    [
        ("head", "mpirun", r"distrun: mpirun \(pid \d+\) was killed by signal 9 \(SIGKILL\) on host head"),
        (
            "head",
            "agent --mpi-guard",
            r"distrun's guard of mpirun \(pid \d+\) was killed by signal 9 \(SIGKILL\) on host head",
        ),
        ("h2", "orted", r"orted \(pid \d+\) on host h2 has ended while rank [23] ran below it"),
        ("h2", "agent --mpi", r"distrun's wrapper \(pid \d+\) on host h2 has ended while rank [23] ran below it"),
    ],
    ids=["mpirun", "guard", "orted", "wrapper"],
)
def test_the_report_names_the_part_that_was_killed(
    pair: tuple[Cluster, Path], where: str, what: str, named: str
) -> None:
    cluster, _ = pair
    job = Job(cluster.head, "--mpi", *HOSTS, *WAITING, env=OPEN_MPI)
    job.ranks(4)
    kill(cluster.head if where == "head" else cluster[where], what)
    assert job.finish() == 75, job.text
    assert job.found(named), job.text
    assert "rank 0" not in job.text and "rank 1 " not in job.text and "is lost" not in job.text, job.text
    assert_all_ended(cluster)


@pytest.mark.parametrize("signal", ["TERM", "INT"])
def test_a_daemon_that_was_told_to_end_is_named(pair: tuple[Cluster, Path], signal: str) -> None:
    """It ends its ranks before it goes; mpirun misses it later and ends with a code."""
    cluster, _ = pair
    job = Job(cluster.head, "--mpi", *HOSTS, *WAITING, env=OPEN_MPI)
    job.ranks(4)
    kill(cluster["h2"], "orted", signal)
    assert job.finish() == 75, job.text
    assert job.found(r"orted \(pid \d+\) on host h2 ended its ranks before MPI's launcher ended the others"), job.text
    assert_all_ended(cluster)


@pytest.mark.parametrize("what", ["launcher", "mpirun", "guard", "orted", "wrapper", "term"])
def test_nothing_of_mpi_is_left_on_any_host(pair: tuple[Cluster, Path], what: str) -> None:
    """No shared memory, no folders in /tmp and no cgroups are left, whichever process was killed."""
    need_mpi4py()
    cluster, _ = pair
    job = Job(cluster.head, "--mpi", *HOSTS, *WAITING_IN_MPI, env=OPEN_MPI)
    job.ranks(4)
    segments = [name for name in os.listdir(cluster["h2"].path("/dev/shm")) if "_segment." in name]
    assert len(segments) == 2, "MPI's shared memory has another name"
    if what == "term":
        job.signal(15)
    elif what == "launcher":
        job.process.kill()
    else:
        names = {"mpirun": "mpirun", "guard": "agent --mpi-guard", "orted": "orted", "wrapper": "agent --mpi"}
        kill(cluster.head if what in ("mpirun", "guard") else cluster["h2"], names[what])
    job.finish()
    assert_all_ended(cluster)
    for host in (cluster.head, *cluster.hosts):
        deadline = time.monotonic() + 10
        while leftovers(host) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert leftovers(host) == [], host.name
        assert cgroups(host) == [], host.name


NO_SSH = "table inet late { chain input { type filter hook input priority 0; tcp dport 22 reject with tcp reset; }; }"


@contextmanager
def no_ssh(host: Host) -> Iterator[None]:
    host.run(["nft", "-f", "-"], input=NO_SSH, check=True)
    try:
        yield
    finally:
        host.run(["nft", "delete", "table", "inet", "late"], check=True)


def waits_for_a_late_host(cluster: Cluster, mpi: str) -> None:
    program = ("sh", "-c", "echo ready $RANK $$")
    with no_ssh(cluster["h2"]):
        refused = run(cluster.head, mpi, *HOSTS, *program)
        assert refused.returncode == 69 and "Connection refused" in refused.stderr, refused.stderr
        job = Job(cluster.head, mpi, "--start-timeout", "60", *HOSTS, *program, env=OPEN_MPI)
        job.wait_for("cannot reach a host yet: .*refused. distrun tries it again until --start-timeout is over")
        assert job.process.poll() is None
    assert job.finish() == 0, job.text
    assert job.text.count("tries it again") == 1 and len(job.ranks(4)) == 4, job.text


def test_a_host_that_comes_late_is_waited_for(pair: tuple[Cluster, Path]) -> None:
    cluster, _ = pair
    waits_for_a_late_host(cluster, "--mpi")
    assert_all_ended(cluster)


def test_a_ctrl_c_ends_the_wait_for_a_late_host(pair: tuple[Cluster, Path]) -> None:
    cluster, _ = pair
    with no_ssh(cluster["h2"]):
        job = Job(cluster.head, "--mpi", "--start-timeout", "60", *HOSTS, "true", env=OPEN_MPI)
        job.wait_for("distrun tries it again")
        job.signal(2)
        assert job.finish() == 130, job.text
    assert_all_ended(cluster)


def test_a_host_that_was_given_up_does_not_delay_the_end(make_cluster: MakeCluster) -> None:
    """mpirun waits for its daemon on that host. distrun ends mpirun as soon as the other ranks have ended."""
    need("mpirun", "openmpi-bin")
    cluster = make_cluster(2, share=package_folders())
    job = Job(cluster.head, "--mpi", "--host-timeout", "5", *HOSTS, *WAITING, env=OPEN_MPI)
    job.ranks(4)
    cluster["h2"].kill()
    assert job.finish() == 75, job.text
    (lost,) = job.found(r"distrun: host h2 is lost")
    # The ranks of h1 get TERM at once. 8 s more were the time that mpirun had to end by itself.
    assert job.ended - lost[0] < 6, job.text
    assert not any(Path(each.argv[0]).name in ("mpirun", "distrun") for each in cluster.head.processes())
    assert_nothing_left(cluster["h1"])


def leftovers(host: Host) -> list[str]:
    memory = [name for name in os.listdir(host.path("/dev/shm")) if "_segment." in name]
    tops = [path for path in Path(host.path("/tmp")).iterdir() if path.name.startswith(("ompi.", "prte."))]
    return memory + [str(path) for top in tops for path in (top, *top.rglob("*"))]


def cgroups(host: Host) -> list[str]:
    """The groups of the wrappers, below the host's cgroup. Another host's group does not contain this path."""
    seen = host.run(["sh", "-c", "cat /proc/self/cgroup; find /sys/fs/cgroup -name 'distrun-ranks-*'"]).stdout
    own = next((line.split(":", 2)[2] for line in seen.splitlines() if line.startswith("0::")), "/")
    return [line for line in seen.splitlines() if "distrun-ranks-" in line and own != "/" and own in line]


def test_standard_input_reaches_rank_0(pair: tuple[Cluster, Path]) -> None:
    words = ["distrun", "--mpi", *HOSTS, "sh", "-c", "[ $DISTRUN_RANK != 0 ] || cat"]
    done = pair[0].head.run(words, env=OPEN_MPI | job_environment(), input="hello\n")
    assert (done.returncode, done.stdout) == (0, "[0] hello\n"), done.stderr


def test_what_mpirun_says_is_shown_when_it_cannot_start(pair: tuple[Cluster, Path]) -> None:
    done = run(pair[0].head, "--mpi", "-np", "2", "-H", "nowhere:2", "true")
    assert done.returncode == 69
    assert "MPI's launcher could not start the ranks" in done.stderr and "nowhere" in done.stderr, done.stderr


def test_the_key_is_on_no_command_line(pair: tuple[Cluster, Path]) -> None:
    cluster, _ = pair
    job = Job(cluster.head, "--mpi", *HOSTS, "sh", "-c", "echo ready $DISTRUN_RANK $$; exec sleep 1000", env=OPEN_MPI)
    job.ranks(4)
    words = [word for host in (cluster.head, *cluster.hosts) for each in host.processes() for word in each.argv]
    assert any(word == "--mpi" for word in words) and not any(re.search("[0-9a-f]{64}", word) for word in words)
    job.signal(15)
    assert job.finish() == 143, job.text
    assert_all_ended(cluster)
