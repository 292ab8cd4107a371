"""If a job on several hosts is impossible, distrun gives the reasons for all hosts before any rank starts."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .jobs import Job, assert_nothing_left, launcher, run
from .rig import Cluster, Host

SSH_CONFIG = """
Host closed
  HostName h4
  Port 2222
Host locked
  HostName h4
  IdentityFile /tmp/wrong_key
  IdentitiesOnly yes
Host stranger
  HostName h4
  UserKnownHostsFile /dev/null
  GlobalKnownHostsFile /dev/null
"""


@pytest.fixture
def head(cluster: Cluster) -> Host:
    return cluster.head


def hide(host: Host, folder: Path) -> None:
    host.run(["mount", "-t", "tmpfs", "none", str(folder)], check=True)


def unhide(host: Host, path: Path) -> None:
    host.run(["umount", str(path)], check=True)


def lines(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Host to the text about it."""
    out = {}
    for line in done.stderr.splitlines():
        name, _, text = line.strip().removeprefix("host ").partition(": ")
        out[name] = text
    return out


def write(host: Host, path: str, text: str, mode: int = 0o755) -> None:
    host.path(path).parent.mkdir(parents=True, exist_ok=True)
    host.path(path).write_text(text)
    host.path(path).chmod(mode)


def test_hosts_that_ssh_does_not_reach(cluster: Cluster, head: Host) -> None:
    write(head, "/run/home/root/.ssh/config", SSH_CONFIG, 0o600)
    head.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/tmp/wrong_key"], check=True)
    cluster["h3"].link_down()
    names = ["h1", "h2", "h3", "closed", "locked", "stranger", "nowhere", "nobody@h4"]
    try:
        hosts = ",".join(f"{name}:1" for name in names)
        done = run(head, "-H", hosts, "--ssh-option", "ConnectTimeout=6", "touch", "/tmp/started")
    finally:
        head.path("/run/home/root/.ssh/config").unlink()
        head.path("/tmp/wrong_key").unlink()
    assert done.returncode == 69, done.stderr
    assert "the job cannot start, because of 6 hosts of 8:" in done.stderr
    said = lines(done)
    assert "h1" not in said and "h2" not in said
    assert "check that the host and its network are up" in said["h3"], done.stderr
    assert "Connection refused" in said["closed"] and "--ssh-port" in said["closed"]
    assert "Permission denied" in said["locked"] and "--ssh-identity" in said["locked"]
    assert "This account is currently not available" in done.stderr  # the shell printed this to standard output
    assert "Host key verification failed" in done.stderr and "StrictHostKeyChecking=accept-new" in done.stderr
    assert "Could not resolve hostname nowhere" in said["nowhere"]
    assert not any(host.path("/tmp/started").exists() for host in cluster.hosts)


OTHER_VERSION = """#!{python}
import subprocess, sys, os
# The head's first message says that it speaks another protocol.
child = subprocess.Popen([{real!r}, "agent", "--guard"], stdin=subprocess.PIPE)
data = bytearray(os.read(0, 9))
data[5] += 1
child.stdin.write(data)
child.stdin.flush()
while chunk := os.read(0, 65536):
    child.stdin.write(chunk)
    child.stdin.flush()
"""


@pytest.fixture
def without_distrun(cluster: Cluster) -> Iterator[Host]:
    """h2 has no distrun, neither at the same path nor on PATH."""
    hide(cluster["h2"], launcher().parent)
    yield cluster["h2"]
    unhide(cluster["h2"], launcher().parent)


@pytest.fixture
def with_other_version(cluster: Cluster, shared_path: Path) -> Iterator[Host]:
    """h3 has another version of distrun."""
    host = cluster["h3"]
    real, wrapper, python = (shared_path / name for name in ("real", "wrapper", "python"))
    python.symlink_to(sys.executable)  # the first line of a script needs a path without a space
    real.write_bytes(launcher().read_bytes())
    real.chmod(0o755)
    wrapper.write_text(OTHER_VERSION.format(python=python, real=str(real)))
    wrapper.chmod(0o755)
    host.run(["mount", "--bind", str(wrapper), str(launcher())], check=True)
    yield host
    unhide(host, launcher())


def test_hosts_where_something_is_missing(
    cluster: Cluster, head: Host, without_distrun: Host, with_other_version: Host
) -> None:
    write(cluster["h1"], "/tmp/only/tool", "#!/bin/sh\ntouch /tmp/started\n")
    write(head, "/tmp/only/tool", "#!/bin/sh\n")
    done = run(head, "-H", "h1:1,h2:1,h3:1,h4:1", "/tmp/only/tool")
    assert done.returncode == 69, done.stderr
    assert "because of 3 hosts of 4:" in done.stderr
    assert "host h2: distrun is not installed on this host" in done.stderr and "Install the same version" in done.stderr
    assert "host h3 has distrun" in done.stderr and "Install the same version on all hosts" in done.stderr
    assert "program /tmp/only/tool does not exist on host h4" in done.stderr
    assert not cluster["h1"].path("/tmp/started").exists()
    everywhere = run(head, "-H", "h1:1,h4:1", "/tmp/nowhere/tool")
    assert everywhere.returncode == 69 and "because of 2 hosts of 2:" in everywhere.stderr, everywhere.stderr
    for name in ("h1", "h4"):
        assert f"program /tmp/nowhere/tool does not exist on host {name}" in everywhere.stderr, everywhere.stderr
    assert run(head, "-H", "h1:2", "/tmp/nowhere/tool").returncode == 127


@pytest.mark.parametrize("hosts", ["h1:1,h4:1,alias:1", "h4,alias,h1", "h4:1,h2:1,root@alias:1", "head:1,self:1"])
def test_a_machine_under_two_names(head: Host, hosts: str) -> None:
    write(head, "/run/home/root/.ssh/config", "Host alias\n  HostName h4\nHost self\n  HostName 10.99.0.254\n", 0o600)
    try:
        done = run(head, "-H", hosts, "touch", "/tmp/twice")
    finally:
        head.path("/run/home/root/.ssh/config").unlink()
    assert done.returncode == 69, done.stderr
    names = {"h4:1,h2:1,root@alias:1": "h4, root@alias", "head:1,self:1": "head, self"}.get(hosts, "h4, alias")
    assert f"{names} are the same machine. Name it once" in done.stderr, done.stderr
    assert not head.path("/tmp/twice").exists()


def test_a_folder_or_script_that_some_hosts_lack(cluster: Cluster, head: Host) -> None:
    for host in (head, cluster["h1"]):
        write(host, "/tmp/work/train.py", "print('ran')\n")
    host_without = cluster["h2"]
    done = run(head, "-H", "h1:1,h2:1", "true", cwd="/tmp/work")
    assert done.returncode == 69
    assert "folder /tmp/work does not exist on host h2" in done.stderr, done.stderr
    host_without.path("/tmp/work").mkdir()
    done = run(head, "-H", "h1:1,h2:1", "train.py", cwd="/tmp/work")
    assert done.returncode == 69 and "ran" not in done.stdout
    assert "script train.py on host h2: No such file" in done.stderr, done.stderr


def test_a_module_that_some_hosts_lack(cluster: Cluster, head: Host) -> None:
    for host in (head, cluster["h1"], cluster["h2"]):
        write(host, "/tmp/modules/package/__init__.py", "print('imported')\n")
    write(cluster["h1"], "/tmp/modules/package/train.py", "print('ran')\n")
    done = run(head, "-H", "h1:1,h2:1", "-m", "package.train", cwd="/tmp/modules")
    assert done.returncode == 69 and not done.stdout, done.stdout
    assert "because of 1 host of 2:" in done.stderr, done.stderr
    assert "module package.train is not installed for" in done.stderr, done.stderr
    assert "on host h2 (in folder /tmp/modules)" in done.stderr, done.stderr


@pytest.fixture
def bashrc(cluster: Cluster) -> Iterator[Path]:
    path = cluster["h2"].path("/run/home/root/.bashrc")
    yield path
    path.unlink(missing_ok=True)


def test_a_login_shell_may_print(head: Host, bashrc: Path) -> None:
    bashrc.write_text("echo Welcome; head -c 30000 /dev/zero; echo; echo distrun agent; echo to stderr >&2\n")
    done = run(head, "-H", "h1:1,h2:1", "echo", "fine")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] fine", "[1] fine"]


@pytest.mark.parametrize(
    "text, text_shown",
    [
        (
            "yes Welcome | head -c 100000",
            "more than 64 KiB of other output came before the first message of the agent. Check the start-up files",
        ),
        ("echo This account is closed.; exit 1", "This account is closed."),
        ("echo No quota. >&2; exit 1", "No quota."),
        ("exit 0", "its login shell ended with code 0 and did not start the agent. Check the start-up files"),
        (r"printf 'a\033[2Jb\n'; exit 1", r"It printed: a\x1b[2Jb"),
        ("cat >/tmp/eaten", "its login shell waits for input and does not start the agent. Check the start-up files"),
        ("exec sh -l", "do they start another shell or program"),
        ("exec </dev/null", "its standard input is at its end. Check the start-up files"),
        ("exec 0<&-", "its standard input is at its end. Check the start-up files"),
        ("kill -9 $$", "Was the login shell killed on that host? Check the start-up files"),
        ("exec 1>&2", "its standard output comes on standard error. Check the start-up files"),
    ],
)
def test_a_login_shell_that_does_not_come_to_the_agent(head: Host, bashrc: Path, text: str, text_shown: str) -> None:
    bashrc.write_text(text + "\n")
    begin = time.monotonic()
    done = run(head, "-H", "h1:1,h2:1", "echo", "fine")
    assert done.returncode == 69
    assert text_shown in done.stderr and "host h2" in done.stderr, done.stderr
    assert time.monotonic() - begin < 40  # and not after the 60 s of an agent that says nothing


def test_a_login_shell_that_reads_its_input_gets_nothing(cluster: Cluster, head: Host, bashrc: Path) -> None:
    """The first message has the environment. It waits for the agent's greeting."""
    bashrc.write_text("timeout 2 cat >/tmp/eaten\n")
    done = run(head, "-H", "h1:1,h2:1", "sh", "-c", "echo $MINE", env={"MINE": "s3cret"})
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] s3cret", "[1] s3cret"]
    assert cluster["h2"].path("/tmp/eaten").read_text() == ""


def test_ctrl_c_while_hosts_do_not_answer(cluster: Cluster, head: Host) -> None:
    cluster["h2"].drop("both")
    started = time.monotonic()
    job = Job(head, "-H", "h1:1,h2:1", "--ssh-option", "ConnectTimeout=100", "true")
    while not any(each.argv[0] == "ssh" for each in head.processes()):
        assert time.monotonic() < started + 60
    job.signal(2)
    assert job.finish(30) == 130, job.text
    cluster["h2"].heal()
    assert_nothing_left(head, cluster["h1"])


def test_every_host_turns_the_connection_away(cluster: Cluster, head: Host) -> None:
    """The hosts are tried again and then named. A job that ran nothing must not succeed."""
    # The proxy waits for a byte. If it ended before ssh sends one, the error would be a broken pipe.
    done = run(head, "-H", "h1:1,h2:1", "--ssh-option", "ProxyCommand=head -c 1 >/dev/null", "hostname")
    assert done.returncode == 69 and done.stdout == "", done.stdout
    for host in ("h1", "h2"):
        # The text of older and newer versions of ssh.
        closed = rf"host {host}: (kex_exchange_identification: )?Connection closed by "
        assert re.search(closed, done.stderr), done.stderr


def test_an_agent_told_to_end_from_outside(cluster: Cluster, head: Host) -> None:
    """scancel does this. The signal gives the exit code, and the message says that it did not come from distrun."""
    script = "[ $RANK = 0 ] || kill -TERM $(ps -o ppid= $$); exec sleep 60"
    done = run(head, "-H", "h1:1,h2:1", "sh", "-c", script)
    assert done.returncode == 143, done.stderr
    assert "killed by signal 15 (SIGTERM) by its agent, which something other than distrun told to end" in done.stderr


def test_the_options_of_ssh(cluster: Cluster, head: Host) -> None:
    key = "/run/home/root/.ssh/id_ed25519"
    done = run(head, "-H", "h1:1", "--ssh-port", "22", "--ssh-identity", key, "--ssh-option", "LogLevel=ERROR", "true")
    assert done.returncode == 0, done.stderr
    done = run(head, "-H", "h1:1", "--ssh-port", "23", "true")
    assert done.returncode == 69 and "Connection refused" in done.stderr


@pytest.mark.parametrize("late", ["the folder", "the program"])
def test_what_a_late_mount_brings_is_waited_for(cluster: Cluster, head: Host, late: str) -> None:
    for host in (head, cluster["h2"]):
        host.path("/tmp/late").mkdir()
    program = "/tmp/late/program" if late == "the program" else "pwd"
    if late == "the folder":
        cluster["h2"].path("/tmp/late").rmdir()
    try:
        job = Job(head, "--start-timeout", "60", "-H", "h2:1", program, cwd="/tmp/late")
        job.wait_for("distrun tries it again until --start-timeout is over")
        assert job.process.poll() is None
        write(cluster["h2"], "/tmp/late/program", "#!/bin/sh\npwd\n")
        assert job.finish() == 0, job.text
        job.wait_for(r"\[0\] /tmp/late$")
    finally:
        head.path("/tmp/late").rmdir()
        cluster["h2"].path("/tmp/late/program").unlink(missing_ok=True)
        cluster["h2"].path("/tmp/late").rmdir()
