"""The plan of the rig, as values: hosts, addresses and their special features. Pure; both sides of the rig read it."""

from __future__ import annotations

from dataclasses import dataclass, field

HEAD = "head"
GUEST = "guest"  # a second account on every host, for tests of what another user can see or do
HOMES = "/run/home"
OWN_PYTHON = "/run/python"
DOCKER_ADDRESS = "172.17.0.1"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# These are private to a host. The rest is the machine's file system, at the same paths on every host.
PRIVATE = ("/tmp", "/run", "/dev/shm", "/var/log")
MOST_HOSTS = 200


@dataclass(frozen=True)
class Setup:
    """The features of a host. The fields are the keyword arguments of Cluster."""

    shm_bytes: int = 256 << 20  # the size of its /dev/shm
    clock_offset: float = 0.0  # the error of its wall clock in seconds; see wrong_clock.c
    python: str = ""  # an interpreter that its PATH finds first, as python and python3
    interface: str = "eth0"
    second_interface: str = ""  # the name of an interface on a second network; not in /etc/hosts
    docker_bridge: bool = False  # has docker0, with the address that docker gives it on every host
    loopback_alias: bool = True  # its /etc/hosts maps its name to 127.0.1.1, as Debian's installer does


@dataclass(frozen=True)
class HostPlan:
    """One host, with all that is needed to build it."""

    name: str
    number: int
    setup: Setup

    @property
    def address(self) -> str:
        return f"10.99.0.{self.number}"

    @property
    def address6(self) -> str:
        return f"fd99::{self.number:x}"

    @property
    def second_address(self) -> str:
        return f"10.88.0.{self.number}" if self.setup.second_interface else ""

    @property
    def ports(self) -> tuple[str, ...]:
        """The names of its ports on the switch, one for each network."""
        return (self.name, f"{self.name}.2") if self.setup.second_interface else (self.name,)

    @property
    def uptime(self) -> int:
        """The difference between its monotonic clock and the machine's, in seconds. No two hosts have the same
        uptime."""
        return 100_000 * (self.number % 100 + 1)

    def environment(self) -> dict[str, str]:
        """The environment of every session on the host, besides the variables of the account."""
        return {"PATH": f"{OWN_PYTHON}:{PATH}" if self.setup.python else PATH}


@dataclass(frozen=True)
class ClusterPlan:
    hosts: list[HostPlan]
    share: list[str] = field(default_factory=list)  # folders below a private one that all hosts share
    cgroup: str = ""  # a folder of cgroup v2; every host gets a group in it
    time_namespaces: bool = True


def host_plans(count: int, common: Setup, only: dict[str, Setup]) -> list[HostPlan]:
    """The hosts h1 to hN and the head. `only` has the setup of hosts that differ."""
    if not 1 <= count <= MOST_HOSTS:
        raise ValueError(f"{count} hosts: 1 to {MOST_HOSTS} are possible")
    numbers = {f"h{number}": number for number in range(1, count + 1)} | {HEAD: 254}
    unknown = sorted(set(only) - set(numbers))
    if unknown:
        raise ValueError(f"there is no host {', '.join(unknown)}; the hosts are h1 to h{count} and {HEAD}")
    return [HostPlan(name, number, only.get(name, common)) for name, number in numbers.items()]


def hosts_file(own: HostPlan, everyone: list[HostPlan]) -> str:
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost"]
    if own.setup.loopback_alias:
        lines.append(f"127.0.1.1 {own.name}")
    lines += [f"{host.address} {host.name}" for host in everyone]
    return "\n".join(lines) + "\n"


def sshd_config(host: HostPlan, ipv6: bool) -> str:
    lines = [
        "ListenAddress 0.0.0.0",
        *(["ListenAddress ::"] if ipv6 else []),
        "HostKey /etc/ssh/host_key",
        "AuthorizedKeysFile /etc/ssh/authorized_keys",
        "UsePAM no",
        "UseDNS no",
        "PidFile none",
        "PermitRootLogin prohibit-password",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PrintMotd no",
        "AcceptEnv LANG LC_*",
        "Subsystem sftp internal-sftp",
        "SetEnv " + " ".join(f'"{name}={value}"' for name, value in host.environment().items()),
    ]
    return "\n".join(lines) + "\n"


def interface_commands(host: HostPlan, ipv6: bool) -> str:
    """Commands for `ip -batch` in the host's network namespace."""
    first, second = host.setup.interface, host.setup.second_interface
    lines = ["link set lo up", f"address add {host.address}/24 dev {first}"]
    if ipv6:
        # Without duplicate address detection, the address works at once.
        lines.append(f"address add {host.address6}/64 dev {first} nodad")
    lines.append(f"link set {first} up")
    if second:
        lines += [f"address add {host.second_address}/24 dev {second}", f"link set {second} up"]
    if host.setup.docker_bridge:
        lines += [
            "link add docker0 type bridge",
            f"address add {DOCKER_ADDRESS}/16 dev docker0",
            "link set docker0 up",
        ]
    return "\n".join(lines) + "\n"


def switch_commands(hosts: list[HostPlan], inits: dict[str, int]) -> str:
    """Commands for `ip -batch` in the switch's network namespace. Each network has a bridge, with one cable to each
    host."""
    lines = ["link set lo up", "link add net1 type bridge", "link add net2 type bridge"]
    for host in hosts:
        ends = zip(host.ports, (host.setup.interface, host.setup.second_interface), ("net1", "net2"), strict=False)
        for port, interface, bridge in ends:
            lines.append(f"link add {port} type veth peer name {interface} netns {inits[host.name]}")
            lines.append(f"link set {port} master {bridge} up")
    lines += ["link set net1 up", "link set net2 up"]
    return "\n".join(lines) + "\n"
