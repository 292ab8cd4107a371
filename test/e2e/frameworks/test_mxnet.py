"""distrun.mxnet, with the real MXNet: scripts/test --full makes its environment."""

from __future__ import annotations

import pytest
from environments import environment_python

from ..conftest import ROOT
from .conftest import RunFramework, assert_trained, run_with

pytestmark = pytest.mark.full


@pytest.fixture
def run_mxnet() -> RunFramework:
    return run_with(environment_python("mxnet"))


@pytest.mark.parametrize(("ranks", "options"), [(1, ()), (2, ()), (3, ("--oversubscribe",)), (2, ("--backend", "tcp"))])
def test_operations(run_mxnet: RunFramework, ranks: int, options: tuple[str, ...]) -> None:
    """Arrays, trainers, optimizers and errors: mxnet_ops.py says which."""
    done = run_mxnet("-np", str(ranks), *options, program=ROOT / "test/python/programs/mxnet_ops.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all checks passed") == ranks


def test_mnist(run_mxnet: RunFramework) -> None:
    assert_trained(run_mxnet("-np", "2", program=ROOT / "examples/mxnet_mnist.py"), 0.9)
