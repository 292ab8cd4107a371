"""Computes pi on all ranks: by integrating 4 / (1 + x*x), and by throwing darts.

distrun -np 4 python examples/numpy_pi.py
"""

from __future__ import annotations

import argparse
import math

import numpy as np

import distrun.numpy as hvd


def integrate(intervals: int) -> float:
    """Integrates by the midpoint rule. Rank r takes every size-th interval, starting at r."""
    x = (np.arange(hvd.rank(), intervals, hvd.size()) + 0.5) / intervals
    mine = np.sum(4.0 / (1.0 + x * x)) / intervals
    return float(hvd.allreduce(mine, op=hvd.Sum, name="integral"))


def throw_darts(darts: int) -> float:
    """Returns four times the share of random points in the quarter circle. Every rank throws its own points."""
    points = np.random.default_rng(seed=hvd.rank()).random((2, darts))
    hits = np.count_nonzero((points * points).sum(axis=0) <= 1.0)
    return 4.0 * float(hvd.allreduce(hits / darts, op=hvd.Average, name="hits"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--intervals", type=int, default=1_000_000)
    parser.add_argument("--darts", type=int, default=1_000_000, help="darts per rank")
    options = parser.parse_args()

    hvd.init()
    integral, darts = integrate(options.intervals), throw_darts(options.darts)
    if hvd.rank() == 0:
        print(f"{hvd.size()} ranks")
        print(f"darts:    {darts:.6f}")
        print(f"integral: {integral:.12f} (error {abs(integral - math.pi):.1e})", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
