"""Cores and GPUs: plans of --explain for copied /proc and /sys trees of other machines, and the real pinning here."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import forked
import pytest

from ..conftest import launcher_path

BUSES = ["0000:1b:00.0", "0000:43:00.0", "0000:52:00.0", "0000:61:00.0"]
PRINT_CPUS = "import os, sys; print(*sorted(os.sched_getaffinity(0)), sep=','); print('up', file=sys.stderr)"


def run(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    return subprocess.run(
        [launcher_path(), *arguments], capture_output=True, text=True, timeout=60, env={**inherited, **(env or {})}
    )


def selected_gpu(python: str, programs: Path) -> list[str]:
    return forked.command(python, programs / "selected_gpu.py", {})


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def four_gpus(tmp_path: Path) -> Path:
    """A tree of a machine with 16 cores on two NUMA nodes and two GPUs near each node."""
    write(tmp_path / "proc/self/status", "Cpus_allowed_list:\t0-15\n")
    for node in (0, 1):
        write(tmp_path / f"sys/devices/system/node/node{node}/cpulist", f"{8 * node}-{8 * node + 7}\n")
    for minor, bus in enumerate(BUSES):
        node = minor // 2
        write(
            tmp_path / f"proc/driver/nvidia/gpus/{bus}/information",
            f"Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-{minor}{minor}\nDevice Minor: \t {minor}\n",
        )
        write(tmp_path / f"dev/nvidia{minor}", "")
        write(tmp_path / f"sys/bus/pci/devices/{bus}/numa_node", f"{node}\n")
        write(tmp_path / f"sys/bus/pci/devices/{bus}/local_cpulist", f"{8 * node}-{8 * node + 7}\n")
    return tmp_path


def plan(tree: Path, *options: str, env: dict[str, str] | None = None) -> list[dict[str, object]]:
    done = run("--sysroot", str(tree), "--explain=json", *options, "true", env=env)
    assert done.returncode == 0, done.stderr
    ranks: list[dict[str, object]] = json.loads(done.stdout)["ranks"]
    return ranks


def visible(rank: dict[str, object]) -> object:
    environment = rank["environment"]
    assert isinstance(environment, dict)
    return environment.get("CUDA_VISIBLE_DEVICES")


def test_ranks_are_pinned_near_their_gpus_and_see_all_of_them(four_gpus: Path) -> None:
    ranks = plan(four_gpus, "-np", "4")
    assert [rank["gpu"] for rank in ranks] == [0, 1, 2, 3]
    assert [rank["cpus"] for rank in ranks] == [list(range(8))] * 2 + [list(range(8, 16))] * 2
    assert [rank["threads"] for rank in ranks] == [4] * 4
    assert [visible(rank) for rank in ranks] == [None] * 4


def test_a_host_without_a_number_of_slots_has_one_for_each_share_of_gpus(four_gpus: Path) -> None:
    assert len(plan(four_gpus, "-H", "localhost")) == 4
    ranks = plan(four_gpus, "-H", "localhost", "--gpus-per-rank", "2")
    assert [visible(rank) for rank in ranks] == ["GPU-00,GPU-11", "GPU-22,GPU-33"]
    assert len(plan(four_gpus, "-H", "localhost", env={"CUDA_VISIBLE_DEVICES": "1,3"})) == 2


@pytest.mark.parametrize(
    ("inherited", "expected"),
    [
        ("3,1", ["3", "1"]),
        ("GPU-33,GPU-1", ["GPU-33", "GPU-1"]),
        ("MIG-GPU-22/7/0,MIG-5f0e-1", ["MIG-GPU-22/7/0", "MIG-5f0e-1"]),
    ],
)
def test_the_inherited_list_is_the_pool_in_its_own_words(four_gpus: Path, inherited: str, expected: list[str]) -> None:
    ranks = plan(four_gpus, "-np", "2", "--gpu-visibility", "one", env={"CUDA_VISIBLE_DEVICES": inherited})
    assert [visible(rank) for rank in ranks] == expected
    assert ranks[0]["cpus"] == list(range(8, 16))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["-np", "4"], ["[0] of 4", "[1] of 4", "[2] of 4", "[3] of 4"]),
        (["-np", "2", "--gpus-per-rank", "2"], ["[0] of 2", "[0] of 2"]),
        (["-np", "2", "--gpus-per-rank", "2", "--gpu-visibility", "all"], ["[0] of 4", "[2] of 4"]),
        (["-np", "2", "--gpu-visibility", "one"], ["[] of 1", "[] of 1"]),
    ],
)
def test_torch_selects_the_first_of_the_ranks_own(
    four_gpus: Path, options: list[str], expected: list[str], python: str, programs: Path
) -> None:
    where = ["--sysroot", str(four_gpus), "--bind-to", "none"]
    done = run(*where, *options, *selected_gpu(python, programs), "4")
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] selected {gpu}" for rank, gpu in enumerate(expected)]


@pytest.mark.parametrize(
    ("ranks", "script_sets", "expected"),
    [
        (2, ["1"], "[] of 1"),
        (2, ["2,3"], "[] of 2"),
        (2, ["0", "too late"], "[1] of 4"),
        (4, ["0,1,2,3"], "[1] of 4"),
    ],
)
def test_a_script_that_chooses_the_gpu_itself_after_init(
    four_gpus: Path, ranks: int, script_sets: list[str], expected: str, python: str, programs: Path
) -> None:
    where = ["--sysroot", str(four_gpus), "--bind-to", "none", "-np", str(ranks)]
    done = run(*where, *selected_gpu(python, programs), "4", *script_sets)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"[1] selected {expected}" in done.stdout.splitlines()


def test_torch_warns_a_rank_that_sees_too_few_gpus(four_gpus: Path, python: str, programs: Path) -> None:
    where = ["--sysroot", str(four_gpus), "--bind-to", "none", "-np", "4"]
    done = run(*where, *selected_gpu(python, programs), "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[2] selected [] of 2" in done.stdout.splitlines()
    assert "rank 2 is number 2 on its host and sees 2 GPUs" in done.stderr


def test_of_mig_slices_each_rank_sees_its_own_only(four_gpus: Path) -> None:
    ranks = plan(four_gpus, "-np", "2", env={"CUDA_VISIBLE_DEVICES": "MIG-GPU-00/1/0,MIG-GPU-00/2/0"})
    assert [visible(rank) for rank in ranks] == ["MIG-GPU-00/1/0", "MIG-GPU-00/2/0"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["-np", "3", "--gpus-per-rank", "2"], "3 ranks need 6 GPUs and this host has 4"),
        (["-np", "1", "--gpus-per-rank", "0"], "'0' is not a number of GPUs"),
    ],
)
def test_more_gpus_than_there_are(four_gpus: Path, options: list[str], text: str) -> None:
    done = run("--sysroot", str(four_gpus), "--explain", *options, "true")
    assert done.returncode == 64
    assert text in done.stderr


@pytest.mark.parametrize("bind_to", ["none", "core", "numa", "auto"])
def test_what_is_reported_is_what_ranks_have(bind_to: str, python: str) -> None:
    done = run("-np", "2", "--bind-to", bind_to, "--report-bindings", python, "-c", PRINT_CPUS)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    reported = [
        match for line in lines if (match := re.match(r"distrun: rank (\d) on \S+: (CPUs \S+|not pinned) ", line))
    ]
    assert [match[1] for match in reported] == ["0", "1"], done.stderr
    assert lines.index(reported[1].string) < lines.index("[0] up")
    allowed = os.sched_getaffinity(0)
    for match in reported:
        (own,) = re.findall(rf"^\[{match[1]}\] (.*)$", done.stdout, re.MULTILINE)
        cpus = {int(cpu) for cpu in own.split(",")}
        expected = allowed if match[2] == "not pinned" else numbers(match[2].split()[1])
        assert cpus == expected
        assert cpus <= allowed


def numbers(ranges: str) -> set[int]:
    out: set[int] = set()
    for item in ranges.split(","):
        first, _, last = item.partition("-")
        out |= set(range(int(first), int(last or first) + 1))
    return out


def test_verbose_tells_the_reasons_and_starts(python: str) -> None:
    done = run("-v", "-np", "1", "--bind-to", "core", python, "-c", "print('up')")
    assert done.stdout == "[0] up\n"
    assert "distrun: all ranks, cores: --bind-to core:" in done.stderr
