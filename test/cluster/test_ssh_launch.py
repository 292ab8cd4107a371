"""Jobs on several hosts over ssh: that they run, and the environment of their ranks."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .jobs import EXAMPLES, LOOP, PROGRAMS, Job, agents, assert_nothing_left, job_environment, launcher, run
from .rig import ROOT, Cluster, Host
from .test_mpi import OPEN_MPI, need

PYTHON = sys.executable
TWO_BY_TWO = ("-np", "4", "-H", "h1:2,h2:2")


def facts_of(done: subprocess.CompletedProcess[str], size: int) -> dict[int, dict[str, Any]]:
    """The facts that each of `size` ranks of programs/tell.py has printed, by rank."""
    assert done.returncode == 0, done.stdout + done.stderr
    lines = re.findall(r"^\[(\d+)\] told (.*)$", done.stdout, re.MULTILINE)
    assert sorted(int(rank) for rank, _ in lines) == list(range(size)), done.stdout
    return {int(rank): json.loads(text) for rank, text in lines}


def tell(
    cluster: Cluster, size: int, *options: str, words: tuple[str, ...] = (), **more: Any
) -> dict[int, dict[str, Any]]:
    return facts_of(run(cluster.head, *options, PYTHON, PROGRAMS / "tell.py", *words, **more), size)


def test_numpy_pi(cluster: Cluster) -> None:
    done = run(cluster.head, *TWO_BY_TWO, PYTHON, EXAMPLES / "numpy_pi.py")
    assert done.returncode == 0, done.stderr
    assert "4 ranks" in done.stdout and "integral: 3.14159265" in done.stdout


@pytest.mark.parametrize(("slots", "homogeneous"), [((2, 1), False), ((1, 2), False), ((1, 1), True)])
def test_whether_all_hosts_have_as_many_ranks(cluster: Cluster, slots: tuple[int, int], homogeneous: bool) -> None:
    program = "import distrun; distrun.init(); print(distrun.is_homogeneous())"
    options = ("-np", str(sum(slots)), "-H", "h1:{},h2:{}".format(*slots), "--oversubscribe")
    done = run(cluster.head, *options, PYTHON, "-c", program)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] {homogeneous}" for rank in range(sum(slots))], done.stdout


def test_an_unmodified_torchrun_script(cluster: Cluster) -> None:
    done = run(cluster.head, *TWO_BY_TWO, PYTHON, PROGRAMS / "ddp.py", timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"of 4: equal True$", done.stdout, re.MULTILINE)) == 4, done.stdout


def test_verbose_tells_the_addresses_and_why(cluster: Cluster) -> None:
    h1 = cluster["h1"]
    h1.run(["ip", "link", "add", "docker0", "type", "bridge"], check=True)
    h1.run(["ip", "address", "add", "172.17.0.1/16", "dev", "docker0"], check=True)
    h1.run(["ip", "link", "set", "docker0", "up"], check=True)
    try:
        done = run(cluster.head, "-v", "--network", "eth0", *TWO_BY_TWO, "sh", "-c", "echo up")
    finally:
        h1.run(["ip", "link", "delete", "docker0"], check=True)
    assert done.returncode == 0, done.stderr
    why = dict(re.findall(r"^distrun: address of (.+?): (.*)$", done.stderr, re.MULTILINE))
    assert (
        why["h1"].startswith(f"{h1.address} (eth0), reached by ") and "not tried: 172.17.0.1 (docker0), " in why["h1"]
    )
    assert why["h2"].startswith(f"{cluster['h2'].address} (eth0), reached by ")
    assert why["this machine"].startswith(f"{cluster.head.address} (eth0), reached by all 2 hosts"), done.stderr


def test_shm_inside_a_host_and_tcp_between(cluster: Cluster) -> None:
    done = run(cluster.head, *TWO_BY_TWO, PYTHON, PROGRAMS / "sets.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"sums \d 4 2$", done.stdout, re.MULTILINE)) == 4, done.stdout
    for host in (0, 1):
        [why] = re.findall(rf"host {host}: (.*)", done.stdout)
        chosen = dict(re.findall(r"process set (\d+): cpu: (\w+)", why))
        assert chosen["0"] == "hierarchical" and chosen[str(host + 1)] == "shm", why


def test_the_merged_log_is_in_order(cluster: Cluster) -> None:
    done = run(cluster.head, *TWO_BY_TWO, "--output-dir", "/tmp/logs", PYTHON, PROGRAMS / "turns.py")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = cluster.head.path("/tmp/logs/merged.log").read_text().splitlines()
    assert lines == [f"[{step % 4}] step {step}" for step in range(8)], lines


def test_standard_input_of_ranks_on_several_hosts(cluster: Cluster) -> None:
    script = "read x; echo $RANK got $x"
    done = run(cluster.head, *TWO_BY_TWO, "--stdin", "all", "sh", "-c", script, input="hello\n")
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] {rank} got hello" for rank in range(4)], done.stderr


def test_a_program_from_standard_input_runs_on_several_hosts(cluster: Cluster) -> None:
    program = 'import os; print("ran", os.environ["RANK"])\n'
    done = run(cluster.head, *TWO_BY_TWO, PYTHON, "-", input=program)
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] ran {rank}" for rank in range(4)], done.stderr


def test_a_loop_keeps_its_list_although_a_rank_on_another_host_may_read_it(cluster: Cluster) -> None:
    loop = f"while read -r x; do {launcher()} -np 2 -H h2:1,h1:1 sh -c 'echo $RANK job $1' x $x; done"
    done = cluster.head.run(["sh", "-c", loop], env=job_environment(), input="a\nb\n", timeout=120)
    expected = [f"[{rank}] {rank} job {word}" for word in "ab" for rank in range(2)]
    assert sorted(done.stdout.splitlines()) == sorted(expected), done.stderr
    reads = f"{launcher()} -np 1 -H h2 sh -c 'read -r x; echo got $x'; cat"
    done = cluster.head.run(["sh", "-c", reads], env=job_environment(), input="a\nb\n", timeout=60)
    assert done.stdout == "[0] got a\nb\n", done.stderr


def test_a_terminal_on_another_host(cluster: Cluster) -> None:
    script = "read x; echo $(tty) on $DISTRUN_HOST: $x"
    done = run(cluster.head, "-np", "1", "-H", "h2", "--tty", "0", "sh", "-c", script, input="hello\n")
    assert done.returncode == 0, done.stderr
    assert re.search(r"/dev/pts/\d+ on h2: hello", done.stdout), done.stdout


def test_equal_lines_of_several_hosts_are_one(cluster: Cluster, shared_path: Path) -> None:
    """A line waits only a moment for the equal lines of other ranks. So the ranks meet before they print one."""
    everybody = " && ".join(f"[ -e {shared_path}/$1{rank} ]" for rank in range(4))
    meet = f"meet() {{ : > {shared_path}/$1$RANK; until {everybody}; do sleep 0.01; done; }}"
    script = f"{meet}; meet a; echo same; echo on $DISTRUN_HOST; sleep 0.5; meet b; echo end"
    options = ("--fold", "--tag", "host")
    done = run(cluster.head, *TWO_BY_TWO, *options, "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    expected = ["[0-1@h1] on h1", "[0-3] end", "[0-3] same", "[2-3@h2] on h2"]
    assert sorted(done.stdout.splitlines()) == expected, done.stdout


def test_what_a_rank_is_told_about_itself(cluster: Cluster) -> None:
    ranks = tell(cluster, 5, "-np", "5", "-H", "h1:2,h2:3")
    for rank, (host, local, cross) in enumerate([("h1", 0, 0), ("h1", 1, 0), ("h2", 0, 1), ("h2", 1, 1), ("h2", 2, 0)]):
        of_host = 2 if host == "h1" else 3
        expected = {
            "RANK": rank,
            "WORLD_SIZE": 5,
            "LOCAL_RANK": local,
            "LOCAL_WORLD_SIZE": of_host,
            "NODE_RANK": int(host == "h2"),
            "DISTRUN_CROSS_RANK": cross,
            "DISTRUN_CROSS_SIZE": 1 if local == 2 else 2,
            "DISTRUN_HOST": host,
            "DISTRUN_ADDRESS": cluster[host].address,
            "MASTER_ADDR": cluster["h1"].address,
            "GLOO_SOCKET_IFNAME": "eth0",
            "TP_SOCKET_IFNAME": "eth0",
            "NCCL_SOCKET_IFNAME": "=eth0",
        }
        env = ranks[rank]["env"]
        assert ranks[rank]["host"] == host
        assert {name: env.get(name) for name in expected} == {name: str(value) for name, value in expected.items()}


def test_the_session_carries_over(cluster: Cluster, shared_path: Path) -> None:
    """Folder, umask, limits, variables and the activated virtual environment."""
    (shared_path / "venv/bin").mkdir(parents=True)
    (shared_path / "venv/bin/python").symlink_to(PYTHON)
    (shared_path / "venv/pyvenv.cfg").write_text(f"home = {Path(PYTHON).parent}\n")
    script = f'cd {shared_path}; umask 027; ulimit -Sn 600; exec "$@"'
    command = [str(launcher()), "-np", "2", "-H", "h1,h2", "--nproc-per-node", "1", str(PROGRAMS / "tell.py")]
    venv = {"VIRTUAL_ENV": str(shared_path / "venv"), "PATH": f"{shared_path}/venv/bin:{job_environment()['PATH']}"}
    done = cluster.head.run(["bash", "-c", script, "sh", *command], env=job_environment() | venv | {"MINE": "a b"})
    for rank, each in facts_of(done, 2).items():
        assert each["host"] == f"h{rank + 1}"
        assert (each["cwd"], each["umask"], each["open_files"]) == (str(shared_path), 0o027, 600)
        assert each["env"]["MINE"] == "a b" and each["prefix"] == str(shared_path / "venv")


OF_THE_HEAD = {
    "SSH_CONNECTION": "192.0.2.1 1 192.0.2.2 22",
    "SSH_CLIENT": "192.0.2.1 1 22",
    "SSH_AUTH_SOCK": "/tmp/agent",
    "HOSTNAME": "head",
    "XDG_RUNTIME_DIR": "/run/user/0",
    "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/user/0/bus",
    "DISPLAY": ":0",
}


def test_variables_of_the_head_stay_there(cluster: Cluster) -> None:
    env = OF_THE_HEAD | {"MINE": "1"}
    here, there = (each["env"] for _, each in sorted(tell(cluster, 2, "-H", "head:1,h1:1", env=env).items()))
    assert {name: here.get(name) for name in OF_THE_HEAD} == OF_THE_HEAD
    assert here["MINE"] == there["MINE"] == "1"
    for name, value in OF_THE_HEAD.items():
        assert there.get(name) != value, name
    assert cluster.head.address in there["SSH_CONNECTION"]
    [forced] = tell(cluster, 1, "-H", "h1:1", "-x", "DISPLAY", env=env).values()
    assert forced["env"]["DISPLAY"] == ":0" and "HOSTNAME" not in forced["env"]
    [everything] = tell(cluster, 1, "-H", "h1:1", "--env", "all", env=env).values()
    assert {name: everything["env"].get(name) for name in OF_THE_HEAD} == OF_THE_HEAD
    [nothing] = tell(cluster, 1, "-H", "h1:1", "--env", "none", env=env).values()
    assert "MINE" not in nothing["env"] and "SSH_CONNECTION" not in nothing["env"]
    assert nothing["env"]["HOME"] == "/run/home/root"


def test_another_user_there(cluster: Cluster) -> None:
    say = "echo $(id -un) $USER $LOGNAME $HOME $MINE"
    done = run(cluster.head, "-H", "h1:1,guest@h2:1", "-x", "MINE=1", "sh", "-c", say)
    expected = ["[0] root root root /run/home/root 1", "[1] guest guest guest /run/home/guest 1"]
    assert sorted(done.stdout.splitlines()) == expected, done.stderr


def test_hosts_without_slots_have_their_own(cluster: Cluster) -> None:
    """h2 may use only one core. h3 is not needed."""
    cores = len(os.sched_getaffinity(0))
    [listener] = [each for each in cluster["h2"].processes() if "[listener]" in each.argv[0]]
    cluster["h2"].run(["taskset", "-pc", "0", str(listener.pid)], check=True)
    try:
        done = run(cluster.head, "-H", "h2,h1", "sh", "-c", "echo $LOCAL_WORLD_SIZE of $WORLD_SIZE")
        assert f"[0] 1 of {cores + 1}" in done.stdout.splitlines(), done.stdout + done.stderr
        assert f"[{cores}] {cores} of {cores + 1}" in done.stdout.splitlines()
        some = run(cluster.head, "-np", "2", "-H", "h2,h1:1,h3", "sh", "-c", "echo $DISTRUN_HOST")
        assert sorted(some.stdout.splitlines()) == ["[0] h2", "[1] h1"], some.stderr
        many = run(cluster.head, "-np", "3", "-H", "h2,h1:1", "true")
        assert many.returncode == 69
        assert "3 ranks do not fit into 2 slots:\n    host    slots\n    h[2,1]  1 each\n" in many.stderr, many.stderr
    finally:
        cluster["h2"].run(["taskset", "-pc", f"0-{cores - 1}", str(listener.pid)], check=True)


NASTY = ["'", '"', ";", "$(reboot)", "`id`", "\n", "\\", "-x", "--", "$HOME", "*", "~", "&", "|", "\t", "é", "{host}",
         "!", "#", "%h", "\x01", ">f", " ", "=", "--env=none", "-"]  # fmt: skip


def test_words_arrive_literally(cluster: Cluster) -> None:
    random_words = random.Random("words")
    for _ in range(10):
        words = tuple("".join(random_words.choices(NASTY, k=random_words.randint(0, 4))) for _ in range(20))
        value = "".join(random_words.choices(NASTY, k=6))
        for each in tell(cluster, 2, "-H", "h1:1,h2:1", "-x", f"NASTY={value}", words=words).values():
            assert tuple(each["argv"]) == words and each["env"]["NASTY"] == value


@pytest.mark.parametrize(
    "host", ["-oProxyCommand=touch /tmp/hacked", "h1;id", "$(id)", "`id`", "h1\nh2", "a b", "'h1'"]
)
def test_odd_host_names_are_refused(cluster: Cluster, host: str) -> None:
    done = run(cluster.head, "-H", f"{host}:1", "true")
    assert done.returncode == 64, done.stderr
    assert not cluster.head.path("/tmp/hacked").exists()


def visible_to(user: str, host: Host) -> str:
    """Everything that `user` can read about the processes of a host."""
    script = "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'"
    return host.run(["sh", "-c", script], user=user).stdout


def test_nobody_sees_key_or_environment(cluster: Cluster) -> None:
    job = Job(
        cluster.head, "-H", "h1:1,h2:1", "-x", "TOKEN=s3cret-in-x", PYTHON, LOOP, env={"MINE": "s3cret-inherited"}
    )
    job.ranks(2)
    for host in (cluster.head, cluster["h1"], cluster["h2"]):
        seen = visible_to("guest", host)
        assert "distrun" in seen
        # The words that the user typed are on the command line of distrun itself, and nowhere else.
        assert "s3cret-inherited" not in seen
        assert "s3cret-in-x" not in seen or host is cluster.head
    carriers = [each.argv for each in cluster.head.processes() if each.argv[0] == "ssh"]
    assert len(carriers) == 2 and not any("s3cret" in word for argv in carriers for word in argv)
    assert [each.argv[0] for each in agents(cluster["h1"])] == [str(launcher())] * 2
    # root on the host sees the rank's environment, but the key is not in it.
    environment = visible_to("root", cluster["h1"])
    assert "DISTRUN_KEY_FD=" in environment and "DISTRUN_KEY=" not in environment
    job.signal(15)
    assert job.finish() == 143, job.text
    assert_nothing_left(cluster.head, cluster["h1"], cluster["h2"])


def readme_commands() -> list[str]:
    """The commands in the README's section on several hosts. test_launch_ways.py has those for Slurm and for agents."""
    section = (ROOT / "README.md").read_text().split("## On several hosts", 1)[1].split("\n## ", 1)[0]
    found: list[str] = re.findall(r"^    ((?:distrun|mpirun|mpiexec\.hydra) .*)$", section, re.MULTILINE)
    return [command for command in found if "--key-file" not in command]


@pytest.mark.parametrize("command", readme_commands())
def test_the_readme(cluster: Cluster, shared_path: Path, command: str) -> None:
    (shared_path / "examples").symlink_to(EXAMPLES)
    (shared_path / "hosts").write_text("h1 slots=1\nh2:1\n")
    if not command.startswith("distrun"):
        need(command.split()[0], "openmpi-bin and mpich")
    # If the package is not installed, Python's path must be passed on too. mpiexec does this by itself.
    env = job_environment() | OPEN_MPI
    if "PYTHONPATH" in env:
        env["OMPI_MCA_mca_base_env_list"] = "PYTHONPATH"
    done = cluster.head.run(["bash", "-c", command], env=env, cwd=shared_path, timeout=120)
    assert done.returncode == 0 and done.stdout, done.stdout + done.stderr
    if "digits" in command:
        [accuracy] = re.findall(r"^\[0\] accuracy: ([01]\.\d+)$", done.stdout, re.MULTILINE)
        assert float(accuracy) >= 0.97, done.stdout
