"""Faults of the network and killed hosts: their effect on one host, and that the other hosts are not affected."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from .conftest import MakeCluster
from .rig import Cluster, Host, HostDown

REACH = "import socket, sys; socket.create_connection((sys.argv[1], 22), float(sys.argv[2])).recv(1)"
RECEIVE = """
import socket, sys
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)  # SO_RCVBUFFORCE: nothing is lost but by the network
receiver.bind(("0.0.0.0", 7000))
print("bound", flush=True)
count = 0
while receiver.recv(100) != b"last":
    count += 1
print(count)
"""
SEND = """
import socket, sys
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(int(sys.argv[2])):
    sender.sendto(sys.argv[3].encode(), (sys.argv[1], 7000))
"""
HOLD = """
import socket, sys
listener = socket.create_server(("0.0.0.0", 7000))
print("listening", flush=True)
held = listener.accept()
print("accepted", flush=True)
sys.stdin.read()
"""
WATCH = """
import socket, sys
peer = socket.create_connection((sys.argv[1], 7000), 5)
print("connected", flush=True)
peer.settimeout(float(sys.argv[2]))
try:
    print("heard", peer.recv(1), flush=True)
except TimeoutError:
    print("silence", flush=True)
"""

PIPES: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def reaches(source: Host, target: Host, seconds: float = 10.0) -> bool:
    return source.run([*python(REACH), target.address, str(seconds)]).returncode == 0


def cut(source: Host, target: Host) -> bool:
    return not reaches(source, target, 1.0)


def received(source: Host, target: Host, count: int) -> int:
    """The number of datagrams, out of `count` from source, that arrive at target."""
    receiver = target.popen(python(RECEIVE), stdout=subprocess.PIPE, text=True)
    assert receiver.stdout is not None and receiver.stdout.readline() == "bound\n"
    source.run([*python(SEND), target.address, str(count), "x"], check=True)
    # A cable delivers at once. When the sender has ended, all packets have arrived.
    target.run([*python(SEND), "127.0.0.1", "1", "last"], check=True)
    return int(receiver.communicate(timeout=60)[0])


def test_link_down_cuts_and_up_mends(cluster: Cluster) -> None:
    victim, other = cluster["h1"], cluster["h2"]
    assert reaches(cluster.head, victim)
    victim.link_down()
    assert cut(cluster.head, victim) and cut(victim, other)
    assert victim.run(["cat", "/sys/class/net/eth0/carrier"]).stdout.strip() == "0"
    assert reaches(cluster.head, other) and reaches(other, cluster["h3"])
    victim.link_up()
    assert reaches(cluster.head, victim) and reaches(victim, other)


def test_link_down_takes_every_network(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1, second_interface="eth1")
    look = ["cat", "/sys/class/net/eth0/carrier", "/sys/class/net/eth1/carrier"]
    cluster["h1"].link_down()
    assert cluster["h1"].run(look).stdout.split() == ["0", "0"]


@pytest.mark.parametrize("direction, to, back", [("out", 0, 50), ("in", 50, 0), ("both", 0, 0)])
def test_one_way_drop_is_one_way(cluster: Cluster, direction: str, to: int, back: int) -> None:
    victim, peer = cluster["h1"], cluster["h2"]
    # Each host must know the other's hardware address, because the ARP request would be dropped too.
    assert received(victim, peer, 50) == 50 and received(peer, victim, 50) == 50
    victim.drop(direction)  # type: ignore[arg-type]
    assert (received(victim, peer, 50), received(peer, victim, 50)) == (to, back)
    assert reaches(cluster.head, peer)
    victim.heal()
    assert received(victim, peer, 50) == 50


def test_two_hosts_are_cut_from_each_other_only(cluster: Cluster) -> None:
    one, two, three = cluster.hosts[:3]
    one.drop("both", peer="h2")
    assert cut(one, two) and cut(two, one)
    assert reaches(one, three) and reaches(two, three) and reaches(cluster.head, one) and reaches(cluster.head, two)


def test_loss_loses_about_that_much(cluster: Cluster) -> None:
    lossy, peer = cluster["h3"], cluster["h4"]
    assert received(lossy, peer, 1000) == 1000
    lossy.loss(30)
    assert 600 < received(lossy, peer, 1000) < 800
    assert 600 < received(peer, lossy, 1000) < 800
    lossy.loss(5)
    assert cluster.head.run(["ssh", "h3", "hostname"], check=True).stdout == "h3\n"


def test_a_killed_host_says_no_goodbye_and_the_others_live(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3)
    victim = cluster["h2"]
    held = victim.popen(python(HOLD), **PIPES)
    assert held.stdout is not None and held.stdout.readline() == "listening\n"
    watch = cluster.head.popen([*python(WATCH), victim.address, "2"], **PIPES)
    assert watch.stdout is not None and watch.stdout.readline() == "connected\n"
    assert held.stdout.readline() == "accepted\n"
    bystander = cluster["h1"].popen(["sleep", "1000"])
    victim.kill()
    assert held.wait(30) == -9 and not victim.alive
    assert watch.stdout.readline() == "silence\n"
    with pytest.raises(HostDown, match="h2 was killed"):
        victim.run(["true"])
    assert bystander.poll() is None and cluster["h1"].alive
    assert reaches(cluster["h1"], cluster["h3"]) and reaches(cluster.head, cluster["h3"])
    for process in (held, watch):
        process.communicate(timeout=60)


def test_a_running_host_that_dies_says_goodbye(cluster: Cluster) -> None:
    """For comparison with the silence of a killed host above."""
    held = cluster["h2"].popen(python(HOLD), **PIPES)
    assert held.stdout is not None and held.stdout.readline() == "listening\n"
    watch = cluster.head.popen([*python(WATCH), cluster["h2"].address, "60"], **PIPES)
    assert watch.stdout is not None and watch.stdout.readline() == "connected\n"
    assert held.stdout.readline() == "accepted\n"
    held.kill()
    assert watch.stdout.readline() == "heard b''\n"
    for process in (held, watch):
        process.communicate(timeout=60)
