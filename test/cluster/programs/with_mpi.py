"""Uses MPI and distrun in one process, in the order of the argument. Both must see the same world."""

from __future__ import annotations

import sys

import numpy as np

import distrun.numpy as hvd

if sys.argv[1] == "mpi-first":
    from mpi4py import MPI

    hvd.init()
else:
    hvd.init()
    from mpi4py import MPI

ranks = np.array([hvd.rank()], np.float32)
by_mpi = MPI.COMM_WORLD.allreduce(float(ranks[0]), op=MPI.SUM)
by_distrun = hvd.allreduce(ranks, op=hvd.Sum, name="ranks")[0]
same = MPI.COMM_WORLD.Get_rank() == hvd.rank() and MPI.COMM_WORLD.Get_size() == hvd.size()
print(f"both {hvd.rank()}/{hvd.size()} {by_mpi:.0f} {by_distrun:.0f} {same}", flush=True)
hvd.shutdown()
