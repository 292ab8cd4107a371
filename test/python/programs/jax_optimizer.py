"""distrun.jax.DistributedOptimizer on any number of ranks."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from checks import raises, run
from jax_ops import WAYS, everybody, of, same

import distrun.jax as hvd


def check_optimizer_equals_a_single_process() -> None:
    """Ranks with their shares of the batch take the steps of one process with the whole batch."""
    rank, size = hvd.rank(), hvd.size()
    images = jax.random.normal(jax.random.key(1), (4 * size, 5))
    labels = images @ jnp.arange(5.0)

    def train(optimizer: Any, images: jax.Array, labels: jax.Array, passes: int = 1) -> Any:
        params = {"w": jnp.zeros(5), "b": jnp.zeros(())}
        state = optimizer.init(params)

        @jax.jit
        def step(params: Any, state: Any, images: jax.Array, labels: jax.Array) -> Any:
            def loss(params: Any) -> jax.Array:
                return ((images @ params["w"] + params["b"] - labels) ** 2).mean()

            updates, state = optimizer.update(jax.grad(loss)(params), state, params)
            return optax.apply_updates(params, updates), state

        for _ in range(10):
            for part in range(passes):
                rows = slice(part * len(labels) // passes, (part + 1) * len(labels) // passes)
                params, state = step(params, state, images[rows], labels[rows])
        return params

    expected = train(optax.adam(0.1), images, labels)
    mine = slice(4 * rank, 4 * rank + 4)
    for options in ({}, {"gradient_predivide_factor": 2.0}, {"backward_passes_per_step": 2}):
        optimizer = hvd.DistributedOptimizer(optax.adam(0.1), **options)
        found = train(optimizer, images[mine], labels[mine], options.get("backward_passes_per_step", 1))
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-3, atol=1e-5)


def check_passes_before_the_last_one_wait_for_nobody() -> None:
    optimizer = hvd.DistributedOptimizer(optax.sgd(1.0), backward_passes_per_step=3)
    mean = (hvd.size() + 1) / 2
    for way in WAYS.values():
        update = way(optimizer.update)
        state = optimizer.init(jnp.zeros(2))
        for _ in range(2):
            if hvd.rank() == 0:
                hvd.barrier()
            for _ in range(2):
                updates, state = update(jnp.full(2, hvd.rank() + 1.0), state)
                same(updates, jnp.zeros(2))
            if hvd.rank() != 0:
                hvd.barrier()
            updates, state = update(jnp.full(2, hvd.rank() + 1.0), state)
            same(updates, jnp.full(2, -mean))
        assert isinstance(state, optax.MultiStepsState) and int(state.gradient_step) == 2


def check_passes_take_what_an_optimizer_decides_by() -> None:
    plateau = optax.contrib.reduce_on_plateau(patience=1, factor=0.5)
    inner = hvd.DistributedOptimizer(optax.chain(optax.sgd(1.0), plateau), backward_passes_per_step=2)
    optimizer = optax.chain(inner, optax.identity())
    for way in WAYS.values():
        update = way(lambda gradient, state, value: optimizer.update(gradient, state, value=value))
        state = optimizer.init(jnp.zeros(2))
        steps = []
        for _ in range(4):
            for _ in range(2):
                updates, state = update(jnp.full(2, hvd.rank() + 1.0), state, jnp.float32(hvd.rank()))
            steps.append(float(updates[0]))
        assert steps[0] == -(hvd.size() + 1) / 2 and steps[-1] > steps[0], steps


def check_how_gradients_are_reduced() -> None:
    """With SGD, because its steps are the gradients. Adam's steps do not change with the scale of the gradients."""
    size, gradient = hvd.size(), jnp.full(2, hvd.rank() + 1.0)

    def check(expected: float, **options: Any) -> None:
        links = {hvd.DistributedOptimizer(optax.sgd(1.0), **options): -expected}
        for link, update in {**links, hvd.distribute_gradients(**options): expected}.items():
            for way in WAYS.values():
                function = way(lambda gradient, link=link: link.update(gradient, link.init(gradient))[0])
                same(function(gradient), jnp.full(2, update))

    mean = (size + 1) / 2
    check(mean)
    check(mean * size, op=hvd.Sum)
    check(mean, gradient_predivide_factor=2.0)
    if size > 1:
        with raises(hvd.Mismatch, "prescale factors differ", "0.5", "0.25"):
            hvd.distribute_gradients(gradient_predivide_factor=4.0 if hvd.rank() else 2.0).update(gradient, ())
    if size > 2:
        ours = hvd.add_process_set(range(1, size))
        if hvd.rank() > 0:
            check(mean + 0.5, process_set=ours)
        hvd.remove_process_set(ours)


def check_an_overflow_on_one_rank_skips_the_step_on_all() -> None:
    """The gradients are checked after the reduction: apply_if_finite belongs inside."""
    optimizer = hvd.DistributedOptimizer(optax.apply_if_finite(optax.sgd(0.5), max_consecutive_errors=5))

    @jax.jit
    def step(params: jax.Array, state: Any, slope: jax.Array) -> Any:
        gradients = jax.grad(lambda p: (p.astype(jnp.float16) * slope).sum().astype(jnp.float32))(params)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    params = jnp.ones(3)
    state = optimizer.init(params)
    for slope, expected in ((2.0, 0.0), (jnp.inf if hvd.rank() == 0 else 2.0, 0.0), (2.0, -1.0)):
        params, state = step(params, state, jnp.float16(slope))
        same(params, jnp.full(3, expected))


def check_what_an_optimizer_decides_by_is_the_same_on_all_ranks() -> None:
    def update(updates: Any, state: Any, params: Any = None, **more: Any) -> Any:
        return more, state

    seen = optax.GradientTransformationExtraArgs(lambda params: (), update)
    seen = hvd.DistributedOptimizer(
        seen, compression=hvd.Compression.fp16, replicated=["other"], averaged=("norm", "norm_fn")
    )
    x, state = hvd.size() * of(hvd.rank(), (3,)), seen.init(jnp.zeros(3))
    for way in WAYS.values():
        function = way(
            lambda x, one: seen.update(x, state, value=one, loss=one, norm={"a": one}, grad=x, other=one, nothing=None)[
                0
            ]
        )
        own = jnp.float32(70000 + hvd.rank())  # more than float16 can hold
        average = jnp.float32(70000 + (hvd.size() - 1) / 2)
        found = function(x, own)
        assert found.pop("nothing") is None
        values = {"value": average, "loss": average, "norm": {"a": average}}
        same(found, {"grad": sum(everybody((3,))), "other": own, **values})

        def results(x: jax.Array, one: jax.Array) -> Any:
            given = seen.update(x, state, norm_fn=lambda: one, grad_fn=lambda params, i: i * params)[0]
            return given["norm_fn"](), given["grad_fn"](x, 2)

        same(way(results)(x, own), (average, 2 * sum(everybody((3,)))))


def check_unknown_arguments_are_refused_by_name() -> None:
    optimizer = optax.with_extra_args_support(optax.sgd(0.1))
    x = jnp.ones(3)
    for make, cure in (
        (hvd.DistributedOptimizer, ("distance=", 'replicated=("distance",)', 'averaged=("distance",)')),
        (lambda it: optax.chain(hvd.distribute_gradients(), it), ("distance=", 'replicated=("distance",)')),
    ):
        made = make(optimizer)
        for way in WAYS.values():
            update = way(lambda x, one, made=made: made.update(x, made.init(x), distance=one)[0])
            if hvd.size() == 1:
                same(update(x, 1.0), -0.1 * x)
                continue
            with raises(TypeError, *cure):
                update(x, 1.0)
    known = optax.chain(hvd.distribute_gradients(replicated=("distance",)), optimizer)
    same(known.update(x, known.init(x), distance=1.0)[0], -0.1 * x)
    with raises(TypeError, "replicated", "tuple of names"):
        hvd.DistributedOptimizer(optimizer, replicated="distance")
    with raises(TypeError, "averaged", "str"):
        hvd.DistributedOptimizer(optimizer, averaged=(1,))
    with raises(ValueError, "'distance'"):
        hvd.DistributedOptimizer(optimizer, replicated=("distance",), averaged=("distance",))
    if hvd.size() > 1:
        with raises(NotImplementedError, "value_fn=", "Average"):
            hvd.DistributedOptimizer(optimizer, op=hvd.Sum).update(x, (), value_fn=jnp.sum)
        passes = hvd.DistributedOptimizer(optimizer, backward_passes_per_step=2)
        with raises(NotImplementedError, "grad_fn=", "backward_passes_per_step"):
            passes.update(x, passes.init(x), grad_fn=jnp.sign)


if __name__ == "__main__":
    run(globals())
