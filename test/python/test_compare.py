"""bench/compare.py: what is measured against what."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("compare", ROOT / "bench/compare.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "compare", module)  # its dataclasses look it up
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "find", lambda name, _: f"/build/{name}")
    monkeypatch.setattr(module.shutil, "which", lambda name: f"/usr/bin/{name}")
    return module


def test_every_target_has_programs_that_measure_it(compare: ModuleType) -> None:
    made, missing = compare.programs(2, 0.1)
    measured = {program.who for program in made if program.who}
    named = {who for target in compare.targets() for who, _ in (target.left, *target.right, target.without or ("", ""))}
    assert named - {"", "torch ddp"} <= measured, missing


def test_mpi_over_tcp_is_told_to_both_sides_and_has_the_targets_of_shared_memory(compare: ModuleType) -> None:
    made, _ = compare.programs(2, 0.1)
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
