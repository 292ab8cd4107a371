"""distrun.mxnet with the real MXNet. scripts/test --full creates its environment."""

from __future__ import annotations

import re

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
    """Arrays, trainers, optimizers and errors; mxnet_ops.py has the list."""
    done = run_mxnet("-np", str(ranks), *options, program=ROOT / "test/python/programs/mxnet_ops.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all checks passed") == ranks


def test_mnist(run_mxnet: RunFramework) -> None:
    assert_trained(run_mxnet("-np", "2", program=ROOT / "examples/mxnet_mnist.py"), 0.9)


def test_a_rank_killed_in_mid_step(run_mxnet: RunFramework) -> None:
    done = run_mxnet("-np", "3", "--oversubscribe", program="mxnet_ends.py", words=("killed",))
    assert done.returncode == 137, done.stdout + done.stderr
    died = re.search(r"dies (\S+)", done.stdout)
    raised = re.findall(r"told (\S+) ranks=\(1,\)", done.stdout)
    assert died is not None and len(raised) == 2, done.stdout + done.stderr
    assert all(float(when) - float(died[1]) < 2.0 for when in raised), done.stdout


def test_a_rank_with_fewer_batches_leaves(run_mxnet: RunFramework) -> None:
    done = run_mxnet("-np", "2", program="mxnet_ends.py", words=("leaves",))
    assert done.returncode == 76, done.stdout + done.stderr
    assert re.search(r"told ranks=\(0,\) .*allreduce", done.stdout), done.stdout


@pytest.mark.parametrize("how", ["joins", "nan", "infinite", "overflows"])
def test_what_one_rank_has_of_its_own(run_mxnet: RunFramework, how: str) -> None:
    done = run_mxnet("-np", "2", program="mxnet_ends.py", words=(how,))
    assert done.returncode == 0 and done.stdout.count("all checks passed") == 2, done.stdout + done.stderr


def test_a_parameter_that_one_rank_lacks(run_mxnet: RunFramework) -> None:
    done = run_mxnet("-np", "2", "--all-errors", program="mxnet_ends.py", words=("lacks",))
    assert done.returncode == 76, done.stdout + done.stderr
    raised = r"RankLeft: allreduce '\S+_bias' can never run: rank 0 .* left the job without submitting it"
    assert re.search(raised, done.stdout + done.stderr), done.stdout + done.stderr
