"""The program of rank_dies.session: rank 2 reads a bad batch in step 17."""

import numpy as np

import distrun.numpy as hvd

hvd.init()
for step in range(100):
    rows = 31 if hvd.rank() == 2 and step == 17 else 32
    if rows != 32:
        raise ValueError(f"batch {step} has {rows} rows, expected 32")
    hvd.allreduce(np.ones(rows), name="gradients")
