"""The faults of the network, and the switch's rules for them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .plan import HostPlan

Direction = Literal["in", "out", "both"]


@dataclass
class Faults:
    """Faults of the network. `drops` has pairs (from, to); "" means all hosts."""

    drops: set[tuple[str, str]] = field(default_factory=set)
    losses: dict[str, float] = field(default_factory=dict)  # host to percent, in each direction

    def drop(self, host: str, direction: Direction, peer: str = "") -> None:
        if direction in ("out", "both"):
            self.drops.add((host, peer))
        if direction in ("in", "both"):
            self.drops.add((peer, host))

    def heal(self, host: str) -> None:
        self.drops = {pair for pair in self.drops if host not in pair}
        self.losses.pop(host, None)


def rules(faults: Faults, hosts: list[HostPlan]) -> str:
    """The whole table for `nft -f -`, which replaces the old one atomically. The switch drops packets silently, as a
    network does. With a rule on the host, its programs would get an error. Loss spares ARP, which gives up after three
    tries."""
    ports = {host.name: "{ " + ", ".join(f'"{port}"' for port in host.ports) + " }" for host in hosts}
    lines = []
    for source, target in sorted(faults.drops):
        where = [f"iifname {ports[source]}"] if source else []
        where += [f"oifname {ports[target]}"] if target else []
        lines.append(" ".join([*where, "drop"]))
    for name, percent in sorted(faults.losses.items()):
        chance = f"ether type != arp numgen random mod 10000 < {round(percent * 100)} drop"
        lines += [f"iifname {ports[name]} {chance}", f"oifname {ports[name]} {chance}"]
    chain = "".join(f"    {line}\n" for line in lines)
    return (
        "add table bridge faults\ndelete table bridge faults\ntable bridge faults {\n  chain forward {\n"
        f"    type filter hook forward priority 0; policy accept;\n{chain}  }}\n}}\n"
    )
