"""For a program, every host looks like a separate machine."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import MakeCluster
from .plan import DOCKER_ADDRESS
from .rig import ROOT, Cluster

RESOLVE = "import socket, sys; print(*[socket.gethostbyname(name) for name in sys.argv[1:]])"
CONNECT = "import socket, sys; print(socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).recv(100).decode())"
WAITS = """
import select, threading, time
print(time.time())
start = time.monotonic()
time.sleep(0.1)
threading.Event().wait(0.1)
select.select([], [], [], 0.1)
threading.Thread(target=time.sleep, args=(0.1,)).run()
print(time.monotonic() - start)
"""
ANSWER = """
import socket, sys
listener = socket.create_server(("0.0.0.0", int(sys.argv[1])))
print("listening", flush=True)
listener.accept()[0].sendall(socket.gethostname().encode())
"""


def wait_until(happened: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def home_files() -> set[tuple[str, float]]:
    """The files in the machine's own ~/.ssh, with the times of their last change."""
    return {(path.name, path.stat().st_mtime) for path in Path("~/.ssh").expanduser().glob("*")}


def test_ssh_works_from_everywhere_to_everywhere(cluster: Cluster) -> None:
    before = home_files()
    for source in (cluster.head, cluster["h1"]):
        for target in [*cluster.names, "head"]:
            assert source.run(["ssh", target, "hostname"], check=True).stdout == f"{target}\n"
    assert cluster.head.run(["ssh", "guest@h2", "id -un"], check=True).stdout == "guest\n"
    assert cluster.head.run(["ssh", cluster["h3"].address, "hostname"], check=True).stdout == "h3\n"
    assert home_files() == before


def test_ssh_over_ipv6(cluster: Cluster) -> None:
    if not Path("/proc/sys/net/ipv6").exists():
        pytest.skip("the kernel has no IPv6")
    assert cluster.head.run(["ssh", cluster["h3"].address6, "hostname"], check=True).stdout == "h3\n"


def test_exit_code_and_input_go_through_ssh(cluster: Cluster) -> None:
    done = cluster.head.run(["ssh", "h1", "cat; exit 3"], input="over the wire")
    assert (done.returncode, done.stdout) == (3, "over the wire")


def test_a_stranger_s_host_key_is_refused(cluster: Cluster) -> None:
    known = cluster.head.path("/etc/ssh/ssh_known_hosts")
    text = known.read_text()
    try:
        known.write_text(re.sub(r"^(h1,\S+ \S+ ).*", r"\1" + text.split()[-2], text))
        assert cluster.head.run(["ssh", "-o", "BatchMode=yes", "h1", "true"]).returncode == 255
    finally:
        known.write_text(text)


def test_names_resolve(cluster: Cluster) -> None:
    for host in (cluster.head, cluster["h2"]):
        others = [name for name in [*cluster.names, "head"] if name != host.name]
        found = host.run([sys.executable, "-c", RESOLVE, *others, host.name], check=True).stdout.split()
        assert found == [*(cluster[name].address for name in others), "127.0.1.1"]
    unknown = cluster.head.run(["ssh", "nosuch", "true"], timeout=30)
    assert unknown.returncode == 255 and "nosuch" in unknown.stderr


def test_nothing_outside_can_be_reached(cluster: Cluster) -> None:
    routes = cluster.head.run(["ip", "route"], check=True).stdout.splitlines()
    assert [route.split()[0] for route in routes] == ["10.99.0.0/24"]
    done = cluster.head.run([sys.executable, "-c", CONNECT, "192.0.2.1", "80"], timeout=30)
    assert "Network is unreachable" in done.stderr


def test_process_tables_are_private(cluster: Cluster) -> None:
    first = cluster["h1"].popen(["sleep", "1000"])
    try:
        wait_until(lambda: [process.argv for process in cluster["h1"].strays()] == [("sleep", "1000")])
        tables = {name: cluster[name].processes() for name in ("h1", "h2")}
        assert [table[0].pid for table in tables.values()] == [1, 1]
        assert any(process.argv == ("sleep", "1000") for process in tables["h1"])
        assert not any("sleep" in process.argv for process in tables["h2"])
        assert "sleep 1000" in cluster["h1"].run(["ps", "ax"]).stdout
        assert "sleep 1000" not in cluster["h2"].run(["ps", "ax"]).stdout
        assert [process.argv for process in cluster["h1"].strays()] == [("sleep", "1000")]
    finally:
        first.kill()
        first.wait()


def test_memory_files_and_temporary_files_are_private(cluster: Cluster, tmp_path: Path) -> None:
    for folder in ("/dev/shm", "/tmp", "/run", "/var/log", "~"):
        cluster["h1"].run(["sh", "-c", f"echo mine >{folder}/own"], check=True)
        assert cluster["h2"].run(["sh", "-c", f"test -e {folder}/own"]).returncode == 1
        assert not (Path(folder).expanduser() / "own").exists()
    assert cluster["h1"].path("/tmp/own").read_text() == "mine\n"
    cluster["h2"].path("/tmp/given").write_text("from the test")
    assert cluster["h2"].run(["cat", "/tmp/given"]).stdout == "from the test"
    assert cluster["h1"].run(["test", "-e", tmp_path]).returncode == 1


def test_the_machine_s_etc_is_read_not_written(cluster: Cluster) -> None:
    cluster["h1"].run(["sh", "-c", "echo changed >/etc/of-the-host; echo changed >>/etc/profile"], check=True)
    assert not Path("/etc/of-the-host").exists()
    assert "changed" not in Path("/etc/profile").read_text()


def test_repository_and_interpreter_are_at_the_same_path(cluster: Cluster) -> None:
    root, python = shlex.quote(str(ROOT)), shlex.quote(sys.executable)
    done = cluster.head.run(["ssh", "h4", f"cd {root} && {python} -c 'import sys; print(sys.prefix)' && ls"])
    assert done.stdout.splitlines()[0] == sys.prefix
    assert "CMakeLists.txt" in done.stdout.splitlines()


def test_shared_folder_is_one_folder(make_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster = make_cluster(2, share=[tmp_path])
    for host in cluster.hosts:
        host.run(["sh", "-c", f"hostname >{tmp_path}/{host.name}"], check=True)
    assert sorted(path.read_text() for path in tmp_path.iterdir()) == ["h1\n", "h2\n"]


def test_everybody_gets_to_what_is_shared_below_a_closed_folder(make_cluster: MakeCluster) -> None:
    """A clone in /root is such a folder. /var/tmp is the machine's on all hosts."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as closed:
        shared, beside = Path(closed) / "a place" / "shared", Path(closed) / "beside"
        shared.mkdir(parents=True)
        shared.parent.chmod(0o700)
        for file in (shared / "file", beside):
            file.write_text("the machine's\n")
        host = make_cluster(1, share=[shared])["h1"]
        assert host.run(["cat", shared / "file"], user="guest").stdout == "the machine's\n"
        assert host.run(["cat", beside]).stdout == "the machine's\n"
        host.run(["sh", "-c", 'echo changed | tee "$0" >"$1"', shared / "file", beside], check=True)
        assert (shared / "file").read_text() == "changed\n" and beside.read_text() == "the machine's\n"
        assert Path(closed).stat().st_mode & 0o777 == shared.parent.stat().st_mode & 0o777 == 0o700


def test_small_shared_memory(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2, only={"h2": {"shm_bytes": 64 * 1024}})
    fill = ["dd", "if=/dev/zero", "of=/dev/shm/file", "bs=128K", "count=1"]
    assert cluster["h1"].run(fill).returncode == 0
    full = cluster["h2"].run(fill)
    assert full.returncode == 1 and "No space left" in full.stderr


def test_wrong_clock(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2, only={"h2": {"clock_offset": 3600.0}})
    clocks = {}
    for name in cluster.names:
        done = cluster.head.run(["ssh", name, f'{shlex.quote(sys.executable)} -c "{WAITS}"'], timeout=60, check=True)
        clocks[name], waited = map(float, done.stdout.split())
        assert 0.4 <= waited < 30
    assert abs(clocks["h1"] - time.time()) < 30
    assert abs(clocks["h2"] - time.time() - 3600) < 30
    assert abs(float(cluster["h2"].run(["env", "-i", "/bin/date", "+%s"]).stdout) - time.time() - 3600) < 30


def test_monotonic_clocks_differ_between_hosts(cluster: Cluster) -> None:
    if not Path("/proc/self/ns/time").exists():
        pytest.skip("the kernel has no time namespaces")
    look = [sys.executable, "-c", "import time; print(time.monotonic())"]
    now = [float(host.run(look, check=True).stdout) for host in cluster.hosts]
    assert all(later - earlier > 90_000 for earlier, later in itertools.pairwise(now))
    assert float(cluster.head.run(["ssh", "h1", "cut -d' ' -f1 /proc/uptime"]).stdout) > 90_000


def test_another_python(make_cluster: MakeCluster, tmp_path: Path) -> None:
    other = tmp_path / "other-python"
    other.write_text("#!/bin/sh\necho another python: $*\n")
    other.chmod(0o755)
    cluster = make_cluster(2, share=[tmp_path], only={"h2": {"python": str(other)}})
    assert cluster.head.run(["ssh", "h2", "python3 -V"]).stdout == "another python: -V\n"
    assert cluster["h2"].run(["python", "-V"]).stdout == "another python: -V\n"
    assert "another" not in cluster.head.run(["ssh", "h1", "python3 -V"]).stdout


def test_interfaces_may_have_other_names_and_be_two(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2, second_interface="ib0", only={"h2": {"interface": "ens3", "second_interface": "ib1"}})
    names = {host.name: set(os.listdir(host.path("/sys/class/net"))) for host in cluster.hosts}
    seen = {name: cluster[name].run(["ls", "/sys/class/net"]).stdout.split() for name in names}
    assert seen == {"h1": ["eth0", "ib0", "lo"], "h2": ["ens3", "ib1", "lo"]}
    assert "Connection" not in cluster["h1"].run(["ssh", "-o", "BatchMode=yes", "h2", "true"], check=True).stderr
    banner = cluster["h1"].run([sys.executable, "-c", CONNECT, cluster["h2"].second_address, "22"], check=True)
    assert banner.stdout.startswith("SSH-")


def test_docker_s_bridge_leads_back_to_oneself(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2, docker_bridge=True)
    for host in cluster.hosts:
        server = host.popen([sys.executable, "-c", ANSWER, "5000"], stdout=-1, text=True)
        assert server.stdout is not None and server.stdout.readline() == "listening\n"
        asked = host.run([sys.executable, "-c", CONNECT, DOCKER_ADDRESS, "5000"], check=True)
        assert asked.stdout == f"{host.name}\n"
        server.communicate(timeout=30)


def test_a_program_on_a_host_is_a_child_of_the_test(cluster: Cluster) -> None:
    host = cluster["h1"]
    process = host.popen(["sleep", "1000"])
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == -signal.SIGTERM
    assert host.run(["sh", "-c", "exit 42"]).returncode == 42
    done = host.run(["sh", "-c", 'echo "$A $HOSTS $HOME $(pwd) $(hostname) $(id -u)"'], env={"A": "a b"})
    assert done.stdout == "a b h1,h2,h3,h4 /run/home/root /tmp h1 0\n"
    assert host.run(["sh", "-c", "id -un; pwd"], user="guest", cwd="/dev/shm").stdout == "guest\n/dev/shm\n"
    assert host.run(["id", "-un"], user="nobody").stdout == "nobody\n"
    assert host.run(["env"], env={}).stdout.count("PYTEST") == 0
    assert host.run(["no-such-program"]).returncode == 127


def test_orphans_go_to_the_host_s_first_process(cluster: Cluster) -> None:
    host = cluster["h2"]
    host.run(["sh", "-c", "setsid sleep 1000 </dev/null >/dev/null 2>&1 &"], check=True)
    # Wait: the process is setsid first, and during exec it has no command line.
    wait_until(lambda: [stray.argv[0] for stray in host.strays()] == ["sleep"])
    (orphan,) = host.strays()
    assert orphan.parent == 1
    host.run(["kill", str(orphan.pid)], check=True)
    wait_until(lambda: not host.path(f"/proc/{orphan.pid}").exists())


def test_agents_on_two_hosts_are_in_two_cgroups(cluster: Cluster) -> None:
    if not cluster.plan.cgroup:
        pytest.skip("this machine has no cgroup v2 in which groups may be made")
    look = "grep ^0:: /proc/self/cgroup"
    seen = [host.run(["sh", "-c", look], check=True).stdout for host in cluster.hosts]
    seen += [cluster.head.run(["ssh", name, look], check=True).stdout for name in cluster.names]
    assert seen[:4] == seen[4:] and len(set(seen)) == 4
