"""The first process of the rig's pid namespace. It builds the hosts and ends with the process that uses the rig.

All processes of the rig are its descendants, so the kernel ends all of them with it, whatever happens to the tests.
rig.py runs it as `python -m cluster.keeper CONTROL PARENT`: a socket, and a pidfd of the process that uses the rig.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from typing import Any, NoReturn

from . import kernel
from .inside import Keys, be_host
from .plan import ClusterPlan, HostPlan, Setup, switch_commands

REFUSALS = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENODEV, errno.EINVAL)


def read_plan(text: str) -> ClusterPlan:
    raw = json.loads(text)
    hosts = [HostPlan(**{**host, "setup": Setup(**host["setup"])}) for host in raw.pop("hosts")]
    return ClusterPlan(hosts=hosts, **raw)


def make_keys(names: list[str]) -> Keys:
    """Makes one key pair for the user and one per host, in parallel."""
    folder = "/tmp/keys"
    os.mkdir(folder, 0o700)
    running = []
    for name in ["user", *names]:
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", f"{folder}/{name}"]
        running.append(subprocess.Popen(command, stdin=subprocess.DEVNULL))
    for process in running:
        if process.wait() != 0:
            raise RuntimeError("ssh-keygen failed")

    def pair(name: str) -> tuple[str, str]:
        with open(f"{folder}/{name}") as private, open(f"{folder}/{name}.pub") as public:
            return private.read(), public.read()

    return Keys(pair("user"), {name: pair(name) for name in names})


class Builder:
    """Builds the hosts and holds their first processes."""

    def __init__(self, plan: ClusterPlan) -> None:
        self.plan = plan
        self.inits: dict[str, int] = {}
        self.talks: dict[str, socket.socket] = {}

    def apart(self) -> None:
        kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWNET | kernel.CLONE_NEWUTS | kernel.CLONE_NEWIPC)
        socket.sethostname("switch")
        kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
        kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)

    def fork_hosts(self, keys: Keys) -> None:
        own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        for host in self.plan.hosts:
            if self.plan.time_namespaces:
                kernel.unshare(kernel.CLONE_NEWTIME)
                with open("/proc/self/timens_offsets", "w") as offsets:
                    offsets.write(f"monotonic {host.uptime} 0\nboottime {host.uptime} 0\n")
            kernel.unshare(kernel.CLONE_NEWPID)
            here, there = socket.socketpair()
            pid = os.fork()
            if pid == 0:
                here.close()
                self.child(host, keys, there)
            # A second unshare needs a thread whose children would be in its own pid namespace, so go back to it.
            kernel.setns(own, kernel.CLONE_NEWPID)
            there.close()
            self.inits[host.name], self.talks[host.name] = pid, here
        os.close(own)

    def child(self, host: HostPlan, keys: Keys, talk: socket.socket) -> NoReturn:
        try:
            be_host(host, self.plan, keys, talk)
        except BaseException as error:
            talk.sendall((describe(error) + "\n").encode())
        finally:
            os._exit(1)

    def expect(self, word: str) -> None:
        for name, talk in self.talks.items():
            said = talk.makefile().readline().strip()
            if said != word:
                kind, _, text = said.partition(" ")
                raise Refused(kind, f"{name}: {text or 'ended without a word'}")

    def connect(self) -> None:
        commands = switch_commands(self.plan.hosts, self.inits)
        done = subprocess.run(["ip", "-batch", "-"], input=commands, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"the switch: {done.stderr.strip()}")
        for talk in self.talks.values():
            talk.sendall(b"go\n")

    def build(self) -> None:
        self.apart()
        kernel.mount("tmpfs", "/tmp", "tmpfs", data="mode=700")
        keys = make_keys([host.name for host in self.plan.hosts])
        # The hosts need the machine's /tmp, because they may share folders in it.
        kernel.umount("/tmp")
        for host in self.plan.hosts if self.plan.cgroup else ():
            os.makedirs(f"{self.plan.cgroup}/{host.name}")
        self.fork_hosts(keys)
        self.expect("apart")
        self.connect()
        self.expect("ready")

    def end(self) -> None:
        for pid in self.inits.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.plan.cgroup:
            remove_cgroup(self.plan.cgroup)


class Refused(RuntimeError):
    """The failure of a host's first process."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind or "failed"


def describe(error: BaseException) -> str:
    """The kind of error (the machine cannot do this, or the rig failed) and its text."""
    kind = "unavailable" if isinstance(error, OSError) and error.errno in REFUSALS else "failed"
    return f"{kind} {type(error).__name__}: {error}".replace("\n", "; ")


def remove_cgroup(folder: str, seconds: float = 5.0) -> None:
    """Retries, because a killed process leaves its cgroup a moment later."""
    deadline = time.monotonic() + seconds
    while os.path.isdir(folder) and time.monotonic() < deadline:
        for path, _, _ in os.walk(folder, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(path)
        time.sleep(0.005)


def wait_for_the_end(control: socket.socket, parent: int) -> None:
    """Reaps processes until the user of the rig closes its end of the socket or ends."""
    signal.signal(signal.SIGCHLD, lambda *_: None)
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0] != 0:
                pass
        ready, _, _ = select.select([control.fileno(), parent, reader], [], [])
        if control.fileno() in ready or parent in ready:
            return
        os.read(reader, 4096)


def answer(control: socket.socket, message: dict[str, Any], descriptors: list[int]) -> None:
    socket.send_fds(control, [json.dumps(message).encode()], descriptors)


def main() -> None:
    os.chdir("/")
    control = socket.socket(fileno=int(sys.argv[1]))
    builder = Builder(read_plan(control.recv(1 << 20).decode()))
    try:
        builder.build()
    except Exception as error:
        kind = error.kind if isinstance(error, Refused) else describe(error).split(" ", 1)[0]
        answer(control, {"kind": kind, "error": str(error)}, [])
    else:
        hosts = [os.pidfd_open(pid) for pid in builder.inits.values()]
        answer(control, {"hosts": list(builder.inits)}, hosts)
        for descriptor in hosts:
            os.close(descriptor)
        wait_for_the_end(control, int(sys.argv[2]))
    finally:
        builder.end()


if __name__ == "__main__":
    main()
