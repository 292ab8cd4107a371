"""Backends between hosts. Random programs with every operation and dtype; each result is compared with NumPy's."""

from __future__ import annotations

import sys

import pytest

from .jobs import assert_nothing_left, run
from .rig import ROOT, Cluster

RUN = ROOT / "test/differential/run.py"
# By default the world uses hierarchical if a host has two ranks. Sets without such a host use other backends. Each
# entry: ranks, slots of each host.
PLACES = [(2, "h1:1,h2:1"), (3, "h1:2,h2:1"), (4, "h1:2,h2:2"), (5, "h1:3,h2:2")]


@pytest.mark.parametrize("backend", ["tcp", "gloo", "auto"])
@pytest.mark.parametrize(("ranks", "hosts"), PLACES)
def test_random_programs_on_two_hosts(cluster: Cluster, backend: str, ranks: int, hosts: str) -> None:
    options = (
        "-np",
        str(ranks),
        "-H",
        hosts,
        "--backend",
        backend,
        "--oversubscribe",
        "--timeout",
        "100",
        "-x",
        "DISTRUN_LOG_LEVEL=info",
    )
    done = run(cluster.head, *options, sys.executable, RUN, "--seeds", "1-25", timeout=120)
    if backend == "gloo" and "no plug-in" in done.stderr:
        pytest.skip(done.stderr)
    assert done.stdout.count("programs passed") == ranks, done.stdout + done.stderr
    if backend == "auto" and ranks > 2:
        assert "process set 0: cpu: hierarchical" in done.stderr, done.stderr
    assert_nothing_left(cluster["h1"], cluster["h2"])


def test_what_cannot_be_had_between_hosts_is_said(cluster: Cluster) -> None:
    program = "import distrun.numpy as hvd, numpy; hvd.init(); print(hvd.allreduce(numpy.ones(1), op=hvd.Sum))"
    options = ("-np", "3", "-H", "h1:2,h2:1", "--oversubscribe", "--timeout", "60")
    done = run(cluster.head, *options, "--between-hosts", "shm", sys.executable, "-c", program, timeout=80)
    assert done.returncode == 0 and done.stdout.count("[3.]") == 3, done.stdout + done.stderr
    assert done.stderr.count("--between-hosts shm is not available: ") == 1, done.stderr
    refused = run(cluster.head, *options, "--between-hosts", "glo", sys.executable, "-c", program, timeout=80)
    assert refused.returncode == 64 and "There is no backend glo. Choose gloo, mpi or tcp" in refused.stderr
    assert_nothing_left(cluster["h1"], cluster["h2"])
