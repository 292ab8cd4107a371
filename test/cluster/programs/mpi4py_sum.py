"""A script as written for mpirun. It does not know distrun."""

from __future__ import annotations

import platform

from mpi4py import MPI

world = MPI.COMM_WORLD
total = world.allreduce(world.Get_rank(), op=MPI.SUM)
print(f"{world.Get_rank()}/{world.Get_size()} {total} {platform.node()}", flush=True)
