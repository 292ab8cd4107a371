"""CUDA tensors on a machine with a GPU. `scripts/gpu_check` runs this. On other machines it is skipped with the
reason."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
import torch

import distrun

from .conftest import RunRanks


def why_not() -> str:
    """The reason why the tests cannot run here. Empty if there is none."""
    if not torch.cuda.is_available():
        kind = "is without CUDA" if torch.version.cuda is None else "finds no GPU"
        return f"needs an NVIDIA GPU and a torch for it: torch {torch.__version__} {kind}"
    if not distrun.nccl_built():
        return "the backend nccl is not available: `distrun check --build` says why"
    return ""


WHY_NOT = why_not()
MANY_ON_ONE = 23000  # the first version of NCCL that allows ranks to share a GPU

pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)


def ranks() -> int:
    """The number of GPUs, at most 4. On a single GPU it is two, if NCCL supports this."""
    gpus = torch.cuda.device_count()
    if gpus > 1:
        return min(gpus, 4)
    if distrun.nccl_built() < MANY_ON_ONE:
        return 1
    os.environ["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"
    return 2


OPERATIONS_SECONDS = 500


@pytest.mark.timeout(OPERATIONS_SECONDS + 40)
def test_operations_alone(run_ranks: RunRanks) -> None:
    assert run_ranks(1, "gpu_ops.py", timeout=OPERATIONS_SECONDS).stdout.count("all checks passed") == 1


@pytest.mark.timeout(OPERATIONS_SECONDS + 40)
def test_operations_between_ranks(run_ranks: RunRanks) -> None:
    if ranks() == 1:
        pytest.skip("one GPU, and ranks can share it from NCCL 2.30 on")
    text = run_ranks(ranks(), "gpu_ops.py", timeout=OPERATIONS_SECONDS).stdout
    assert text.count("all checks passed") == ranks()


def why_not_jax() -> str:
    """The reason why JAX cannot use a GPU here. Empty if there is none."""
    program = "import jax; jax.devices('cuda')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    lines = done.stderr.strip().splitlines() or ["no reason was given"]
    return "" if done.returncode == 0 else f"needs a JAX for CUDA in this Python: {lines[-1]}"


@pytest.mark.timeout(OPERATIONS_SECONDS + 180)
def test_compiled_programs_of_jax(run_ranks: RunRanks, monkeypatch: pytest.MonkeyPatch) -> None:
    if why := why_not_jax():
        pytest.skip(why)
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # ranks may share a GPU
    text = run_ranks(ranks(), "jax_gpu_ops.py", timeout=OPERATIONS_SECONDS).stdout
    assert text.count("all checks passed") == ranks()


def test_a_death_is_an_error_and_not_a_hang(run_ranks: RunRanks) -> None:
    if ranks() == 1:
        pytest.skip("one GPU, and ranks can share it from NCCL 2.30 on")
    result = run_ranks(ranks(), "gpu_death.py", check=False, timeout=120)
    assert result.returncode == 137, result.stdout + result.stderr
    found = re.findall(r"rank lost after ([\d.]+) s", result.stdout)
    assert len(found) == ranks() - 1 and all(float(seconds) < 30 for seconds in found), result.stdout
