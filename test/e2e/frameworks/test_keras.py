"""distrun.keras on Keras's three backends: TensorFlow and JAX in environments of their own, PyTorch in .venv."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import forked
import pytest
from environments import environment_python

from ..conftest import PROGRAMS, ROOT, StartJob
from .conftest import COMPILE_FAST, RunFramework, assert_trained, run_with

# Checks of keras_fit.py that also run with legacy Keras. The others are about features of Keras 3.
LEGACY = (
    "check_equal_to_a_single_process",
    "check_models_that_are_built_in_the_first_step",
    "check_models_without_weights_are_told_from_others",
    "check_what_weight_decay_leaves_out",
    "check_the_class_is_keras_own_in_files",
    "check_legacy_overflow_on_one_rank_skips_the_step_on_all",
    "check_gradient_accumulation",
    "check_metrics_are_averaged",
    "check_metrics_that_are_vectors_are_averaged",
    "check_what_is_no_metric_is_left_alone",
    "check_learning_rates",
    "check_the_learning_rate_is_of_rank_0",
    "check_files_from_rank_0_only",
    "check_local_layers",
    "check_models_that_differ_are_refused",
    "check_nan_of_one_rank_is_everybodys",
    "check_a_rank_without_batches_joins",
)
# Checks of keras_fit.py whose correct result depends on Keras's backend.
BACKENDS = (
    "check_equal_to_a_single_process",
    "check_models_that_are_built_in_the_first_step",
    "check_xla_is_left_out_on_tensorflow",
    "check_gradient_accumulation",
    "check_an_overflow_on_one_rank_skips_the_step_on_all",
    "check_a_loop_of_ones_own_scales_its_loss",
    "check_metrics_are_averaged",
    "check_local_layers",
    "check_nan_of_one_rank_is_everybodys",
    "check_a_rank_without_batches_joins",
    "check_values",
)
# Checks of keras_gradients.py.
ROWS = ("check_rows_of_a_table", "check_an_embedding")
FIT = ROOT / "test/python/programs/keras_fit.py"
CLASSES = ROOT / "test/python/programs/keras_classes.py"
CALLBACKS = ROOT / "test/python/programs/keras_callbacks.py"
SEVERAL = ROOT / "test/python/programs/keras_several.py"
GRADIENTS = ROOT / "test/python/programs/keras_gradients.py"
MISTAKES = ROOT / "test/python/programs/keras_mistakes.py"
SEEDS = ROOT / "test/python/programs/keras_seeds.py"
PASSES = ROOT / "test/python/programs/keras_passes.py"
COPIES = ROOT / "test/python/programs/keras_copies.py"
ALL = [(CLASSES, 2), (CALLBACKS, 2), (SEVERAL, 2), (GRADIENTS, 3), (MISTAKES, 2), (PASSES, 2), (COPIES, 2)]


@pytest.fixture(params=["tensorflow", "torch", "jax"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    monkeypatch.setenv("KERAS_BACKEND", name)
    return name


@pytest.fixture
def keras_python(backend: str, request: pytest.FixtureRequest) -> str:
    if backend != "torch":
        return str(environment_python(backend))
    if importlib.util.find_spec("keras") is None:
        pytest.skip("keras is not installed beside torch: scripts/test does that")
    return str(request.getfixturevalue("python"))


@pytest.fixture
def run_keras(keras_python: str) -> RunFramework:
    return run_with(keras_python)


@pytest.mark.parametrize("ranks", [1, 2])
def test_fit(run_keras: RunFramework, ranks: int) -> None:
    done = run_keras("-np", str(ranks), program=FIT, env=COMPILE_FAST)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all checks passed") == ranks


@pytest.mark.parametrize("backend", ["tensorflow", "jax"], indirect=True)
def test_fit_where_backends_differ(run_keras: RunFramework) -> None:
    """The part of test_fit that the plain (not full) test run makes on these backends."""
    done = run_keras("-np", "2", program=FIT, words=BACKENDS, env=COMPILE_FAST)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all checks passed") == 2


@pytest.mark.parametrize("backend", ["tensorflow"], indirect=True)
def test_gradients_of_tables(run_keras: RunFramework) -> None:
    """The plain test run's part of keras_gradients.py, on TensorFlow: the only backend with tf.IndexedSlices."""
    done = run_keras("-np", "3", "--oversubscribe", program=GRADIENTS, words=ROWS, env=COMPILE_FAST)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all checks passed") == 3


@pytest.mark.parametrize("program, ranks", ALL)
def test_what_programs_make_of_it(run_keras: RunFramework, program: Path, ranks: int) -> None:
    done = run_keras("-np", str(ranks), "--oversubscribe", program=program, env=COMPILE_FAST)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all checks passed") == ranks


def test_random_numbers_of_layers(run_keras: RunFramework) -> None:
    done = run_keras("-np", "3", "--oversubscribe", program=SEEDS, env=COMPILE_FAST)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all checks passed") == 3


@pytest.mark.full
@pytest.mark.parametrize("environment", ["tf-keras", "tensorflow-2.15"])
@pytest.mark.parametrize("program", [FIT, *(program for program, _ in ALL)])
def test_legacy_keras(program: Path, environment: str) -> None:
    run = run_with(environment_python(environment))
    words = LEGACY if program is FIT else ()
    done = run(
        "-np", "2", program=program, words=words, env={"TF_USE_LEGACY_KERAS": str(int(environment == "tf-keras"))}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all checks passed") == 2


@pytest.mark.full
def test_legacy_keras_in_a_session() -> None:
    done = run_with(environment_python("tf-keras"))(
        "-np", "1", program="keras_session.py", env={"TF_USE_LEGACY_KERAS": "1"}
    )
    assert done.returncode == 0 and "refused" in done.stdout, done.stdout + done.stderr


def test_mnist(run_keras: RunFramework) -> None:
    done = run_keras("-np", "2", program=str(ROOT / "examples/keras_mnist.py"), alone=True)
    assert_trained(done, 0.88)


def test_a_rank_killed_in_fit(start_job: StartJob, keras_python: str) -> None:
    job = start_job("-np", "2", keras_python, PROGRAMS / "keras_killed.py")
    assert job.finish(150) == 137, job.text
    # From the signal to the error, within one step. The launcher's notice may arrive before the connection closes.
    raised = re.search(r"told after (\d+\.\d+) s: (.*)", job.text)
    assert raised and float(raised[1]) < 2, job.text
    assert "RankLost ranks=(1,)" in raised[2] and "SIGKILL" in raised[2], job.text


@pytest.mark.parametrize("lacks", ["variable", "batch", "callback"])
def test_a_rank_that_lacks_something(
    start_job: StartJob, backend: str, keras_python: str, lacks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 ends. The operation that rank 1 waits for fails at once, and the error names it. On JAX the gradients are
    one call. It has one array on rank 0, so no group, and two arrays on rank 1."""
    monkeypatch.setenv("DISTRUN_STALL_WARNING_TIME", "2")
    job = start_job("-np", "2", *forked.command(keras_python, PROGRAMS / "keras_leaves.py"), lacks)
    mismatch = lacks == "variable" and backend == "jax"
    assert job.finish(150) == (3 if mismatch else 76), job.text
    if mismatch:
        assert "Mismatch ranks=(0, 1)" in job.text and "in a group of 2. Call the same operation" in job.text
        return
    left, raised = re.search(r"leaves (\S+)", job.text), re.search(r"told (\S+) RankLeft ranks=\(0,\) (.*)", job.text)
    assert left and raised and float(raised[1]) - float(left[1]) < 5, job.text
    assert {"variable": "odd/kernel", "batch": "can never run", "callback": "MetricAverageCallback"}[lacks] in raised[2]
