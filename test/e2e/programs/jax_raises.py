"""Rank 1 raises an exception while rank 0 waits for it in a collective of JAX. With the word init, both have called
distrun's init before; with after, they call it later.
"""

from __future__ import annotations

import sys

import jax
import numpy as np
from jax.experimental import multihost_utils

import distrun.jax as hvd

if sys.argv[1] == "init":
    hvd.init()
hvd.initialize_distributed()
if sys.argv[1] == "after":
    hvd.init()
multihost_utils.process_allgather(np.ones(3))
if jax.process_index() == 1:
    sys.stdout.reconfigure(write_through=False)  # type: ignore[union-attr]
    sys.stdout.write("buffered")
    raise ValueError("a bad batch")
multihost_utils.process_allgather(np.ones(3))
