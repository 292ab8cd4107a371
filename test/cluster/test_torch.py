"""The backend distrun of torch.distributed between hosts. test/python/test_c10d.py has the same on one host."""

from __future__ import annotations

import sys

import pytest

from .jobs import assert_nothing_left, run
from .rig import ROOT, Cluster

PROGRAMS = ROOT / "test/python/programs"


@pytest.mark.parametrize("backend", ["auto", "hierarchical"])
@pytest.mark.parametrize("program", ["c10d_ops.py", "c10d_messages.py"])
def test_torch_distributed_with_shared_memory_in_each_host(cluster: Cluster, program: str, backend: str) -> None:
    """The group of all ranks is hierarchical. Smaller groups (two ranks on different hosts) use another backend."""
    pytest.importorskip("torch", reason="torch is not installed: scripts/test does that")
    options = ("-np", "4", "-H", "h1:2,h2:2", "--oversubscribe", "--timeout", "120", "--backend", backend)
    info = {"DISTRUN_LOG_LEVEL": "info"}
    done = run(cluster.head, *options, sys.executable, PROGRAMS / program, env=info, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all checks passed") == 4, done.stdout
    assert "process set 0: cpu: hierarchical" in done.stderr, done.stderr
    asked = "hierarchical (--backend hierarchical) has nothing to do: "
    assert (asked in done.stderr) == (backend == "hierarchical"), done.stderr
    assert_nothing_left(*cluster.hosts)
