"""An older PyTorch is refused with one sentence, or works without the newer features. Here the installed one claims to
be old."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Result, run_text

START = "import torch; torch.__version__ = {version!r}; import distrun.torch as hvd; "
COMPILE = (
    "hvd.init(); step = torch.compile(lambda x: hvd.allreduce(torch.tanh(x)) + 1, backend='eager', fullgraph={whole}); "
    "x = torch.ones(2); assert torch.equal(step(x), torch.tanh(x) + 1); print('compiled')"
)


def run(folder: Path, version: str, then: str) -> Result:
    return run_text(folder, START.format(version=version) + then)


@pytest.mark.parametrize("version", ["1.13.1", "2.3.1+cpu"])
def test_too_old(version: str, tmp_path: Path) -> None:
    result = run(tmp_path, version, "")
    assert result.returncode == 1
    text = f"distrun.torch needs PyTorch 2.4 or newer, and this is {version}: pip install --upgrade 'torch>=2.4'."
    assert f"ImportError: {text}" in result.stderr, result.stderr


def test_too_old_for_a_backend_of_torch_distributed(tmp_path: Path) -> None:
    result = run(tmp_path, "2.9.1", "import distrun.torch.c10d")
    assert result.returncode == 1
    assert "the backend distrun of torch.distributed needs PyTorch 2.10 or newer" in result.stderr, result.stderr


def test_too_old_for_operators_in_a_graph(tmp_path: Path) -> None:
    """The graph ends before the operation."""
    result = run(tmp_path, "2.9.1", COMPILE.format(whole=False))
    assert result.stdout == "compiled\n", result.stderr
    result = run(tmp_path, "2.9.1", COMPILE.format(whole=True))
    assert result.returncode == 1
    assert "Unsupported" in result.stderr and "allreduce" in result.stderr, result.stderr


@pytest.mark.parametrize("version", ["2.10.0a0+vendor", "3.0.0"])
def test_new_enough(version: str, tmp_path: Path) -> None:
    result = run(tmp_path, version, "import distrun.torch.c10d; " + COMPILE.format(whole=True))
    assert result.stdout == "compiled\n", result.stderr
