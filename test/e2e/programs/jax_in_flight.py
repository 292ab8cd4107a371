"""A script joins or ends while JAX still has dispatched steps to run."""

from __future__ import annotations

import sys
import threading
import time

import jax
import jax.numpy as jnp

import distrun.jax as hvd

STEPS = 10

hvd.init()
# More than 1000 operations: smaller programs run synchronously in JAX.
step = jax.jit(lambda x: hvd.allreduce((x @ x)[0, 0], op=hvd.Sum, name="step"))
x = jnp.ones((64, 64))
how = sys.argv[1]
kept: list[jax.Array] = []


def dispatch() -> None:
    kept.extend(step(x) for _ in range(STEPS))


step(x).block_until_ready()
if how == "raises":
    if hvd.rank() == 1:
        hvd.barrier()
    try:
        step(x)
        raise ValueError("before the barrier in which the other rank waits")
    finally:
        hvd.shutdown()
if hvd.rank() == 1:
    time.sleep(1)  # by now the other rank has reached the end of its script
    dispatch()
    found = [float(one) for one in kept]
    assert found == [64.0 * hvd.size()] * STEPS, found
elif how == "thread":
    thread = threading.Thread(target=dispatch)
    thread.start()
    thread.join()
else:
    for _ in range(STEPS):
        step(x)
if how == "join":
    hvd.join()
elif how in ("shutdown", "thread"):
    hvd.shutdown()
print(f"left after {how}", flush=True)
if how == "exit":
    sys.exit(0)
if how == "finally":
    try:
        sys.exit(0)
    finally:
        hvd.shutdown()
