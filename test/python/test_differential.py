"""Random programs on real sessions, compared with NumPy (test/differential/). This runs 2,000. For more, use `distrun
-np 3 --backend tcp python test/differential/run.py --seeds 1-10000`."""

from __future__ import annotations

import os
import subprocess
import sys

import open_mpi
import pytest

from .conftest import ROOT, MpiStart, RunRanks

RUN = str(ROOT / "test/differential/run.py")

# Ranks, backend, seeds: 2,000 programs, half of them only with --full. test/cluster/test_backends.py runs across hosts.
SHARES = [
    (1, "self", "1-150"),
    (2, "shm", "301-500"),
    (2, "tcp", "701-775"),
    (2, "gloo", "851-875"),
    (3, "shm", "901-1050"),
    (3, "tcp", "1201-1275"),
    (3, "gloo", "1351-1375"),
    (4, "shm", "1401-1500"),
    (4, "tcp", "1601-1650"),
    (5, "shm", "1701-1775"),
    (5, "tcp", "1851-1890"),
]
FULL_SHARES = [
    (1, "self", "151-300"),
    (2, "shm", "501-700"),
    (2, "tcp", "776-850"),
    (2, "gloo", "876-900"),
    (3, "shm", "1051-1200"),
    (3, "tcp", "1276-1350"),
    (3, "gloo", "1376-1400"),
    (4, "shm", "1501-1600"),
    (4, "tcp", "1651-1700"),
    (5, "shm", "1776-1850"),
    (5, "tcp", "1891-1930"),
]
MPI_SHARES = [(1, "1931-1940"), (2, "1941-1970"), (3, "1971-2000")]


def need_plugin(backend: str) -> None:
    """Skips the test if the installation has no such plug-in. The reason is the installation's own text."""
    program = "import distrun; distrun.init(); print(distrun.query('backends'))"
    lines = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    line = next((one for one in lines.splitlines() if one.startswith(backend)), f"{backend}: no plug-in")
    if "no plug-in" in line:
        pytest.skip(line)


@pytest.mark.parametrize(
    ("ranks", "backend", "seeds"), [*SHARES, *(pytest.param(*share, marks=pytest.mark.full) for share in FULL_SHARES)]
)
def test_random_programs(run_ranks: RunRanks, ranks: int, backend: str, seeds: str) -> None:
    if backend == "gloo":
        need_plugin(backend)
    result = run_ranks(ranks, RUN, "--seeds", seeds, backend=backend)
    assert result.stdout.count("programs passed") == ranks, result.stdout


@pytest.mark.parametrize(("ranks", "seeds"), MPI_SHARES)
def test_random_programs_on_mpi(mpi_start: MpiStart, ranks: int, seeds: str) -> None:
    need_plugin("mpi")
    insist = ["--ranks", str(ranks), "--mpi", "Open MPI"]
    result = subprocess.run(
        [*mpi_start(ranks), sys.executable, RUN, "--seeds", seeds, *insist],
        env={**os.environ, **open_mpi.AS_ROOT, "DISTRUN_BACKEND": "mpi"},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert result.stdout.count("programs passed") == ranks, result.stdout + result.stderr


def test_a_wrong_result_is_noticed_and_its_seed_named(run_ranks: RunRanks) -> None:
    result = run_ranks(2, RUN, "--seeds", "1-50", "--spoil", check=False)
    assert result.returncode != 0
    assert "fails on rank 1 of 2; again with --seeds" in result.stdout + result.stderr
    assert "Wrong" in result.stdout + result.stderr
