"""Random programs on real sessions, compared with NumPy (test/differential/): 2,000 of them, and more with
`distrun -np 3 --backend tcp python test/differential/run.py --seeds 1-10000`."""

from __future__ import annotations

import pytest

from .conftest import ROOT, RunRanks

RUN = str(ROOT / "test/differential/run.py")

# Ranks, backend, seeds: 2,000 programs.
SHARES = [
    (1, "self", "1-300"),
    (2, "shm", "301-700"),
    (2, "tcp", "701-900"),
    (3, "shm", "901-1200"),
    (3, "tcp", "1201-1400"),
    (4, "shm", "1401-1600"),
    (4, "tcp", "1601-1700"),
    (5, "shm", "1701-1900"),
    (5, "tcp", "1901-2000"),
]


@pytest.mark.parametrize(("ranks", "backend", "seeds"), SHARES)
def test_random_programs(run_ranks: RunRanks, ranks: int, backend: str, seeds: str) -> None:
    result = run_ranks(ranks, RUN, "--seeds", seeds, backend=backend)
    assert result.stdout.count("programs passed") == ranks, result.stdout


def test_a_wrong_result_is_noticed_and_its_seed_named(run_ranks: RunRanks) -> None:
    result = run_ranks(2, RUN, "--seeds", "1-50", "--spoil", check=False)
    assert result.returncode != 0
    assert "fails on rank 1 of 2; again with --seeds" in result.stdout + result.stderr
    assert "Wrong" in result.stdout + result.stderr
