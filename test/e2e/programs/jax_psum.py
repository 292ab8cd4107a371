"""A sum over all processes. Calls jax.distributed.initialize() or, with the word ours, distrun's.

With the word address, calls JAX's with an address that is in none of JAX's variables.
"""

from __future__ import annotations

import os
import sys

import jax
import numpy as np
from jax.experimental import multihost_utils

if sys.argv[1] == "ours":
    import distrun.jax

    distrun.jax.initialize_distributed()
elif sys.argv[1] == "address":
    jax.distributed.initialize(
        coordinator_address=f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}",
        num_processes=int(os.environ["WORLD_SIZE"]),
        process_id=int(os.environ["RANK"]),
        initialization_timeout=60,
    )
else:
    jax.distributed.initialize()

mine = np.float32(jax.process_index() + 1)
total = multihost_utils.process_allgather(mine).sum()
print(f"process {jax.process_index()} of {jax.process_count()}: {total}", flush=True)
