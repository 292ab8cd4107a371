"""A callback of a compiled program calls a function that waits for this program. It raises, and the rank goes on."""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
from jax.experimental import io_callback

import distrun.jax as hvd

refusals: list[str] = []


def leave(_: jax.Array) -> None:
    try:
        getattr(hvd, sys.argv[1])()
    except RuntimeError as error:
        refusals.append(str(error))


def step(x: jax.Array) -> jax.Array:
    # More than 1000 operations: smaller programs run synchronously in JAX.
    total = hvd.allreduce(x @ x, op=hvd.Sum, name="step")
    io_callback(leave, None, total[0, 0])
    return total + 1


hvd.init()
result = jax.jit(step)(jnp.ones((64, 64)))
jax.effects_barrier()
assert float(result[0, 0]) == 64 * hvd.size() + 1
assert len(refusals) == 1 and "callback" in refusals[0], refusals
assert float(hvd.allreduce(jnp.float32(1), op=hvd.Sum)) == hvd.size()
hvd.shutdown()
print("left", flush=True)
