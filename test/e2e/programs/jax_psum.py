"""A sum over all processes, after jax.distributed.initialize() or, with the word ours, distrun's."""

from __future__ import annotations

import sys

import jax
import numpy as np
from jax.experimental import multihost_utils

if sys.argv[1] == "ours":
    import distrun.jax

    distrun.jax.initialize_distributed()
else:
    jax.distributed.initialize()

mine = np.float32(jax.process_index() + 1)
total = multihost_utils.process_allgather(mine).sum()
print(f"process {jax.process_index()} of {jax.process_count()}: {total}", flush=True)
