"""distrun.tensorflow with the real TensorFlow. Each program has many checks, because the import takes seconds."""

from __future__ import annotations

import hashlib
import re
import signal
from pathlib import Path

import pytest
from environments import environment_python

from distrun._library import library_file

from ..conftest import PROGRAMS, ROOT, StartJob
from .conftest import Completed, RunFramework, assert_trained


def assert_passed(done: Completed, ranks: int) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all checks passed") == ranks, done.stdout + done.stderr


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_operations(run_framework: RunFramework, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTRUN_STALL_WARNING_TIME", "0.5")
    done = run_framework("-np", str(ranks), "--oversubscribe", program="tf_ops.py")
    assert_passed(done, ranks)
    if ranks > 1:  # one rank lacks a variable: the stall report names the variable and the rank
        late = r"waiting for rank 0 \(\S+\) to submit broadcast 'broadcast\.variable\.odd',"
        assert re.search(late, done.stderr), done.stderr


def test_operations_where_the_library_does_not_fit(run_framework: RunFramework) -> None:
    assert_passed(run_framework("-np", "2", program="tf_ops.py", words=("slower",)), 2)


@pytest.mark.parametrize(("ranks", "words"), [(1, ()), (2, ()), (3, ()), (2, ("slower",))])
def test_vectorized_map_and_jacobians(
    run_framework: RunFramework, ranks: int, words: tuple[str, ...], tmp_path: Path
) -> None:
    given = (str(tmp_path / "timeline.json"), *words)
    assert_passed(run_framework("-np", str(ranks), "--oversubscribe", program="tf_rows.py", words=given), ranks)


@pytest.mark.parametrize("ranks", [1, 2])
def test_loops_over_datasets(run_framework: RunFramework, ranks: int) -> None:
    assert_passed(run_framework("-np", str(ranks), program="tf_loops.py"), ranks)


@pytest.mark.full
@pytest.mark.parametrize("version", ["2.15", "2.18", "2.20"])
def test_the_same_native_file_with_other_versions(run_framework: RunFramework, version: str, tmp_path: Path) -> None:
    """The file that is hashed here is the one for the newest TensorFlow. There is no other."""
    python = str(environment_python(f"tensorflow-{version}"))
    done = run_framework("-np", "2", program="tf_ops.py", python=python)
    assert_passed(done, 2)
    file = library_file().resolve().with_name("libdistrun_tensorflow.so")
    found = re.findall(r"TensorFlow (\d+\.\d+)\.\d+ uses (\w+)", done.stdout)
    assert found == [(version, hashlib.sha256(file.read_bytes()).hexdigest())] * 2, done.stdout
    rows = run_framework("-np", "2", program="tf_rows.py", words=(str(tmp_path / "timeline.json"),), python=python)
    assert_passed(rows, 2)


@pytest.mark.full
def test_operations_beside_legacy_keras(run_framework: RunFramework) -> None:
    python = str(environment_python("tf-keras"))
    done = run_framework("-np", "2", program="tf_ops.py", python=python, env={"TF_USE_LEGACY_KERAS": "1"})
    assert_passed(done, 2)


@pytest.mark.parametrize("ranks", [1, 2])
def test_mistakes_are_refused(run_framework: RunFramework, ranks: int) -> None:
    assert_passed(run_framework("-np", str(ranks), program="tf_mistakes.py"), ranks)


def test_v1_graphs(run_framework: RunFramework) -> None:
    assert_passed(run_framework("-np", "2", program="tf_v1.py"), 2)


@pytest.mark.parametrize(("how", "kind"), [("eager", "RankLost"), ("graph", "UnknownError")])
def test_a_rank_killed_in_mid_step(run_framework: RunFramework, how: str, kind: str) -> None:
    done = run_framework("-np", "3", "--oversubscribe", program="tf_ends.py", words=(how,))
    assert done.returncode == 137, done.stdout + done.stderr
    died = re.search(r"dies (\S+)", done.stdout)
    raised = re.findall(rf"told (\S+) {kind}", done.stdout)
    assert died is not None and len(raised) == 2, done.stdout + done.stderr
    assert all(float(when) - float(died[1]) < 2.0 for when in raised), done.stdout


@pytest.mark.parametrize(("how", "kind"), [("lacks", "RankLeft"), ("lacks graph", "UnknownError")])
def test_a_variable_that_one_rank_lacks(run_framework: RunFramework, how: str, kind: str) -> None:
    done = run_framework("-np", "3", "--oversubscribe", program="tf_ends.py", words=(how,))
    assert len(re.findall(rf"^\[[12]\] told {kind}$", done.stdout, re.MULTILINE)) == 2, done.stdout + done.stderr


def test_signals_in_a_blocked_operation(run_framework: RunFramework, tmp_path: Path) -> None:
    words = ("interrupted", str(tmp_path / "handled"))
    assert_passed(run_framework("-np", "2", program="tf_ends.py", words=words, alone=True), 2)


def test_a_handler_that_leaves_the_job_in_an_operation_returns(run_framework: RunFramework, tmp_path: Path) -> None:
    left = tmp_path / "left"
    done = run_framework(
        *("-np", "2", "--shutdown-timeout", "1"), program="tf_ends.py", words=("left", str(left)), alone=True
    )
    assert left.exists(), done.stdout + done.stderr
    assert re.search(r"^\[0\] left \w+$", done.stdout, re.MULTILINE), done.stdout + done.stderr


def test_ctrl_c_ends_a_job_that_waits_in_a_graph(start_job: StartJob, framework_python: str) -> None:
    job = start_job("-np", "2", "--grace", "2", framework_python, PROGRAMS / "tf_ends.py", "stuck")
    job.wait_lines("stuck", 2, timeout=120)
    job.process.send_signal(signal.SIGINT)
    assert job.finish(30) == 130, job.text


def test_an_operation_in_flight_at_exit(run_framework: RunFramework) -> None:
    """A rank ends while its thread waits in a graph. The operation fails because the other rank has left."""
    done = run_framework("-np", "2", program="tf_ends.py", words=("in flight",), alone=True)
    assert done.stdout.count("ends") == 2, done.stdout + done.stderr
    assert done.returncode in (0, 1, 76) and "signal" not in done.stderr, done.stderr


@pytest.mark.parametrize("how", ["second", "early", "start"])
def test_loading(run_framework: RunFramework, how: str) -> None:
    assert_passed(run_framework("-np", "1", program="tf_loading.py", words=(how,), alone=True), 1)


@pytest.mark.parametrize("example", ["tensorflow_mnist.py", "tensorflow_v1_mnist.py"])
def test_examples(run_framework: RunFramework, example: str) -> None:
    done = run_framework("-np", "2", program=str(ROOT / "examples" / example), alone=True)
    assert_trained(done, 0.9)


@pytest.mark.full
def test_the_estimator_example(run_framework: RunFramework) -> None:
    python = str(environment_python("tensorflow-2.15"))
    done = run_framework("-np", "2", program=str(ROOT / "examples/estimator_mnist.py"), python=python)
    assert_trained(done, 0.85)
