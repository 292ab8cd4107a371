"""Rank 1 has one batch more than rank 0, which ends without join."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp

import distrun.jax as hvd

hvd.init()
step = jax.jit(lambda x: hvd.allreduce(x, name="gradient"))
try:
    for _ in range(2 + (hvd.rank() == 1)):
        jax.block_until_ready(step(jnp.ones(3)))
except Exception as failure:  # a ValueError, if JAX runs the program synchronously
    error = hvd.error_of(failure)
    assert error is not None
    print(f"told {time.time()} {type(error).__name__} ranks={error.ranks} {failure}", flush=True)
    raise SystemExit(3) from None
print(f"leaves {time.time()}", flush=True)
