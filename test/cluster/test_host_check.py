"""`distrun check` on the hosts of a job."""

from __future__ import annotations

import json
import re

from .conftest import MakeCluster
from .jobs import package_folders, run
from .rig import Cluster


def test_a_row_per_host_and_the_ways_between_them(cluster: Cluster) -> None:
    done = run(cluster.head, "check", "-H", "h1:2,h2:2,h3,h4", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [row["host"] for row in found["hosts"]] == ["h1", "h2", "h3", "h4"]
    assert sorted(found["pairs"]) == ["0-1", "0-2", "0-3", "1-2", "1-3", "2-3"]
    table = run(cluster.head, "check", "-H", "h1,h2").stdout
    assert table.startswith("host ") and "\nh1 " in table and "\nh2 " in table and "MiB/s (h2)" in table


def test_odd_hosts_are_named_with_the_cure(make_cluster: MakeCluster) -> None:
    odd = {"h2": {"shm_bytes": 64 << 10, "clock_offset": 3600.0}}
    cluster = make_cluster(3, share=package_folders(), only=odd)
    done = run(cluster.head, "check", "-H", "h1,h2,h3", timeout=40)
    assert done.returncode == 0, done.stderr
    assert "problem: /dev/shm of h2 has 64 KiB; DataLoader workers need more" in done.stdout
    assert "problem: the clock of h2 is 3600.0 s ahead of h1's" in done.stdout


def test_a_host_that_cannot_be_reached_is_named(cluster: Cluster) -> None:
    done = run(cluster.head, "check", "-H", "h1,h9")
    assert done.returncode == 69, done.stdout
    assert "h9" in done.stderr


def test_check_alone_looks_at_this_machine(cluster: Cluster) -> None:
    done = run(cluster.head, "check")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^  \d+ CPUs allowed, \d+ cores?, \d+ GPUs?$", done.stdout, re.MULTILINE), done.stdout
    for name in ("self", "shm", "tcp", "hierarchical"):
        assert re.search(rf"^  {name} +ok \(", done.stdout, re.MULTILINE), done.stdout
    assert "host " not in done.stdout, done.stdout


def test_options_for_hosts_need_hosts(cluster: Cluster) -> None:
    done = run(cluster.head, "check", "--np")
    assert done.returncode == 64 and "--np needs hosts: give -H, --hostfile or --config" in done.stderr, done.stderr
