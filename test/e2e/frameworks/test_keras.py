"""distrun.keras on Keras's three backends: TensorFlow and JAX from one environment, PyTorch from .venv."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable

import pytest

from ..conftest import PROGRAMS, ROOT, StartJob
from .conftest import Completed, RunFramework

FIT = ROOT / "test/python/programs/keras_fit.py"
Run = Callable[..., Completed]


@pytest.fixture(params=["tensorflow", "torch", "jax"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    monkeypatch.setenv("KERAS_BACKEND", name)
    return name


@pytest.fixture
def keras_python(backend: str, request: pytest.FixtureRequest) -> str:
    if backend != "torch":
        return str(request.getfixturevalue("framework_python"))
    if importlib.util.find_spec("keras") is None:
        pytest.skip("keras is not installed beside torch: scripts/test does that")
    return str(request.getfixturevalue("python"))


@pytest.mark.parametrize("ranks", [1, 2])
def test_fit(run_framework: RunFramework, keras_python: str, ranks: int) -> None:
    done = run_framework("-np", str(ranks), program=str(FIT), python=keras_python)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all checks passed") == ranks


def test_mnist(run_framework: RunFramework, keras_python: str) -> None:
    done = run_framework("-np", "2", program=str(ROOT / "examples/keras_mnist.py"), python=keras_python)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^\[0\] epoch \d: loss \d\.\d+, \d+ samples/s$", done.stdout, re.MULTILINE)) == 4
    found = re.search(r"^\[0\] accuracy: (0\.\d+)$", done.stdout, re.MULTILINE)
    assert found and float(found[1]) > 0.88, done.stdout


def test_a_rank_killed_in_fit(start_job: StartJob, keras_python: str) -> None:
    job = start_job("-np", "2", keras_python, PROGRAMS / "keras_killed.py")
    assert job.finish(150) == 137, job.text
    # From the signal to the text, within what one step takes: the launcher may tell before the connection does.
    told = re.search(r"told after (\d+\.\d+) s: (.*)", job.text)
    assert told and float(told[1]) < 2, job.text
    assert "RankLost ranks=(1,)" in told[2] and "SIGKILL" in told[2], job.text


@pytest.mark.parametrize("lacks", ["variable", "batch"])
def test_a_rank_that_lacks_something(start_job: StartJob, backend: str, keras_python: str, lacks: str) -> None:
    """Rank 0 ends; what rank 1 waits for fails at once and is named. On JAX gradients are one group, and it differs."""
    job = start_job("-np", "2", keras_python, PROGRAMS / "keras_leaves.py", lacks)
    mismatch = lacks == "variable" and backend == "jax"
    assert job.finish(150) == (3 if mismatch else 76), job.text
    if mismatch:
        assert "Mismatch ranks=(0, 1)" in job.text and "groups differ between ranks" in job.text
        return
    left, told = re.search(r"leaves (\S+)", job.text), re.search(r"told (\S+) RankLeft ranks=\(0,\) (.*)", job.text)
    assert left and told and float(told[1]) - float(left[1]) < 2, job.text
    assert "odd/kernel" in told[2] if lacks == "variable" else "can never run" in told[2], job.text
