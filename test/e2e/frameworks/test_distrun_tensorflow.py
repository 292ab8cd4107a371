"""distrun.tensorflow with the real TensorFlow: many checks in each program, since importing it takes seconds."""

from __future__ import annotations

import pytest

from .conftest import RunFramework


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_operations(run_framework: RunFramework, ranks: int) -> None:
    done = run_framework("-np", str(ranks), "--oversubscribe", program="tf_ops.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all checks passed") == ranks, done.stdout + done.stderr
