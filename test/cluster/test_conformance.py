"""The conformance suite of the backends between hosts. Each rank is a process of test/backend/launched_test.cc."""

from __future__ import annotations

import pytest

from .jobs import assert_nothing_left, run
from .rig import ROOT, Cluster
from .test_mpi import OPEN_MPI, need

PROGRAM = ROOT / "build/dev/test/backend/mpi_conformance"
TWO, THREE = {2: "h1:1,h2:1", 3: "h1:2,h2:1", 4: "h1:2,h2:2", 5: "h1:3,h2:2"}, {8: "h1:3,h2:2,h3:3"}
# Backend, backend that it uses between hosts, ranks.
CASES = [
    ("tcp", "", 2),
    ("tcp", "", 5),
    ("gloo", "", 3),
    ("hierarchical", "tcp", 4),
    ("hierarchical", "gloo", 3),
    ("hierarchical", "gloo", 5),
    ("mpi", "", 4),
    ("hierarchical", "mpi", 3),
    ("hierarchical", "mpi", 5),
    ("hierarchical", "mpi", 8),
]


@pytest.mark.parametrize(("backend", "between", "ranks"), CASES)
def test_conformance_between_hosts(cluster: Cluster, backend: str, between: str, ranks: int) -> None:
    if not PROGRAM.is_file():
        pytest.skip("the suite is not built (scripts/test)")
    options = ["-np", str(ranks), "-H", {**TWO, **THREE}[ranks], "--backend", backend, "--oversubscribe"]
    options += ["--timeout", "80", *(["--between-hosts", between] if between else [])]
    cases = []
    if "mpi" in (backend, between):
        need("mpirun", "openmpi-bin")
        options.append("--mpi")
        cases = ["~abort*"]  # after an abort this process must not call MPI any more
    env = OPEN_MPI | {"TEST_RANKS": str(ranks)}
    done = run(cluster.head, *options, PROGRAM, *cases, env=env, timeout=100)
    if "there is no backend gloo" in done.stdout:
        pytest.skip("libgloo-dev is not installed")
    assert done.returncode == 0 and done.stdout.count("All tests passed") == ranks, done.stdout + done.stderr
    assert_nothing_left(*cluster.hosts)
