"""Hosts in a box: a cluster of hosts on this machine, for tests that cross hosts.

    with Cluster(4) as cluster:
        cluster.head.run(["ssh", "h1", "hostname"])
        cluster["h2"].kill()

Every host has its own network, host name, processes, /tmp, /run, /dev/shm, home and sshd. The rest of the file system
is the machine's. docs/internals/hosts-in-a-box.md has the rules, plan.py the features of a host.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from . import kernel
from .faults import Direction, Faults, rules
from .plan import GUEST, HEAD, HOMES, PATH, ClusterPlan, HostPlan, Setup, host_plans
from .slurm import Slurm, why_no_slurm

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
START_SECONDS = 60.0
END_SECONDS = 10.0
WRONG_CLOCK = HERE / "wrong_clock.c"
COMMANDS = {
    "ip": "iproute2",
    "nft": "nftables",
    "nsenter": "util-linux",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "sshd": "openssh-server",
}
_sequence = itertools.count()

Result = subprocess.CompletedProcess[str]


class Unavailable(RuntimeError):
    """This machine cannot have hosts in a box. The text has the reason."""


class HostDown(RuntimeError):
    """The host was killed."""


@dataclass(frozen=True)
class Process:
    """A line of a host's process table."""

    pid: int
    parent: int
    user: int
    argv: tuple[str, ...]


def why_unavailable() -> str:
    """The reason why this machine cannot have hosts in a box, as far as it is known without trying. Empty if there is
    none."""
    if sys.platform != "linux":
        return "hosts in a box need Linux"
    if os.geteuid() != 0:
        return "hosts in a box need root: network, mount and pid namespaces, sshd"
    missing = sorted({package for command, package in COMMANDS.items() if not shutil.which(command, path=PATH)})
    return f"hosts in a box need the packages {', '.join(missing)}" if missing else ""


def cgroup_root() -> Path | None:
    """The folder of this process's cgroup v2, if groups can be created there."""
    with open("/proc/mounts") as mounts:
        places = [fields[1] for fields in (line.split() for line in mounts) if fields[2] == "cgroup2"]
    own = [line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")]
    if not places or not own:
        return None
    folder = Path(places[0]) / own[0].lstrip("/")
    return folder if os.access(folder, os.W_OK) else None


def locked(folder: Path) -> int | None:
    """A descriptor that holds the folder's lock, which marks the owner. None if another process has it or the folder is
    gone."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if folder.is_dir():
            return descriptor
    os.close(descriptor)
    return None


def remove_old_cgroups(root: Path) -> None:
    """Removes cgroups of rigs whose user and keeper were killed. The lock of such a group is free."""
    for folder in root.glob("distrun-rig-*"):
        lock = locked(folder)
        if lock is None:
            continue
        for path, _, _ in os.walk(folder, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(path)
        os.close(lock)


@contextlib.contextmanager
def children_in(pid_namespace: int, unshare: bool = False) -> Iterator[None]:
    """Processes that this thread starts in this context get the given pid namespace (a pidfd), or a new one. They
    remain children of this process, so that subprocess can wait for them."""
    own = os.open("/proc/thread-self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if unshare:
            kernel.unshare(kernel.CLONE_NEWPID)
        else:
            kernel.setns(pid_namespace, kernel.CLONE_NEWPID)
        yield
    finally:
        kernel.setns(own, kernel.CLONE_NEWPID)
        os.close(own)


class Host:
    """One host of a running cluster."""

    def __init__(self, plan: HostPlan, cluster: Cluster, init: int) -> None:
        self.plan = plan
        self.name = plan.name
        self.address = plan.address
        self.address6 = plan.address6
        self.second_address = plan.second_address
        self._cluster = cluster
        self._init = init  # a pidfd
        self._cut = False
        self._started: list[subprocess.Popen[Any]] = []
        # not strays; the last two exist in newer versions of OpenSSH
        self.services = {"sshd:", "sshd-session:", "sshd-auth:"}
        self._pid = pid_of(init)

    def __repr__(self) -> str:
        return f"Host({self.name}, {self.address})"

    @property
    def together(self) -> list[Host]:
        """All hosts of its cluster, with the head."""
        return [self._cluster.head, *self._cluster.hosts]

    @property
    def alive(self) -> bool:
        return self._init >= 0 and not select.select([self._init], [], [], 0)[0]

    def environment(self, user: str = "root") -> dict[str, str]:
        """The environment of a session on the host. It has nothing of the caller's environment."""
        home = f"{HOMES}/{user}" if user in ("root", GUEST) else "/"
        account = {"HOME": home, "USER": user, "LOGNAME": user, "SHELL": "/bin/bash", "LANG": "C.UTF-8"}
        return account | self.plan.environment() | {"HOSTS": ",".join(self._cluster.names)}

    def popen(
        self,
        argv: Sequence[str | Path],
        env: Mapping[str, str] | None = None,
        user: str = "root",
        cwd: str | Path = "/tmp",
        **options: Any,
    ) -> subprocess.Popen[Any]:
        """Starts a program on the host as a child of this process. Signals, exit code and pipes are those of the
        program. `env` adds to the host's environment. The options are those of subprocess.Popen."""
        if not self.alive:
            raise HostDown(f"{self.name} was killed")
        options = {"stdin": subprocess.DEVNULL, "start_new_session": True, **options}
        environment = self.environment(user) | dict(env or {})
        with children_in(self._init):
            process = subprocess.Popen([*self._entry(user, cwd), *map(str, argv)], env=environment, **options)
        self._unreaped()
        self._started.append(process)
        return process

    def _entry(self, user: str, cwd: str | Path) -> list[str]:
        spaces = ["mnt", "net", "uts", "ipc"] + (["time"] if self._cluster.plan.time_namespaces else [])
        option = {"mnt": "mount"}
        out = ["nsenter", *(f"--{option.get(space, space)}=/proc/{self._pid}/ns/{space}" for space in spaces), "--"]
        if self._cluster.plan.cgroup:
            joined = f"{self._cluster.plan.cgroup}/{self.name}/cgroup.procs"
            out = ["/bin/sh", "-c", 'echo 0 >"$0" && exec "$@"', joined, *out]
        out += ["env", f"--chdir={cwd}"]
        if user != "root":
            group = GUEST if user == GUEST else str(pwd.getpwnam(user).pw_gid)
            out += ["setpriv", f"--reuid={user}", f"--regid={group}", "--init-groups"]
        return out

    def run(
        self,
        argv: Sequence[str | Path],
        env: Mapping[str, str] | None = None,
        user: str = "root",
        timeout: float = 60.0,
        check: bool = False,
        input: str | None = None,
        **options: Any,
    ) -> Result:
        """Runs a program on the host to its end. Its outputs are text."""
        pipe = subprocess.PIPE
        options = {"stdout": pipe, "stderr": pipe, "text": True, **options}
        if input is not None:
            options["stdin"] = pipe
        process = self.popen(argv, env, user, **options)
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            process.wait()
            raise
        if check and process.returncode != 0:
            raise AssertionError(f"{self.name}: {list(argv)} ended with {process.returncode}:\n{out}{err}")
        return subprocess.CompletedProcess(list(map(str, argv)), process.returncode, out, err)

    def path(self, path: str | Path) -> Path:
        """The path of a file of the host for the caller to read or write, also in the host's private folders."""
        return Path(f"/proc/{self._pid}/root") / str(path).lstrip("/")

    def processes(self) -> list[Process]:
        """The host's process table, without zombies. The first process and sshd are always in it."""
        found = []
        for folder in self.path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                argv = (folder / "cmdline").read_bytes().rstrip(b"\0").decode(errors="replace").split("\0")
                parent = int((folder / "stat").read_text().rpartition(") ")[2].split()[1])
                if argv != [""]:
                    found.append(Process(int(folder.name), parent, folder.stat().st_uid, tuple(argv)))
        return sorted(found, key=lambda process: process.pid)

    def strays(self) -> list[Process]:
        """The processes other than the host's first one and its services. After a job, these are the processes that it
        left."""
        return [each for each in self.processes() if each.pid != 1 and each.argv[0].split()[0] not in self.services]

    def kill(self) -> None:
        """Like a power cut. First its cables are cut, so that no goodbye gets out, then all its processes are
        killed."""
        self._cluster.on_switch("".join(f"link del {port}\n" for port in self.plan.ports))
        self.end()

    def link_down(self) -> None:
        """Pulls its cables. The host sees that it has no carrier."""
        self._cut = True
        self._cluster.on_switch("".join(f"link set {port} down\n" for port in self.plan.ports))

    def link_up(self) -> None:
        self._cluster.on_switch("".join(f"link set {port} up\n" for port in self.plan.ports))
        if self._cut:
            # A host that was asking for its hardware address would go on to fail for up to three seconds.
            for host in [self._cluster.head, *self._cluster.hosts]:
                if host._init >= 0:
                    host.run(["ip", "neigh", "flush", "all"])
        self._cut = False

    def drop(self, direction: Direction = "both", peer: str = "") -> None:
        """The network loses the packets that go "out" of the host, come "in", or both. With `peer`, only those between
        the two. No program gets an error."""
        self._cluster.change_faults(lambda faults: faults.drop(self.name, direction, peer))

    def loss(self, percent: float) -> None:
        """The network loses this share of the packets to and from the host."""
        self._cluster.change_faults(lambda faults: faults.losses.update({self.name: percent}))

    def heal(self) -> None:
        """Ends the effects of drop, loss and link_down."""
        self._cluster.change_faults(lambda faults: faults.heal(self.name))
        self.link_up()

    def end(self) -> None:
        """Kills all processes and waits until they are gone. The first process of a pid namespace cannot end before
        this process has waited for the children that it started in there."""
        if self._init < 0:
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._init, signal.SIGKILL)
        deadline = time.monotonic() + END_SECONDS
        while self._unreaped() or self.alive:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} does not end")
            select.select([self._init], [], [], 0.005)
        os.close(self._init)
        self._init = -1

    def _unreaped(self) -> bool:
        self._started = [process for process in self._started if process.poll() is None]
        return bool(self._started)


def pid_of(pidfd: int) -> int:
    """The pid of the process in our own pid namespace."""
    with open(f"/proc/self/fdinfo/{pidfd}") as info:
        return int(next(line for line in info if line.startswith("Pid:")).split()[1])


def set_wrong_clock(host: Host, seconds: float) -> None:
    """For every program that starts on the host from now on. Linux has no namespace for the wall clock. libfaketime
    0.9.10 breaks waiting: time.sleep fails, or locks wait for hours, depending on whether it fakes the monotonic clock
    too."""
    if shutil.which("cc") is None:
        raise Unavailable("a wrong clock needs a C compiler")
    library = "/run/wrong_clock.so"
    offset = f"-DOFFSET_NS={round(seconds * 1e9)}LL"
    host.run(["cc", "-O1", "-shared", "-fPIC", offset, "-o", library, WRONG_CLOCK], check=True)
    host.path("/etc/ld.so.preload").write_text(library + "\n")


class Cluster:
    """The hosts h1 to hN and the host `head`. Keyword arguments are those of Setup and hold for all hosts. `only` has
    the hosts that differ: Cluster(4, shm_bytes=1 << 20, only={"h2": {"clock_offset": 3600}}). `share` names folders in
    a private folder that all hosts share, such as pytest's tmp_path."""

    def __init__(
        self,
        count: int,
        *,
        only: Mapping[str, Mapping[str, Any]] | None = None,
        share: Sequence[str | Path] = (),
        **setup: Any,
    ) -> None:
        common = Setup(**setup)
        differing = {name: replace(common, **fields) for name, fields in (only or {}).items()}
        hosts = host_plans(count, common, differing)
        # The interpreter of .venv may be in another folder.
        places = [ROOT, *(Path(path).resolve(strict=True) for path in (sys.prefix, sys.base_prefix, *share))]
        self.plan = ClusterPlan(hosts, list(dict.fromkeys(map(str, places))))
        self.names = [host.name for host in hosts if host.name != HEAD]
        self._hosts: dict[str, Host] = {}
        self._faults = Faults()
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._keeper: subprocess.Popen[bytes] | None = None
        self._cgroup_lock: int | None = None

    def __enter__(self) -> Cluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    @property
    def head(self) -> Host:
        return self._hosts[HEAD]

    @property
    def hosts(self) -> list[Host]:
        """All hosts without the head."""
        return [self._hosts[name] for name in self.names]

    def start(self) -> None:
        reason = why_unavailable()
        if reason:
            raise Unavailable(reason)
        self.plan = replace(self.plan, cgroup=self._make_cgroup(), time_namespaces=os.path.exists("/proc/self/ns/time"))
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self._start_keeper(theirs)
            self._meet()
        except BaseException:
            self.close()
            raise

    def _make_cgroup(self) -> str:
        """Each host needs its own group: agents on two hosts may have the same pid, and the groups of their ranks the
        same name."""
        root = cgroup_root()
        if root is None:
            return ""
        remove_old_cgroups(root)
        while self._cgroup_lock is None:
            folder = root / f"distrun-rig-{os.getpid()}-{time.time_ns():x}-{next(_sequence)}"
            try:
                folder.mkdir()
            except OSError:
                return ""
            # Before the lock, another rig may take the folder for an old one and remove it.
            self._cgroup_lock = locked(folder)
        return str(folder)

    def _start_keeper(self, theirs: socket.socket) -> None:
        parent = os.pidfd_open(os.getpid())
        command = [sys.executable, "-E", "-s", "-S", "-m", "cluster.keeper", str(theirs.fileno()), str(parent)]
        try:
            with children_in(-1, unshare=True):
                self._keeper = subprocess.Popen(
                    command,
                    pass_fds=(theirs.fileno(), parent),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env={"PATH": PATH, "LANG": "C.UTF-8"},
                    cwd=HERE.parent,
                    start_new_session=True,
                )
        except OSError as error:
            raise Unavailable(f"hosts in a box need namespaces: {error}") from error
        finally:
            os.close(parent)

    def _meet(self) -> None:
        assert self._control is not None
        self._control.settimeout(START_SECONDS)
        self._control.sendall(json.dumps(asdict(self.plan)).encode())
        data, descriptors, _, _ = socket.recv_fds(self._control, 1 << 20, len(self.plan.hosts))
        answer = json.loads(data or '{"kind": "failed", "error": "the keeper ended without a word"}')
        if "error" in answer:
            text = f"hosts in a box: {answer['error']}"
            raise Unavailable(text) if answer["kind"] == "unavailable" else RuntimeError(text)
        for plan, init in zip(self.plan.hosts, descriptors, strict=True):
            os.set_inheritable(init, False)
            self._hosts[plan.name] = Host(plan, self, init)
            if plan.setup.clock_offset:
                set_wrong_clock(self._hosts[plan.name], plan.setup.clock_offset)

    def close(self) -> None:
        """Ends all hosts and the keeper, and waits until they are gone."""
        for host in self._hosts.values():
            host.end()
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._keeper is not None:
            try:
                self._keeper.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self._keeper.kill()
                self._keeper.wait()
            self._keeper = None
        if self._cgroup_lock is not None:
            os.close(self._cgroup_lock)
            self._cgroup_lock = None
            remove_old_cgroups(Path(self.plan.cgroup).parent)

    def slurm(self, cpus: int = 2, node_timeout: int = 10) -> Slurm:
        """Starts Slurm. All hosts but the head are its nodes. A node that is silent for `node_timeout` seconds is
        down."""
        reason = why_no_slurm()
        if reason:
            raise Unavailable(reason)
        return Slurm(self, cpus, node_timeout)

    def change_faults(self, change: Any) -> None:
        with self._lock:
            change(self._faults)
            self._in_switch(["nft", "-f", "-"], rules(self._faults, self.plan.hosts))

    def on_switch(self, commands: str) -> None:
        """Runs `ip` commands in the namespace where the hosts' cables end."""
        self._in_switch(["ip", "-batch", "-"], commands)

    def _in_switch(self, command: list[str], text: str) -> None:
        assert self._keeper is not None, "the cluster is closed"
        entry = ["nsenter", f"--net=/proc/{self._keeper.pid}/ns/net", "--"]
        done = subprocess.run(
            [*entry, *command], input=text, capture_output=True, text=True, env={"PATH": PATH}, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}\n{text}")
