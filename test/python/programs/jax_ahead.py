"""Calls of a rank while JAX still has dispatched programs to run, on any number of ranks."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np
from checks import run
from jax_ops import everybody, of, same

import distrun.jax as hvd

BUSY = jnp.full((500, 500), 1e-3)


def be_late(rank: int) -> None:
    if hvd.rank() == rank:
        time.sleep(0.05)


def after_much(x: jax.Array) -> jax.Array:
    """Takes so long that JAX returns before it has run."""
    busy = BUSY
    for _ in range(4):
        busy = jnp.tanh(busy @ busy)
    return x + 0 * busy[0, 0]


def check_a_name_that_a_program_has_too() -> None:
    step = jax.jit(lambda x: hvd.allreduce(after_much(x), name="loss", op=hvd.Sum))
    x, total = of(hvd.rank(), (3,)), sum(everybody((3,)))
    twice, thrice = jax.block_until_ready((2 * x, 3 * x))
    step(x).block_until_ready()
    for late in range(hvd.size()):
        be_late(late)
        inside = step(x)
        outside = hvd.allreduce(twice, name="loss", op=hvd.Sum)
        again = step(thrice)
        same([inside, outside, again], [total, 2 * total, 3 * total])


def check_a_set_goes_after_the_steps_that_use_it() -> None:
    ours = hvd.add_process_set(range(1, hvd.size())) if hvd.size() > 2 else None
    if ours is None:
        return
    results = []
    if ours.included():
        be_late(1)
        step = jax.jit(lambda x: hvd.allreduce(after_much(x), op=hvd.Sum, process_set=ours))
        results = [step(jnp.full(2, value)) for value in (1.0, 2.0)]
    hvd.remove_process_set(ours)
    for value, result in enumerate(results, 1):
        same(result, jnp.full(2, float(value * (hvd.size() - 1))))


def check_parameters_with_classes_among_them() -> None:
    """Classes of dtypes have an attribute dtype themselves."""
    kept = {"dtype": jnp.bfloat16, "other": np.float32, "text": "adam", "w": of(hvd.rank(), (2,))}
    found = hvd.broadcast_parameters(kept)
    assert found["dtype"] is jnp.bfloat16 and found["other"] is np.float32 and found["text"] == "adam"
    same(found["w"], of(0, (2,)))


if __name__ == "__main__":
    run(globals())
