"""Runs as the first process of a host: makes the host's file system, starts sshd, and reaps processes."""

from __future__ import annotations

import contextlib
import os
import pwd
import selectors
import signal
import socket
import stat
import subprocess
from pathlib import Path
from typing import NoReturn

from . import kernel, plan
from .plan import GUEST, HOMES, OWN_PYTHON, PRIVATE, ClusterPlan, HostPlan

SSHD = "/usr/sbin/sshd"
ETC_LAYER = "/run/.etc"
OPEN_LAYER = "/run/.open"
GUEST_ID = 4711
IPV6 = os.path.exists("/proc/sys/net/ipv6")
# Mounting /sys hides this tree, which the host's agents need. It is mounted again into the host's /sys.
CGROUPS = "/sys/fs/cgroup"


class Keys:
    """The key of the cluster's user and the key of every host, as file contents."""

    def __init__(self, user: tuple[str, str], hosts: dict[str, tuple[str, str]]) -> None:
        self.user = user
        self.hosts = hosts

    def known_hosts(self, cluster: ClusterPlan) -> str:
        return "".join(
            f"{host.name},{host.address},{host.address6} {self.hosts[host.name][1]}" for host in cluster.hosts
        )


def write(path: str, text: str, mode: int = 0o644, owner: int = 0) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w") as file:
        file.write(text)
    os.chown(path, owner, owner)


def below_private(path: str) -> bool:
    return any(path == folder or path.startswith(folder + "/") for folder in PRIVATE)


def closed_folder(path: str) -> str:
    """The first folder on the way to `path` that only its owner may enter, such as /root. Empty if there is none."""
    above = [str(folder) for folder in reversed(Path(path).parents)]
    return next((folder for folder in above if not os.stat(folder).st_mode & stat.S_IXOTH), "")


def open_folders(paths: list[str]) -> None:
    """Lets other users reach `paths`, because a host's guest also runs programs there. The contents of the folders
    above stay visible. Files that the host writes into them, beside `paths`, stay private to the host."""
    for number, folder in enumerate(dict.fromkeys(map(closed_folder, paths))):
        layer = f"{OPEN_LAYER}/{number}"
        for path in paths:
            if path.startswith(folder + "/"):
                os.makedirs(f"{layer}/upper{os.path.dirname(path)[len(folder) :]}", mode=0o755, exist_ok=True)
        os.makedirs(f"{layer}/work")
        layers = f"lowerdir={folder},upperdir={layer}/upper,workdir={layer}/work"
        kernel.mount("overlay", folder, "overlay", data=layers)


def mount_shared(host: HostPlan, share: list[str]) -> None:
    """Mounts empty folders that are private to the host. Shared paths below them appear again at the same place, and so
    do those in folders that are opened."""
    closed = [path for path in share if not below_private(path) and closed_folder(path)]
    kept = {path: os.open(path, os.O_PATH) for path in share if below_private(path) or path in closed}
    for folder in PRIVATE:
        size = f",size={host.setup.shm_bytes}" if folder == "/dev/shm" else ""
        mode = "1777" if folder in ("/tmp", "/dev/shm") else "755"
        kernel.mount("tmpfs", folder, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, f"mode={mode}{size}")
    open_folders(closed)
    for path, descriptor in kept.items():
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            os.makedirs(path, exist_ok=True)
        else:
            write(path, "")
        kernel.mount(f"/proc/self/fd/{descriptor}", path, flags=kernel.MS_BIND | kernel.MS_REC)
        os.close(descriptor)


def mount_system() -> None:
    """Mounts /proc with the host's processes and /sys with the host's interfaces."""
    quiet = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    kernel.mount("proc", "/proc", "proc", quiet)
    cgroups = os.open(CGROUPS, os.O_PATH) if os.path.isdir(CGROUPS) else -1
    kernel.mount("sysfs", "/sys", "sysfs", quiet)
    if cgroups >= 0:
        kernel.mount(f"/proc/self/fd/{cgroups}", CGROUPS, flags=kernel.MS_BIND | kernel.MS_REC)
        os.close(cgroups)


def accounts() -> tuple[str, str]:
    """passwd and shadow: the accounts of the machine, root with the host's own home, and a guest."""
    passwd, shadow = [], []
    for entry in pwd.getpwall():
        home = f"{HOMES}/{entry.pw_name}" if entry.pw_uid == 0 else entry.pw_dir
        shell = "/bin/bash" if entry.pw_uid == 0 else entry.pw_shell
        passwd.append(f"{entry.pw_name}:x:{entry.pw_uid}:{entry.pw_gid}:{entry.pw_gecos}:{home}:{shell}")
        shadow.append(f"{entry.pw_name}:*:1::::::")
    passwd.append(f"{GUEST}:x:{GUEST_ID}:{GUEST_ID}::{HOMES}/{GUEST}:/bin/bash")
    shadow.append(f"{GUEST}:*:1::::::")
    return "\n".join(passwd) + "\n", "\n".join(shadow) + "\n"


def groups() -> str:
    with open("/etc/group") as file:
        return file.read().rstrip("\n") + f"\n{GUEST}:x:{GUEST_ID}:\n"


def write_etc(host: HostPlan, cluster: ClusterPlan, keys: Keys) -> None:
    """Writes the host's files in /etc, as a layer above the machine's."""
    passwd, shadow = accounts()
    files = {
        "hosts": plan.hosts_file(host, cluster.hosts),
        "hostname": host.name + "\n",
        "resolv.conf": "",
        "passwd": passwd,
        "group": groups(),
        "ssh/ssh_config": "",
        "ssh/ssh_known_hosts": keys.known_hosts(cluster),
        "ssh/sshd_config": plan.sshd_config(host, IPV6),
        "ssh/authorized_keys": keys.user[1],
    }
    for name, text in files.items():
        write(f"{ETC_LAYER}/upper/{name}", text)
    write(f"{ETC_LAYER}/upper/shadow", shadow, 0o600)
    write(f"{ETC_LAYER}/upper/ssh/host_key", keys.hosts[host.name][0], 0o600)
    os.makedirs(f"{ETC_LAYER}/work")
    layers = f"lowerdir=/etc,upperdir={ETC_LAYER}/upper,workdir={ETC_LAYER}/work"
    kernel.mount("overlay", "/etc", "overlay", data=layers)


def write_homes(keys: Keys) -> None:
    for name, owner in (("root", 0), (GUEST, GUEST_ID)):
        home = f"{HOMES}/{name}"
        write(f"{home}/.ssh/id_ed25519", keys.user[0], 0o600, owner)
        write(f"{home}/.ssh/id_ed25519.pub", keys.user[1], 0o644, owner)
        for folder, mode in ((home, 0o755), (f"{home}/.ssh", 0o700)):
            os.chmod(folder, mode)
            os.chown(folder, owner, owner)


def write_python(interpreter: str) -> None:
    """Writes a script, not a link. The interpreter then finds its library from its own path."""
    for name in ("python", "python3"):
        write(f"{OWN_PYTHON}/{name}", f'#!/bin/sh\nexec "{interpreter}" "$@"\n')
        os.chmod(f"{OWN_PYTHON}/{name}", 0o755)


def make_file_system(host: HostPlan, cluster: ClusterPlan, keys: Keys) -> None:
    os.umask(0o022)
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    mount_system()
    mount_shared(host, cluster.share)
    write_etc(host, cluster, keys)
    write_homes(keys)
    if host.setup.python:
        write_python(host.setup.python)
    os.makedirs("/run/sshd", mode=0o755)


def start_network(host: HostPlan) -> None:
    command = ["ip", "-batch", "-"]
    done = subprocess.run(
        command, input=plan.interface_commands(host, IPV6), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"its interfaces: {done.stderr.strip()}")


def start_sshd() -> int:
    """Returns sshd's standard error after sshd listens."""
    reader, writer = os.pipe()
    environment = {"PATH": plan.PATH, "LANG": "C.UTF-8"}
    null = subprocess.DEVNULL
    subprocess.Popen([SSHD, "-D", "-e"], stdin=null, stdout=null, stderr=writer, env=environment, cwd="/")
    os.close(writer)
    heard = b""
    while heard.count(b"Server listening on") < (2 if IPV6 else 1):
        more = os.read(reader, 4096)
        if not more:
            raise RuntimeError(f"sshd did not start: {heard.decode(errors='replace').strip()}")
        heard += more
    return reader


def reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass


def serve(sshd_says: int) -> NoReturn:
    """The two tasks of a host's first process: it reaps orphans and writes sshd's log."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    reap()
    selector = selectors.DefaultSelector()
    selector.register(reader, selectors.EVENT_READ)
    selector.register(sshd_says, selectors.EVENT_READ)
    log = os.open("/run/sshd.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    while True:
        for key, _ in selector.select():
            data = os.read(key.fd, 65536)
            if key.fd == reader:
                reap()
            elif data:
                os.write(log, data)
            else:
                selector.unregister(sshd_says)


def be_host(host: HostPlan, cluster: ClusterPlan, keys: Keys, keeper: socket.socket) -> NoReturn:
    """Sends "apart" after it has its namespaces and files, waits for its cables, sends "ready", and serves for ever."""
    if cluster.cgroup:
        with open(f"{cluster.cgroup}/{host.name}/cgroup.procs", "w") as file:
            file.write("0")
    kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWUTS | kernel.CLONE_NEWIPC)
    socket.sethostname(host.name)
    make_file_system(host, cluster, keys)
    keeper.sendall(b"apart\n")
    if not keeper.recv(16):
        raise RuntimeError("the rig ended while it was built")
    start_network(host)
    log = start_sshd()
    keeper.sendall(b"ready\n")
    keeper.close()
    os.chdir("/")
    serve(log)
