"""Jobs with the Pythons that have TensorFlow, JAX and other versions of them: scripts/test makes them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

import pytest
from environments import environment_python

from ..conftest import PROGRAMS, launcher_path

Completed = subprocess.CompletedProcess[str]
RunFramework = Callable[..., Completed]


@pytest.fixture(scope="session")
def framework_python() -> str:
    """With the newest TensorFlow and JAX. Another environment's: environment_python("tensorflow-2.15")."""
    return str(environment_python("frameworks"))


@pytest.fixture
def run_framework(framework_python: str) -> RunFramework:
    """run_framework("-np", "2", program="jax_psum.py", words=("ours",)): distrun with that Python, to its end."""

    def run(*options: str, program: str, words: tuple[str, ...] = (), python: str = framework_python) -> Completed:
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
        command = [launcher_path(), *options, "--timeout", "150", python, str(PROGRAMS / program), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=170, env={**os.environ, **quiet})

    return run
