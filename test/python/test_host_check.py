"""distrun.host_check: the verdicts of `distrun check -H ...`."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from distrun import host_check


def row(host: str, **changed: Any) -> dict[str, Any]:
    texts = {"distrun": "1", "build": "1", "python": "3.11", "nccl": "", "driver": "", "unshared": ""}
    plain = {**texts, **dict.fromkeys(host_check.FRAMEWORKS, "")}
    sizes = {"gpus": [], "cpus": 8, "shm": 1 << 30, "memlock": -1, "infiniband": False, "files": 65536, "clock": 0.0}
    return {"host": host, **plain, **sizes, "files_at_most": 1 << 20, **changed}


@pytest.mark.parametrize("count", range(1, 10))
def test_every_pair_meets_once_and_nobody_twice_in_a_round(count: int) -> None:
    rounds = host_check.tournament(count)
    assert sorted(pair for pairs in rounds for pair in pairs) == list(combinations(range(count), 2))
    for pairs in rounds:
        busy = [rank for pair in pairs for rank in pair]
        assert len(busy) == len(set(busy))


def test_hosts_that_are_alike_have_no_problem() -> None:
    assert host_check.about_hosts([row("a"), row("b", clock=0.1)]) == []


@pytest.mark.parametrize(
    ("differing", "expected"),
    [
        ({"torch": "2.1"}, "torch differs: none on a, c; 2.1 on b. Install"),
        ({"build": "2"}, "the build of distrun differs: 1 on a, c; 2 on b. Install the same wheel"),
        ({"gpus": ["H200"]}, "GPUs differ: none on a, c; H200 on b. Use hosts"),
        ({"shm": 65536}, "/dev/shm of b has 64 KiB; DataLoader"),
        ({"unshared": "EPERM"}, "ranks on b cannot share memory: EPERM; allow memfd_create"),
        ({"files": 1024}, "b allows 1024 open files; ulimit -n 4096 where you type distrun."),
        ({"files": 512, "files_at_most": 512}, "b allows 512 open files; raise the hard limit there (limits.conf)"),
        ({"clock": -7200.0}, "the clock of b is 7200.0 s behind a's; set"),
        (
            {"infiniband": True, "memlock": 65536},
            "b has InfiniBand, but a process may lock only 64 KiB of memory; "
            "set `ulimit -l unlimited` there (limits.conf).",
        ),
    ],
)
def test_what_differs_is_said_with_its_cure(differing: dict[str, Any], expected: str) -> None:
    (problem,) = host_check.about_hosts([row("a"), row("b", **differing), row("c")])
    assert problem.startswith(expected)


def test_a_bad_way_between_two_hosts() -> None:
    good = (100e-6, 1e9)
    pairs = {"0-1": good, "0-2": good, "1-2": (20e-3, 1e8)}
    slow, narrow = host_check.about_pairs(["a", "b", "c"], pairs)
    assert slow.startswith("b and c take 20.00 ms for a message, others 0.10 ms")
    assert narrow.startswith("b and c reach 95 MiB/s, others 954 MiB/s")
    assert host_check.about_pairs(["a", "b", "c"], dict.fromkeys(pairs, good)) == []
    assert host_check.worst(["a", "b", "c"], pairs, 1) == ("20000 us (c)", "95 MiB/s (c)")


def test_gpus_and_driver_are_read_in_bus_order(tmp_path: Path) -> None:
    for bus, model in (("0000:41:00.0", "B"), ("0000:01:00.0", "A")):
        folder = tmp_path / "proc/driver/nvidia/gpus" / bus
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t {model}\nIRQ: 1\n")
    (tmp_path / "sys/module/nvidia").mkdir(parents=True)
    (tmp_path / "sys/module/nvidia/version").write_text("550.1\n")
    assert host_check.gpus(tmp_path) == ["A", "B"] and host_check.driver(tmp_path) == "550.1"
    assert host_check.gpus(tmp_path / "none") == [] and host_check.driver(tmp_path / "none") == ""


def test_a_row_has_what_its_titles_say() -> None:
    titles, *lines = host_check.table([row("a", cpus=3), row("b")], {}).splitlines()
    assert titles.split() == [
        "host",
        "distrun",
        "python",
        "GPUs",
        "CPUs",
        "/dev/shm",
        "files",
        "clock",
        "latency",
        "bandwidth",
    ]
    assert lines[0].split() == ["a", "1", "3.11", "0", "3", "1024", "MiB", "65536", "+0.000", "s", "-", "-"]
