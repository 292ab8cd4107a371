"""Two ranks have batches of different sizes, for which XLA would schedule the step differently."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import distrun.jax as hvd

Result = tuple[jax.Array, jax.Array, jax.Array]


def f(w: jax.Array, x: jax.Array) -> Any:
    h = jnp.tanh(x @ w)
    return (h**2).mean(), h


def metrics(w: jax.Array, x: jax.Array) -> Result:
    (loss, h), gradient = jax.value_and_grad(f, has_aux=True)(w, x)
    return hvd.allreduce(loss, name="loss"), w - hvd.allreduce(gradient, name="g"), hvd.allreduce(h.max(0), name="m")


def in_the_loss(w: jax.Array, x: jax.Array) -> Result:
    """Operations under grad and vmap, and operations after them."""

    def loss(w: jax.Array) -> Any:
        value, h = f(w, x)
        largest = jax.vmap(functools.partial(hvd.allreduce, name="m"))(h.max(0))
        return hvd.allreduce(value, name="loss"), largest

    (value, largest), gradient = jax.value_and_grad(loss, has_aux=True)(w)
    return value, w - hvd.allreduce(gradient, name="g"), largest


def in_a_loop(w: jax.Array, x: jax.Array) -> Result:
    results = jax.lax.scan(lambda carry, _: (carry, metrics(w, x)), 0, None, length=2)[1]
    return tuple(result[1] for result in results)  # type: ignore[return-value]


def check(step: Any) -> None:
    w = jnp.arange(32.0).reshape(8, 4) / 32
    for rows in ((1, 5), (64, 4000), (3, 500)):
        batches = [jnp.arange(8.0 * n).reshape(n, 8) / (8 * n) for n in rows]
        found = jax.jit(step)(w, batches[hvd.rank()])
        loss = sum(f(w, x)[0] for x in batches) / 2
        gradient = sum(jax.grad(f, has_aux=True)(w, x)[0] for x in batches) / 2
        largest = sum(f(w, x)[1].max(0) for x in batches) / 2
        for one, expected in zip(found, (loss, w - gradient, largest), strict=True):
            np.testing.assert_allclose(one, expected, rtol=1e-4, atol=1e-6)


hvd.init()
for step in (metrics, in_the_loss, in_a_loop):
    check(step)
    print(f"{step.__name__} done", flush=True)
hvd.shutdown()
