"""The API with several ranks: programs with checks under the launcher, and the end of a rank as seen by the others."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import forked
import open_mpi
import pytest

from .conftest import PROGRAMS, MpiStart, RunRanks
from .test_differential import need_plugin

OPERATIONS = ["numpy_ops.py", "torch_ops.py"]
CHECKS = ["objects_and_sets.py", "shares_and_join.py"]
TRAINING = [
    "local_sgd.py",
    "sync_batch_norm.py",
    "torch_as_written.py",
    "torch_changed.py",
    "torch_compression.py",
    "torch_gradients.py",
    "torch_optimizer.py",
    "torch_scaled.py",
    "torch_several_optimizers.py",
    "torch_sparse.py",
]


def assert_passed(text: str, ranks: int) -> None:
    assert text.count("all checks passed") == ranks, text


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("program", OPERATIONS + CHECKS + TRAINING)
def test_checks(run_ranks: RunRanks, program: str, ranks: int) -> None:
    assert_passed(run_ranks(ranks, program).stdout, ranks)


@pytest.mark.parametrize("program", ["numpy_ops.py", "objects_and_sets.py", "shares_and_join.py"])
def test_checks_over_tcp(run_ranks: RunRanks, program: str) -> None:
    assert_passed(run_ranks(3, program, backend="tcp").stdout, 3)


@pytest.mark.parametrize("backend", ["shm", "tcp"])
def test_every_mismatch_is_named(run_ranks: RunRanks, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTRUN_STALL_WARNING_TIME", "0.5")
    assert_passed(run_ranks(3, "mismatches.py", backend=backend).stdout, 3)


@pytest.mark.parametrize("backend", ["shm", "tcp", "gloo"])
def test_what_the_job_uses_and_the_installation_has(run_ranks: RunRanks, command: str, backend: str) -> None:
    done = subprocess.run([command, "check", "--build", "--json"], capture_output=True, text=True, timeout=60)
    usable = [name for name, says in json.loads(done.stdout)["backends"].items() if says.startswith("ok")]
    if backend not in usable:
        pytest.skip(f"{backend} is not usable here")
    assert_passed(run_ranks(2, "features.py", backend, *usable, backend=backend).stdout, 2)


def run_by_mpi(start: list[str], *program: object, backend: str) -> None:
    variables = {**os.environ, **open_mpi.AS_ROOT, "DISTRUN_BACKEND": backend}
    done = subprocess.run(
        [*start, sys.executable, *map(str, program)],
        env=variables, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert_passed(done.stdout + done.stderr, 2)


def test_what_a_job_of_mpi_uses(mpi_start: MpiStart) -> None:
    need_plugin("mpi")
    usable = "import distrun; distrun.init(); print(distrun.query('backends'))"
    lines = subprocess.run([sys.executable, "-c", usable], capture_output=True, text=True, check=True).stdout
    others = [name for name in ("gloo", "nccl") if re.search(rf"(?m)^{name}: ok", lines)]
    run_by_mpi(mpi_start(2), PROGRAMS / "features.py", "mpi", "mpi", *others, backend="mpi")


@pytest.mark.parametrize("level", ["multiple", "single"])
def test_mpi_beside_another_backend(mpi_start: MpiStart, level: str) -> None:
    pytest.importorskip("mpi4py")
    run_by_mpi(mpi_start(2), PROGRAMS / "mpi_beside.py", level, backend="shm")


def test_compiled(run_ranks: RunRanks) -> None:
    assert_passed(run_ranks(2, "torch_compiled.py", "aot_eager").stdout, 2)


def test_compiled_in_a_set_of_several(run_ranks: RunRanks) -> None:
    """With two ranks, each would be alone in its half."""
    assert_passed(run_ranks(3, "torch_compiled.py", "aot_eager", "check_process_sets").stdout, 3)


@pytest.mark.skipif(shutil.which("c++") is None, reason="inductor needs a C++ compiler: scripts/test installs one")
def test_compiled_by_inductor(run_ranks: RunRanks) -> None:
    check = "check_every_operation_in_one_graph"
    assert_passed(run_ranks(2, "torch_compiled.py", "inductor", check).stdout, 2)


def test_a_check_that_is_not_there_is_refused() -> None:
    command = [sys.executable, str(PROGRAMS / "numpy_ops.py"), "check_bool", "check_of_nothing"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1 and "there is no check_of_nothing" in result.stderr, result.stdout + result.stderr


@pytest.mark.parametrize("program", [*OPERATIONS, "lifetimes.py", "shares_and_join.py"])
def test_checks_without_a_launcher(program: str) -> None:
    line = forked.command(sys.executable, PROGRAMS / program, alone=program == "lifetimes.py")
    result = subprocess.run(line, capture_output=True, text=True, timeout=150, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert_passed(result.stdout, 1)


def test_lifetimes(run_ranks: RunRanks) -> None:
    assert_passed(run_ranks(2, "lifetimes.py", alone=True).stdout, 2)


def test_fork_after_init(run_ranks: RunRanks) -> None:
    assert_passed(run_ranks(2, "fork.py", alone=True).stdout, 2)


def test_child_that_runs_the_program_again(run_ranks: RunRanks) -> None:
    result = run_ranks(2, "unguarded.py", check=False, alone=True)
    assert result.returncode == 1
    output = result.stdout + result.stderr
    text = "failed in this process, which multiprocessing has started. Put the program under `if __name__"
    assert f"InvalidArgument: hvd.init() {text}" in output, output


def test_signals_in_a_blocked_operation(run_ranks: RunRanks, tmp_path: Path) -> None:
    assert_passed(run_ranks(2, "signals.py", str(tmp_path), alone=True).stdout, 2)


def test_interrupted_init(run_ranks: RunRanks, tmp_path: Path) -> None:
    lines = run_ranks(2, "interrupted_init.py", str(tmp_path), alone=True).stdout.splitlines()
    assert sorted(lines) == ["[0] interrupted", "[0] outside", "[1] outside"], lines


def got(text: str) -> str:
    """The line that rank 0 printed about its exception."""
    found = re.search(r"got \w+ .*", text)
    assert found is not None, text
    return found[0]


def test_uncaught_exception_travels_as_the_cause(run_ranks: RunRanks) -> None:
    result = run_ranks(2, "ends.py", "raise", check=False)
    assert result.returncode == 1
    assert re.search(r"ValueError: boom on purpose \(ends\.py:\d+\)", got(result.stdout))
    assert got(result.stdout).startswith("got RankLost ranks=(1,)")
    assert "then " in result.stdout
    assert "Traceback" in result.stderr + result.stdout


def test_exception_in_a_submitting_thread_travels_too(run_ranks: RunRanks) -> None:
    result = run_ranks(2, "ends.py", "thread", check=False)
    assert result.returncode == 1
    assert "KeyError: 'lost in a thread'" in got(result.stdout)


def test_killed_rank(run_ranks: RunRanks) -> None:
    result = run_ranks(2, "ends.py", "kill", check=False)
    assert result.returncode == 137
    assert got(result.stdout).startswith("got RankLost ranks=(1,)") and "signal 9" in got(result.stdout)


def test_sparse_on_one_rank(run_ranks: RunRanks, tmp_path: Path) -> None:
    result = run_ranks(2, "sparse_on_one_rank.py", str(tmp_path), check=False, timeout=60)
    assert result.returncode == 1
    assert len(re.findall(r"refused: .*weight is sparse on some ranks.*sparse_as_dense=True", result.stdout)) == 2


def test_rank_that_leaves_early(run_ranks: RunRanks) -> None:
    result = run_ranks(2, "ends.py", "leave", check=False)
    assert result.returncode == 76
    assert got(result.stdout).startswith("got RankLeft ranks=(1,)")
