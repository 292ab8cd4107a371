"""The plan of the rig and the switch's rules, as values, without any namespace."""

from __future__ import annotations

import pytest

from . import rig
from .faults import Faults, rules
from .plan import Setup, host_plans, hosts_file, interface_commands, sshd_config, switch_commands

PLANS = host_plans(2, Setup(), {"h2": Setup(interface="ens3", second_interface="ib0")})


def test_hosts_are_numbered_and_the_head_is_one_of_them() -> None:
    assert [(plan.name, plan.address) for plan in PLANS] == [
        ("h1", "10.99.0.1"),
        ("h2", "10.99.0.2"),
        ("head", "10.99.0.254"),
    ]


@pytest.mark.parametrize("count", [0, 201])
def test_impossible_counts_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match="1 to 200"):
        host_plans(count, Setup(), {})


def test_a_host_that_is_not_there_cannot_differ() -> None:
    with pytest.raises(ValueError, match="no host h3; the hosts are h1 to h2 and head"):
        host_plans(2, Setup(), {"h3": Setup()})


def test_own_name_is_a_loopback_alias_unless_told_otherwise() -> None:
    assert hosts_file(PLANS[0], PLANS).splitlines()[2:] == [
        "127.0.1.1 h1",
        "10.99.0.1 h1",
        "10.99.0.2 h2",
        "10.99.0.254 head",
    ]
    plain = host_plans(1, Setup(loopback_alias=False), {})
    assert "127.0.1.1" not in hosts_file(plain[0], plain)


def test_interfaces_have_the_host_s_names() -> None:
    commands = interface_commands(PLANS[1], ipv6=True)
    assert "address add 10.99.0.2/24 dev ens3" in commands
    assert "address add 10.88.0.2/24 dev ib0" in commands
    assert "fd99::2/64" in commands and "fd99" not in interface_commands(PLANS[1], ipv6=False)
    cables = switch_commands(PLANS, {"h1": 11, "h2": 12, "head": 13})
    assert "link add h2.2 type veth peer name ib0 netns 12\nlink set h2.2 master net2 up" in cables


def test_sessions_find_the_host_s_python_first() -> None:
    other = host_plans(1, Setup(python="/opt/python"), {})[0]
    assert '"PATH=/run/python:/usr/local/sbin:' in sshd_config(other, ipv6=False)
    assert "/run/python" not in sshd_config(PLANS[0], ipv6=False)


def test_sshd_listens_where_the_kernel_can() -> None:
    assert "ListenAddress ::" in sshd_config(PLANS[0], ipv6=True)
    assert "::" not in sshd_config(PLANS[0], ipv6=False)


def test_rules_name_every_port_of_a_host() -> None:
    faults = Faults()
    faults.drop("h2", "out")
    faults.drop("h1", "in", "head")
    faults.losses["h1"] = 2.5
    lines = [line.strip() for line in rules(faults, PLANS).splitlines()]
    assert 'iifname { "h2", "h2.2" } drop' in lines
    assert 'iifname { "head" } oifname { "h1" } drop' in lines
    assert 'oifname { "h1" } ether type != arp numgen random mod 10000 < 250 drop' in lines
    faults.heal("h1")
    assert "numgen" not in rules(faults, PLANS) and '"head"' not in rules(faults, PLANS)
    assert faults.drops == {("h2", "")}


def test_without_root_the_reason_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "need root" in rig.why_unavailable()


def test_missing_programs_are_named_by_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda command, path: None if command in ("sshd", "nft") else command)
    assert rig.why_unavailable() == "hosts in a box need the packages nftables, openssh-server"
