"""Sends a pattern by every operation that moves tensors between hosts, and prints whether all results were right."""

from __future__ import annotations

import numpy as np

import distrun.numpy as hvd

PATTERN = b"4 8 15 16 23 42 "
REPEATED = 40000  # longer than a record, so that some patterns are split

hvd.init()
size, rank = hvd.size(), hvd.rank()
mine = np.frombuffer(PATTERN * REPEATED, np.uint8)
other = np.zeros_like(mine)
right = True
for step in range(2):
    name = f"the name of tensor {step}"
    right &= np.array_equal(hvd.broadcast(mine if rank == 0 else other, 0, name=f"{name} a"), mine)
    right &= np.array_equal(hvd.allgather(mine, name=f"{name} b"), np.tile(mine, size))
    right &= np.array_equal(hvd.alltoall(np.tile(mine, size), name=f"{name} c"), np.tile(mine, size))
    # The maximum of equal values, which is sent in messages of partial results.
    numbers = mine.view(np.int32)
    right &= np.array_equal(hvd.allreduce(numbers, op=hvd.Max, name=f"{name} d"), numbers)
print(f"rank {rank} is {'right' if right else 'wrong'}", flush=True)
