"""Functions that a program passes to an optimizer's update, on any number of ranks."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from checks import run
from jax_ops import WAYS

import distrun.jax as hvd


def check_functions_of_the_update_are_of_all_ranks() -> None:
    """Line searches, SAM and Sophia take the steps of one process with the whole batch, and the same steps on each
    rank."""
    truth = jnp.arange(1.0, 5.0)

    def batch(rank: int) -> Any:
        x = jax.random.normal(jax.random.key(rank), (8, 4))
        return x, x @ truth + rank

    def loss(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.mean((jnp.tanh(x @ params["w"]) + params["b"] - y) ** 2)

    def searched(params: Any, state: Any, x: jax.Array, y: jax.Array) -> dict[str, Any]:
        value, gradient = optax.value_and_grad_from_state(loss)(params, x=x, y=y, state=state)
        return {"value": value, "grad": gradient, "value_fn": loss, "x": x, "y": y}

    def sharpened(params: Any, state: Any, x: jax.Array, y: jax.Array) -> dict[str, Any]:
        return {"grad_fn": jax.grad(lambda params, _: loss(params, x, y))}

    def curved(params: Any, state: Any, x: jax.Array, y: jax.Array) -> dict[str, Any]:
        return {"obj_fn": lambda params: loss(params, x, y)}

    def train(optimizer: Any, more: Any, way: Any, x: jax.Array, y: jax.Array) -> Any:
        params = {"w": jnp.zeros(4), "b": jnp.zeros(())}
        state = optimizer.init(params)

        @way
        def step(params: Any, state: Any) -> Any:
            given = more(params, state, x, y)
            gradient = given.get("grad", jax.grad(loss)(params, x, y))
            updates, state = optimizer.update(gradient, state, params, **given)
            return optax.apply_updates(params, updates), state

        for _ in range(2):
            params, state = step(params, state)
        return params

    adversary = optax.chain(optax.contrib.normalize(), optax.sgd(0.05))
    backtracking = optax.scale_by_backtracking_linesearch(5, store_grad=True)
    for optimizer, more, ways in (
        (optax.lbfgs(), searched, ["compiled"]),
        (optax.chain(optax.sgd(1.0), backtracking), searched, list(WAYS)),
        (optax.contrib.sam(optax.sgd(0.1), adversary, opaque_mode=True), sharpened, list(WAYS)),
        (optax.contrib.sophia(0.1, update_interval=1), curved, ["compiled"]),
    ):
        whole = [jnp.concatenate(parts) for parts in zip(*map(batch, range(hvd.size())), strict=True)]
        for name in ways:
            found = train(hvd.DistributedOptimizer(optimizer), more, WAYS[name], *batch(hvd.rank()))
            expected = train(optimizer, more, WAYS[name], *whole)
            for value, right in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
                np.testing.assert_allclose(value, right, rtol=1e-3, atol=1e-5)
            everybodys = hvd.allgather_object(jax.tree.map(np.asarray, found))
            assert all(jax.tree.all(jax.tree.map(np.array_equal, one, everybodys[0])) for one in everybodys), everybodys


if __name__ == "__main__":
    run(globals())
