"""Jobs with the Pythons that have TensorFlow, JAX and other versions of them: scripts/test makes them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import forked
import pytest
from environments import environment_python

from ..conftest import PROGRAMS, launcher_path

Completed = subprocess.CompletedProcess[str]
RunFramework = Callable[..., Completed]

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
# For programs that compile much and compute little.
COMPILE_FAST = {"XLA_FLAGS": "--xla_backend_optimization_level=0"}


JOB_SECONDS = 150  # of one job, which distrun then ends
TWO_JOBS = 2 * (JOB_SECONDS + 20) + 20  # of a test that runs one after the other


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("frameworks")


def run_with(default: str | Path) -> RunFramework:
    """run("-np", "2", program="jax_psum.py", words=("ours",)): distrun with that Python, or `python=`, to its end.
    `alone`: the ranks are processes of their own, not forks."""

    def run(
        *options: str,
        program: str | Path,
        words: tuple[str, ...] = (),
        python: str | Path = default,
        env: Mapping[str, str] = QUIET,
        alone: bool = False,
    ) -> Completed:
        distrun = [launcher_path(), *options, "--timeout", str(JOB_SECONDS)]
        environment = {**os.environ, **QUIET, **env}
        # With roles of TensorFlow the launcher starts programs of its own beside this one.
        alone = alone or any(option.startswith("--tf") for option in options)
        command = [*distrun, *forked.command(str(python), PROGRAMS / program, environment, alone=alone), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=JOB_SECONDS + 20, env=environment)

    return run


@pytest.fixture(scope="session")
def framework_python() -> str:
    """With the newest TensorFlow. Another environment's: environment_python("tensorflow-2.15")."""
    return str(environment_python("tensorflow"))


@pytest.fixture
def run_framework(framework_python: str) -> RunFramework:
    """Jobs with the newest TensorFlow."""
    return run_with(framework_python)


def assert_trained(done: Completed, least: float) -> None:
    """An MNIST example has printed what its Report promises, and has learned."""
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\[=+ *\] \d+/\d+$", done.stdout, re.MULTILINE), done.stdout  # the bar
    assert re.findall(r"^\[0\] epoch \d: loss \d+\.\d+, \d+ samples/s$", done.stdout, re.MULTILINE), done.stdout
    accuracies = re.findall(r"^\[\d+\] accuracy: (\d\.\d+)$", done.stdout, re.MULTILINE)
    assert len(accuracies) == 1 and float(accuracies[0]) > least, done.stdout
