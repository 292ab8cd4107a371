"""The Python that has TensorFlow and JAX: scripts/test makes it, apart from the one with torch."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ..conftest import PROGRAMS, ROOT, launcher_path

Completed = subprocess.CompletedProcess[str]
RunFramework = Callable[..., Completed]


@pytest.fixture(scope="session")
def framework_python() -> str:
    """build/frameworks/bin/python, or what DISTRUN_FRAMEWORKS_PYTHON names."""
    python = os.environ.get("DISTRUN_FRAMEWORKS_PYTHON") or str(ROOT / "build/frameworks/bin/python")
    if not Path(python).exists():
        pytest.skip(f"{python} is not there: scripts/test (without --quick) makes it and installs TensorFlow and JAX")
    return python


@pytest.fixture
def run_framework(framework_python: str) -> RunFramework:
    """run_framework("-np", "2", program="jax_psum.py", words=("ours",)): distrun with that Python, to its end."""

    def run(*options: str, program: str, words: tuple[str, ...] = (), python: str = framework_python) -> Completed:
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
        command = [launcher_path(), *options, "--timeout", "150", python, str(PROGRAMS / program), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=170, env={**os.environ, **quiet})

    return run
