"""Rank 1 is killed in the middle of a step that rank 0 waits for."""

from __future__ import annotations

import os
import signal
import time

import jax
import jax.numpy as jnp

import distrun.jax as hvd

hvd.init()
step = jax.jit(lambda x: x + hvd.allreduce(x, op=hvd.Sum) + hvd.allreduce(2 * x))
x = step(jnp.ones(1000)).block_until_ready()
if hvd.rank() == 1:
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)
started = time.monotonic()
try:
    step(x).block_until_ready()
except jax.errors.JaxRuntimeError as failure:
    error = hvd.error_of(failure)
    assert error is not None
    waited = time.monotonic() - started - 0.5
    print(f"told after {max(waited, 0):.2f} s: {type(error).__name__} ranks={error.ranks} {failure}", flush=True)
    raise SystemExit(3) from None
