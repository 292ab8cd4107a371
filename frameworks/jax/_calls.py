"""The operations as JAX functions. They get their names at the call. Their gradient is that of all ranks' summed
losses.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from distrun import _arguments, _session
from distrun._abi import Kind, ReduceOp
from distrun._collectives import share
from distrun.process_sets import ProcessSet, registered_id

from . import _names, _order
from ._execute import Spec, execute, is_traced, run_now


def make_spec(kind: Kind, name: str | None, process_set: ProcessSet, arrays: Sequence[Any], **arguments: Any) -> Spec:
    """Returns the arguments that all arrays of this call share."""
    registered_id(process_set)
    _arguments.name(name)
    operation = kind.name.lower()
    traced = ""
    if is_traced(arrays):
        _names.refuse_several_devices()
        given = None if name is None else _names.in_set(f"{operation}.{name}", process_set)
        traced = _names.traced(operation, process_set) if given is None else _names.distinct(given)
    return Spec(kind, traced, name, process_set, process_set.size() or 1, process_set.rank() or 0, **arguments)


def run(spec: Spec, arrays: Sequence[Any]) -> list[jax.Array]:
    """Runs a differentiable operation and returns its results in order.

    An alltoall with splits also returns the rows received from each member.
    """
    if not arrays:
        return []
    if not is_traced(arrays):  # a gradient cannot be requested for these
        return list(execute(spec, None, arrays))
    differentiable = any(jnp.issubdtype(array.dtype, jnp.inexact) for array in arrays)
    if _names.functions() and not any(array.size for array in arrays):
        # Such an operation has side effects (see _execute), which custom_vjp does not allow. It has no elements, so
        # also no gradient.
        arrays, differentiable = [jax.lax.stop_gradient(array) for array in arrays], False
    turn = _order.turn()
    results = _differentiable(spec, turn, *arrays) if differentiable else execute(spec, turn, arrays)
    _order.done(results)
    return list(results)


def scaled(arrays: Sequence[Any], factor: float) -> list[Any]:
    """Returns the arrays unchanged, but multiplies their gradients by `factor`."""
    if factor == 1.0 or not is_traced(arrays):
        return list(arrays)
    return [_same(factor, one) if jnp.issubdtype(one.dtype, jnp.inexact) else one for one in arrays]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _same(factor: float, array: jax.Array) -> jax.Array:
    return array


_same.defvjp(lambda _, array: (array, None), lambda factor, _, slope: (slope * jnp.asarray(factor, slope.dtype),))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _differentiable(spec: Spec, turn: jax.Array | None, *arrays: jax.Array) -> tuple[jax.Array, ...]:
    return execute(spec, turn, arrays)


# The sizes that the gradient of one array needs: its rows, their start in an allgather's result, and the rows that each
# member sent in an alltoall. Each is the shape of an empty array, because shapes are known even while JAX traces.
_Place = list[jax.Array]


def _place(*sizes: int) -> _Place:
    return [jnp.empty((size, 0), jnp.int8) for size in sizes]


def _forward(spec: Spec, turn: jax.Array | None, *arrays: jax.Array) -> tuple[tuple[jax.Array, ...], list[_Place]]:
    if is_traced(arrays):
        places = [_place(_rows(array), spec.position * _rows(array)) for array in arrays]
        return _differentiable(spec, turn, *arrays), places
    outputs, sizes = run_now(spec, arrays)
    places = [
        _place(_rows(array), sum(dims[: spec.position]), *dims) for array, dims in zip(arrays, sizes, strict=True)
    ]
    return tuple(outputs), places


def _backward(spec: Spec, places: list[_Place], gradients: tuple[Any, ...]) -> tuple[Any, ...]:
    # The gradient of an integer array has the dtype float0 and is left out.
    wanted = [index for index in range(len(places)) if jnp.issubdtype(gradients[index].dtype, jnp.inexact)]
    back: list[Any] = [None] * len(places)
    sizes = [tuple(one.shape[0] for one in places[index]) for index in wanted]
    results = _GRADIENTS[spec.kind](spec, [gradients[index] for index in wanted], sizes)
    for index, result in zip(wanted, results, strict=False):
        back[index] = result
    return (None, *back)


_differentiable.defvjp(_forward, _backward)


def _again(spec: Spec, gradients: list[Any], kind: Kind = Kind.ALLREDUCE, **changes: Any) -> list[jax.Array]:
    """Runs an operation of the backward pass. Its name comes from the operation of the forward pass."""
    traced = f"{spec.traced_name}.grad" if spec.traced_name else ""
    if is_traced(gradients):  # if a vjp is called several times, its operation runs several times
        operation = f"{kind.name.lower()}.grad"
        traced = _names.distinct(traced) if traced else _names.traced(operation, spec.process_set)
    name = None if spec.name is None else f"{spec.name}.grad"
    return run(spec._replace(kind=kind, traced_name=traced, name=name, **changes), gradients)


def _refuse_reduction(spec: Spec) -> None:
    if spec.reduce not in (ReduceOp.AVERAGE, ReduceOp.SUM):
        raise NotImplementedError(
            f"{spec.kind.name.lower()} with op={spec.reduce.name.title()} has no gradient; use Sum or Average."
        )


_Sizes = list[tuple[int, ...]]  # one for each array, from _place


def _allreduce_gradient(spec: Spec, gradients: list[Any], _: _Sizes) -> list[jax.Array]:
    _refuse_reduction(spec)
    return _again(spec, gradients)


def _allgather_gradient(spec: Spec, gradients: list[Any], sizes: _Sizes) -> list[jax.Array]:
    reduced = _again(spec, gradients, reduce=ReduceOp.SUM)
    return [one[start : start + rows] for one, (rows, start, *_) in zip(reduced, sizes, strict=True)]


def _broadcast_gradient(spec: Spec, gradients: list[Any], _: _Sizes) -> list[jax.Array]:
    reduced = _again(spec, gradients, reduce=ReduceOp.SUM, root=0)
    # Multiply by zero instead of returning zeros: XLA would drop the operation on these ranks, while the root waits.
    return reduced if _session.world().rank == spec.root else [one * jnp.zeros((), one.dtype) for one in reduced]


def _alltoall_gradient(spec: Spec, gradients: list[Any], sizes: _Sizes) -> list[jax.Array]:
    rows, _, *received = sizes[0]
    # Without splits all members have received equally many rows. In a compiled program the numbers are not known.
    even = spec.splits is None and len(set(received)) <= 1
    back = _again(spec, gradients, Kind.ALLTOALL, splits=None if even else tuple(received))[0]
    to_nobody = rows - back.shape[0]
    return [back if to_nobody == 0 else jnp.pad(back, [(0, to_nobody)] + [(0, 0)] * (back.ndim - 1))]


def _reducescatter_gradient(spec: Spec, gradients: list[Any], sizes: _Sizes) -> list[jax.Array]:
    _refuse_reduction(spec)
    factor = spec.prescale * spec.postscale / (spec.members if spec.reduce == ReduceOp.AVERAGE else 1)
    shares = [[share(size[0], spec.members, member) for member in range(spec.members)] for size in sizes]
    # Shares may differ by one row. In a compiled program all members must send equally many rows, so pad to the
    # longest.
    padded = [
        jnp.pad(one * jnp.asarray(factor, one.dtype), [(0, rows[0] - one.shape[0])] + [(0, 0)] * (one.ndim - 1))
        for one, rows in zip(gradients, shares, strict=True)
    ]
    gathered = _again(spec, padded, Kind.ALLGATHER, reduce=ReduceOp.SUM, prescale=1.0, postscale=1.0)
    return [
        jnp.concatenate([one[member * rows[0] : member * rows[0] + own] for member, own in enumerate(rows)])
        for one, rows in zip(gathered, shares, strict=True)
    ]


_GRADIENTS = {
    Kind.ALLREDUCE: _allreduce_gradient,
    Kind.ALLGATHER: _allgather_gradient,
    Kind.BROADCAST: _broadcast_gradient,
    Kind.ALLTOALL: _alltoall_gradient,
    Kind.REDUCESCATTER: _reducescatter_gradient,
}


def _rows(array: jax.Array) -> int:
    rows: int = array.shape[0] if array.ndim else 0
    return rows
