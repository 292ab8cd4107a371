"""Ways to start ranks on other hosts besides ssh: Slurm's srun, any command, agents that dial in."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from .conftest import MakeCluster, started
from .jobs import EXAMPLES, assert_nothing_left, job_environment, launcher, package_folders, run, wait_until
from .rig import ROOT, Cluster, Host
from .slurm import Slurm, why_no_slurm

PI = [sys.executable, str(EXAMPLES / "numpy_pi.py")]
DIGITS = [sys.executable, str(EXAMPLES / "pytorch_digits.py")]
WHO = ["sh", "-c", "echo $DISTRUN_RANK on $(hostname)"]


@pytest.fixture(scope="module")
def slurm() -> Iterator[tuple[Cluster, Slurm]]:
    if why_no_slurm():
        pytest.skip(why_no_slurm())
    with ExitStack() as stack:
        cluster = started(stack, 2, share=package_folders())
        yield cluster, cluster.slurm()


def allocated(host: Host, size: list[str], *command: str) -> subprocess.CompletedProcess[str]:
    """Runs `salloc size... command`."""
    return host.run(["salloc", *size, *command], env=job_environment(), timeout=60)


def dial(host: Host, head: Host, key: Path) -> subprocess.Popen[str]:
    command: list[str | Path] = [launcher(), "agent", "--connect", f"{head.address}:7000", "--key-file", key]
    return host.popen(command, env=job_environment())


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.touch(mode=0o600)
    path.write_bytes(bytes(range(32)))
    return path


def accuracy(output: str) -> float:
    return float(output.rsplit("accuracy: ", 1)[1].split()[0])


def lines(output: str) -> list[str]:
    return sorted(line.split("] ", 1)[1] for line in output.splitlines())


def test_an_allocation_gives_the_hosts_and_srun_the_agents(slurm: tuple[Cluster, Slurm]) -> None:
    cluster, _ = slurm
    done = allocated(cluster.head, ["-N2", "--ntasks-per-node=2"], "distrun", *WHO)
    assert done.returncode == 0, done.stderr
    assert lines(done.stdout) == ["0 on h1", "1 on h1", "2 on h2", "3 on h2"]
    assert "found Slurm job" in done.stderr
    done = allocated(cluster.head, ["-N2", "--ntasks-per-node=2"], "distrun", *PI)
    assert done.returncode == 0, done.stderr
    assert "4 ranks" in done.stdout


def test_the_readme_on_slurm(slurm: tuple[Cluster, Slurm]) -> None:
    """The README's command that starts with salloc trains to the end."""
    [command] = [
        line.strip() for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("    salloc ")
    ]
    env = job_environment()
    done = slurm[0].head.run(["bash", "-c", command], env=env, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr
    assert accuracy(done.stdout) >= 0.97


def test_no_ssh_is_needed_under_slurm(slurm: tuple[Cluster, Slurm]) -> None:
    cluster, _ = slurm
    broken = [
        "sh",
        "-c",
        "mkdir -p /tmp/bin; ln -sf /bin/false /tmp/bin/ssh; PATH=/tmp/bin:$PATH exec distrun hostname",
    ]
    done = allocated(cluster.head, ["-N2", "-n2"], *broken)
    assert done.returncode == 0, done.stderr
    assert lines(done.stdout) == ["h1", "h2"]


@pytest.mark.parametrize("hosts", ["h1:1,h2:1", "h[1-2]:1", "hostfile"])
def test_named_hosts_of_an_allocation_start_by_srun_too(slurm: tuple[Cluster, Slurm], hosts: str) -> None:
    cluster, _ = slurm
    cluster.head.path("/tmp/hostfile").write_text("h1 slots=1\nh2 slots=1\n")
    option = "--hostfile /tmp/hostfile" if hosts == "hostfile" else f"-H '{hosts}'"
    no_ssh = f"mkdir -p /tmp/bin; ln -sf /bin/false /tmp/bin/ssh; PATH=/tmp/bin:$PATH exec distrun {option} hostname"
    done = allocated(cluster.head, ["-N2", "-n2"], "sh", "-c", no_ssh)
    assert done.returncode == 0, done.stderr
    assert lines(done.stdout) == ["h1", "h2"]


def test_hosts_that_the_allocation_does_not_have_are_reached_by_ssh(slurm: tuple[Cluster, Slurm]) -> None:
    cluster, _ = slurm
    done = allocated(cluster.head, ["-N1", "-w", "h1"], "distrun", "-H", "h1:1,h2:1", "hostname")
    assert done.returncode == 0, done.stderr
    assert lines(done.stdout) == ["h1", "h2"]
    assert "but h2 is not in it by that name, so distrun reaches all hosts by ssh" in done.stderr, done.stderr
    silent = allocated(cluster.head, ["-N1", "-w", "h1"], "distrun", "--no-detect", "-H", "h1:1,h2:1", "hostname")
    assert silent.returncode == 0 and "by ssh" not in silent.stderr, silent.stderr


def test_check_takes_the_allocation(slurm: tuple[Cluster, Slurm]) -> None:
    cluster, _ = slurm
    done = allocated(cluster.head, ["-N2", "-n2"], "distrun", "check")
    assert done.returncode == 0, done.stderr
    assert "h1" in done.stdout and "h2" in done.stdout, done.stdout
    here = allocated(cluster.head, ["-N2", "-n2"], "distrun", "check", "--no-detect")
    assert here.returncode == 0 and "backends:" in here.stdout, here.stdout


def test_srun_carries_nothing_that_is_true_on_one_host_only(slurm: tuple[Cluster, Slurm]) -> None:
    cluster, _ = slurm
    typed = ["env", "XDG_RUNTIME_DIR=/run/user/7", "DISPLAY=:7", "MINE=7", "distrun"]
    shown = ["sh", "-c", "echo ${XDG_RUNTIME_DIR-none} ${DISPLAY-none} $MINE"]
    done = allocated(cluster.head, ["-N2", "-n2"], *typed, *shown)
    assert done.returncode == 0, done.stderr
    assert lines(done.stdout) == ["none none 7"] * 2


def test_steps_of_an_allocation_run_jobs_beside_each_other(slurm: tuple[Cluster, Slurm]) -> None:
    """Each step uses only its own hosts. It is not taken for a shell, although it was typed in one."""
    cluster, _ = slurm
    job = "distrun -np 1 sh -c 'echo rank on $(hostname)'"
    steps = " & ".join(f"SLURM_PTY_PORT=1 srun -N1 -n1 -w {host} {job}" for host in ("h1", "h2")) + " & wait"
    done = allocated(cluster.head, ["-N2", "-n2"], "sh", "-c", steps)
    assert done.returncode == 0, done.stderr
    assert lines(done.stdout) == ["rank on h1", "rank on h2"]
    assert done.stderr.count("(1 of its 2 hosts)") == 2, done.stderr


def test_in_a_shell_on_a_host_the_whole_job_is_meant(slurm: tuple[Cluster, Slurm]) -> None:
    cluster, _ = slurm
    shell = "srun -N1 -n1 --pty env NO_COLOR=1 distrun -np 2 --nproc-per-node 1 hostname"
    done = allocated(cluster.head, ["-N2", "-n2"], "script", "-qec", shell, "/dev/null")
    assert done.returncode == 0, done.stdout
    assert "0] h1" in done.stdout and "1] h2" in done.stdout, done.stdout


def test_slurm_tells_a_batch_script_that_ends_in_exec(slurm: tuple[Cluster, Slurm]) -> None:
    """As `--signal=B:USR1@60` does, one minute before the end."""
    cluster, nodes = slurm
    steps = f"{sys.executable} {ROOT}/test/e2e/programs/steps.py 0.01"
    script = f"#!/bin/sh\nexec distrun --preempt-signal USR1 -np 2 {steps}\n"
    batch = ["sbatch", "--parsable", "-N1", "-n2", "--nodelist=h1", "--output=/tmp/told"]
    number = cluster.head.run(batch, env=job_environment(), input=script, check=True).stdout.strip()
    output = cluster["h1"].path("/tmp/told")
    wait_until(lambda: output.exists() and output.read_text().count("ready ") == 2, "both ranks run")
    cluster.head.run(["scancel", "--batch", "--signal=USR1", number], check=True)
    wait_until(lambda: output.read_text().count("] stopped ") == 2, "both ranks stop")
    assert "the launcher got SIGUSR1: all ranks are to stop" in output.read_text()
    nodes.wait_idle()
    output.unlink()


def test_scancel_with_sigquit_shows_where_the_ranks_are_once_and_the_job_goes_on(slurm: tuple[Cluster, Slurm]) -> None:
    """Without --batch, the signal reaches the agents of the step and all processes below them."""
    cluster, nodes = slurm
    distrun = "SECONDS=15 distrun -np 2 --nproc-per-node 1 --stall-warning-time 60"
    hangs = f"{distrun} {sys.executable} {ROOT}/test/e2e/programs/hangs.py evaluates"
    batch = ["sbatch", "--parsable", "-N2", "-n2", "--output=/tmp/quit"]
    script = f"#!/bin/sh\n{hangs}\necho code $?\n"
    number = cluster.head.run(batch, env=job_environment(), input=script, check=True).stdout.strip()
    output = cluster["h1"].path("/tmp/quit")
    wait_until(lambda: output.exists() and output.read_text().count("ready ") == 2, "both ranks run")
    cluster.head.run(["scancel", "--signal=QUIT", number], check=True)
    wait_until(lambda: "rank 1 (h2) is in no operation" in output.read_text(), "the launcher shows the ranks")
    wait_until(lambda: "code 0" in output.read_text(), "the job goes on")
    assert output.read_text().count("where the ranks are") == 1, output.read_text()
    nodes.wait_idle()
    output.unlink()


def test_a_failing_rank_ends_the_job_under_slurm(slurm: tuple[Cluster, Slurm]) -> None:
    cluster, _ = slurm
    script = "[ $DISTRUN_RANK = 1 ] && exit 7; sleep 1000"
    done = allocated(cluster.head, ["-N2", "-n2"], "distrun", "--grace", "2", "sh", "-c", script)
    assert done.returncode == 7, done.stderr
    for host in cluster.hosts:
        wait_until(lambda host=host: not sleeping(host), "no rank is left")  # type: ignore[misc]


def sleeping(host: Host) -> bool:
    return any(process.argv[:1] == ("sleep",) for process in host.processes())


def test_any_command_may_start_agents(cluster: Cluster) -> None:
    done = run(cluster.head, "-np", "4", "-H", "h1:2,h2:2", "--launch-with", "ssh -T {host} {agent}", *WHO)
    assert done.returncode == 0, done.stderr
    assert lines(done.stdout) == ["0 on h1", "1 on h1", "2 on h2", "3 on h2"]


def test_the_comparison_of_launchers_runs(cluster: Cluster) -> None:
    """Its targets are not checked, because other work runs on this machine."""
    words: list[str | Path] = [sys.executable, ROOT / "bench/launch.py", "--rounds", "1"]
    done = cluster.head.run(words, env=job_environment() | {"HOSTS": "h1,h2,h3,h4"}, cwd=ROOT)
    assert done.returncode in (0, 1), done.stderr
    assert "| last line, 4 hosts | " in done.stdout, done.stdout


def test_agents_dial_in_from_their_hosts(make_cluster: MakeCluster, key: Path) -> None:
    cluster = make_cluster(3, share=[key.parent, *package_folders()])
    agents = [dial(host, cluster.head, key) for host in cluster.hosts]
    done = run(cluster.head, "-np", "6", "--agents", "3", "--listen", "7000", "--key-file", key, *PI)
    assert done.returncode == 0, done.stderr
    assert "6 ranks" in done.stdout
    assert [agent.wait(60) for agent in agents] == [0, 0, 0]
    assert "waiting for 3 agents" in done.stderr


def test_the_readme_with_agents_that_dial_in(make_cluster: MakeCluster, key: Path) -> None:
    """The README's two commands. The pods of a Kubernetes Job would run the second one."""
    cluster = make_cluster(2, share=[key.parent, *package_folders()])
    text = [line.strip() for line in (ROOT / "README.md").read_text().splitlines()]
    [wait] = [line for line in text if line.startswith("distrun -np 4 --agents 2 ")]
    [join] = [line.partition("#")[0] for line in text if line.startswith("distrun agent --connect HEAD:7000 ")]
    env = job_environment()
    join = join.replace("HEAD", cluster.head.address)
    agents = [host.popen(["bash", "-c", join], env=env, cwd=key.parent) for host in cluster.hosts]
    (key.parent / "examples").symlink_to(EXAMPLES)
    done = cluster.head.run(["bash", "-c", wait], env=env, cwd=key.parent, timeout=120)
    assert done.returncode == 0, done.stderr
    assert accuracy(done.stdout) >= 0.97
    assert [agent.wait(60) for agent in agents] == [0, 0]


def test_agents_whose_head_vanishes_end_their_ranks(make_cluster: MakeCluster, key: Path) -> None:
    cluster = make_cluster(2, share=[key.parent])
    agents = [dial(host, cluster.head, key) for host in cluster.hosts]
    head: list[str | Path] = [launcher(), "-np", "2", "--agents", "2", "--listen", "7000", "--key-file", key]
    cluster.head.popen(
        [*head, "--host-timeout", "5", "sh", "-c", "sleep 1000; true"], env=job_environment(), stderr=subprocess.DEVNULL
    )
    for host in cluster.hosts:
        wait_until(lambda host=host: sleeping(host), "the rank runs")  # type: ignore[misc]
    cluster.head.link_down()
    begin = time.monotonic()
    for agent in agents:
        agent.wait(30)
    assert time.monotonic() - begin < 15  # the lease; 5 s on a machine that is not overloaded
    assert_nothing_left(*cluster.hosts)
