"""Runs jobs with the Pythons that have TensorFlow, JAX and other versions of them. scripts/test creates these."""

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
# For programs that compile a lot and compute little.
COMPILE_FAST = {"XLA_FLAGS": "--xla_backend_optimization_level=0"}


JOB_SECONDS = 150  # distrun ends a job after this time
TWO_JOBS = 2 * (JOB_SECONDS + 20) + 20  # for a test that runs one job after the other


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("frameworks")


def run_with(default: str | Path) -> RunFramework:
    """Returns run("-np", "2", program="jax_psum.py", words=("ours",)), which runs a job to its end with the Python
    `default`.

    `python=` selects another Python. `alone`: the ranks are processes of their own, not forks of a server."""

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
        # With --tf-roles the launcher also starts other programs beside this one.
        alone = alone or any(option.startswith("--tf") for option in options)
        command = [*distrun, *forked.command(str(python), PROGRAMS / program, environment, alone=alone), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=JOB_SECONDS + 20, env=environment)

    return run


@pytest.fixture(scope="session")
def framework_python() -> str:
    """The Python with the newest TensorFlow. For another environment: environment_python("tensorflow-2.15")."""
    return str(environment_python("tensorflow"))


@pytest.fixture
def run_framework(framework_python: str) -> RunFramework:
    """Runs jobs with the newest TensorFlow."""
    return run_with(framework_python)


def assert_trained(done: Completed, least: float) -> None:
    """Checks that an MNIST example has printed the lines of its Report, and that its accuracy is above `least`."""
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[=" not in done.stdout, done.stdout  # in a log, the epoch takes the place of its progress bar
    assert re.findall(r"^\[0\] epoch \d: loss \d+\.\d+, \d+ samples/s$", done.stdout, re.MULTILINE), done.stdout
    accuracies = re.findall(r"^\[\d+\] accuracy: (\d\.\d+)$", done.stdout, re.MULTILINE)
    assert len(accuracies) == 1 and float(accuracies[0]) > least, done.stdout
