"""Simple mistakes with distrun.jax, on any number of ranks. They are refused at once and during tracing, with the
argument, its value and the allowed values. Nothing has been submitted, so all ranks go on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from checks import raises, run
from jax_ops import WAYS, same

import distrun.jax as hvd
from distrun.jax import _native

REDUCTIONS: tuple[Callable[..., Any], ...] = (hvd.allreduce, hvd.grouped_allreduce, hvd.reducescatter)
WITHOUT_ROOT: tuple[Callable[..., Any], ...] = (*REDUCTIONS, hvd.allgather, hvd.alltoall)


def each(calls: tuple[Callable[..., Any], ...], kind: type[Exception], *texts: str, **arguments: Any) -> None:
    """Makes all `calls` with `arguments`, in every way."""
    rows = jnp.ones(2 * hvd.size())
    for call in calls:
        for way in WAYS.values():
            with raises(kind, *texts):
                way(functools.partial(call, **arguments))(rows)


def check_compression() -> None:
    for given in ("fp16", None, 5):
        each(
            REDUCTIONS,
            ValueError,
            "compression must be a class",
            "hvd.Compression.fp16",
            repr(given),
            compression=given,
        )
        for make in (hvd.distribute_gradients, functools.partial(hvd.DistributedOptimizer, optax.sgd(1.0))):
            with raises(ValueError, "hvd.Compression.fp16", repr(given)):
                make(compression=given)


class InUnits(np.ndarray):
    def __array_finalize__(self, other: Any) -> None:
        self.unit = getattr(other, "unit", "m")


def check_arrays_that_are_more_than_numbers() -> None:
    rows = np.ones(2 * hvd.size(), np.float32)
    for given, text in ((rows.view(InUnits), "InUnits may have more"), (np.ma.array(rows), "a masked array")):
        for call in (*WITHOUT_ROOT, functools.partial(hvd.broadcast, root_rank=0)):
            for way in WAYS.values():
                with raises(ValueError, text):
                    way(lambda call=call, given=given: call(given))()
        with raises(ValueError, text):
            hvd.broadcast_parameters({"w": given})


def check_names() -> None:
    broadcast = functools.partial(hvd.broadcast, root_rank=0)
    for given, kind, text in (
        (5, TypeError, "name must be a str (the same on all ranks) or None, not 5"),
        (b"x", TypeError, "not b'x'"),
        ("a\0b", ValueError, r"name must not contain a NUL character: 'a\x00b'"),
        ("two\nlines", ValueError, r"name must be one line of text: 'two\nlines'"),
        ("\udc80", ValueError, r"name must be text that UTF-8 can encode: '\udc80'"),
    ):
        each((*WITHOUT_ROOT, broadcast), kind, text, name=given)
        with raises(kind, text):
            hvd.distribute_gradients(name=given)
        for call in (hvd.broadcast_object, hvd.allgather_object):
            with raises(kind, text):
                call({}, name=given)
    for name in ('a "quoted" \\ one', "ü"):  # such names are allowed, as in the other front ends
        for way in WAYS.values():
            same(way(functools.partial(hvd.allreduce, name=name))(jnp.ones(2)), jnp.ones(2))
            if hvd.size() > 1:
                with raises(Exception, f"tensor 'allreduce.{name}'") as caught:
                    differing = jnp.ones(2 + (hvd.rank() == 1))
                    way(functools.partial(hvd.allreduce, name=name))(differing).block_until_ready()
                assert isinstance(error := hvd.error_of(caught[0]), hvd.Mismatch)
                assert error.tensor == f"allreduce.{name}"


def check_process_sets() -> None:
    broadcast = functools.partial(hvd.broadcast, root_rank=0)
    makes = (hvd.distribute_gradients, functools.partial(hvd.DistributedOptimizer, optax.sgd(1.0)))
    for given in (None, 0, [0], "all"):
        text = f"process_set must be a ProcessSet from add_process_set (leave it out for all ranks), not {given!r}"
        each((*WITHOUT_ROOT, broadcast, hvd.broadcast_parameters), TypeError, text, process_set=given)
        for call in (*makes, hvd.barrier, hvd.join, functools.partial(hvd.broadcast_object, 1)):
            with raises(TypeError, text):
                call(process_set=given)
    each((*WITHOUT_ROOT, broadcast), ValueError, "is not registered", process_set=hvd.ProcessSet([0]))


def check_factors() -> None:
    for argument in ("prescale_factor", "postscale_factor"):
        for given in ("2", None, 1j, np.ones(2), jnp.ones(2)):
            each(REDUCTIONS, TypeError, f"{argument} must be one number, not ", **{argument: given})
        each(REDUCTIONS, ValueError, f"{argument} must be a number that fits into float64", **{argument: 10**400})
    for given in (2, np.int8(2), np.array(2.0), jnp.float32(2)):
        for way in WAYS.values():
            found = way(functools.partial(hvd.allreduce, op=hvd.Sum, prescale_factor=given))(jnp.ones(2))
            same(found, jnp.full(2, 2.0 * hvd.size()))


def check_roots() -> None:
    calls = (hvd.broadcast, hvd.broadcast_parameters)
    for given in ("0", 0.0, 0.7, None, np.ones(2)):
        each(calls, TypeError, "root_rank must be the number of a rank, not ", root_rank=given)
        with raises(TypeError, "root_rank must be"):
            hvd.broadcast_object({}, given)
    for given in (2**31, 2**32, 2**70, -(2**40)):
        each(
            calls,
            ValueError,
            f"root_rank must be a rank of the job, from 0 to its size - 1, not {given}",
            root_rank=given,
        )
        with raises(ValueError, f"not {given}"):
            hvd.broadcast_object({}, given)
    with raises(TypeError, "root_rank must be", "Trace"):  # the root is a part of the compiled program
        jax.jit(lambda root: hvd.broadcast(jnp.ones(2), root))(0)
    for given in (0, np.int64(0), jnp.int32(0)):
        for way in WAYS.values():
            same(way(functools.partial(hvd.broadcast, root_rank=given))(jnp.ones(2)), jnp.ones(2))


def check_optimizers() -> None:
    for make in (hvd.distribute_gradients, functools.partial(hvd.DistributedOptimizer, optax.sgd(1.0))):
        for given in (0, 0.0, np.float32(0), float("nan"), float("inf")):
            with raises(ValueError, f"gradient_predivide_factor must be a finite number other than 0, not {given:g}"):
                make(gradient_predivide_factor=given)
        for given in ("2", None, np.ones(2)):
            with raises(TypeError, "gradient_predivide_factor must be one number, not "):
                make(gradient_predivide_factor=given)
    for given in ("2", 1.5, None):
        with raises(TypeError, f"backward_passes_per_step must be a whole number, not {given!r}"):
            hvd.DistributedOptimizer(optax.sgd(1.0), backward_passes_per_step=given)
    with raises(ValueError, "backward_passes_per_step must be at least 1, not 0"):
        hvd.DistributedOptimizer(optax.sgd(1.0), backward_passes_per_step=0)
    for given in ("adam", optax.sgd):
        with raises(TypeError, "optimizer must be one of optax", "optax.adam(1e-3)", repr(given)):
            hvd.DistributedOptimizer(given)


def check_what_is_no_operation_of_a_program() -> None:
    """JAX would run these calls once, during tracing, on the ranks that trace."""
    calls: dict[str, Callable[[], Any]] = {
        "barrier": hvd.barrier,
        "join": hvd.join,
        "broadcast_object": lambda: hvd.broadcast_object(1),
        "allgather_object": lambda: hvd.allgather_object(1),
    }
    rows = jnp.ones((2, 2))
    for name, call in calls.items():

        def calling(x: jax.Array, call: Callable[[], Any] = call) -> jax.Array:
            call()
            return x.sum()

        programs = (
            *(jax.jit(calling), jax.jit(jax.grad(calling)), jax.jit(jax.vmap(calling)), jax.grad(jax.jit(calling))),
            lambda x, f=calling: jax.lax.scan(lambda carry, row: (carry + f(row), None), 0.0, x),
            lambda x, f=calling: jax.lax.cond(x[0, 0] > 0, f, lambda x: x.sum(), x),
        )
        for program in programs:
            with raises(
                RuntimeError, f"{name}() was called in a function that JAX compiles", "Call it before or after"
            ):
                program(rows)
        # A function that is not compiled makes its calls each time it is called.
        same(jax.grad(calling)(rows), rows)
        same(jax.vmap(calling)(rows), jnp.full(2, 2.0))


def check_by_callbacks_a_set_that_goes_after_tracing() -> None:
    """The set's operation must fail then. It must not run in the set of all ranks."""
    if hvd.size() == 1:
        return
    ready, _native.ready = _native.ready, lambda _: False
    try:
        first = hvd.add_process_set([0])
        compiled = jax.jit(lambda t: hvd.allreduce(t, op=hvd.Sum, process_set=first))
        if hvd.rank() == 0:
            assert compiled(jnp.ones(2)).tolist() == [1.0, 1.0]
        hvd.remove_process_set(first)
        if hvd.rank() == 0:
            with raises(Exception, "is not registered"):
                compiled(jnp.ones(2)).block_until_ready()
    finally:
        _native.ready = ready


def check_the_gradient_of_an_alltoall_of_uneven_ranks() -> None:
    """Without splits, each rank sends equal shares of its rows. Others may have more rows. Works outside jit only."""
    size = hvd.size()
    rows = hvd.rank() + 1
    back = jax.grad(lambda x: (hvd.alltoall(x) * (hvd.rank() + 1)).sum())(jnp.ones((rows * size, 1)))
    same(back, jnp.repeat(jnp.arange(1.0, size + 1), rows)[:, None])


if __name__ == "__main__":
    run(globals())
