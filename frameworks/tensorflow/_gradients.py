"""Gradients of the operations, for the native ops and the Python functions.

They are the gradients of the sum of all ranks' losses. The operations of the backward pass get their names from those
of the forward pass, so each rank may run them in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from distrun import _session, process_sets
from distrun._abi import Kind, ReduceOp

from ._call import Call
from ._execution import run
from ._native import call_of


def _backward(what: Call, kind: Kind, **changes: Any) -> Call:
    names = tuple(f"{name}.grad" for name in what.names)
    return what._replace(kind=kind, names=names, **changes)


def _only_given(what: Call, gradients: Sequence[Any], use: Callable[[Call, list[Any]], list[Any]]) -> list[Any]:
    """Calls `use` with the gradients that are not None. Integers in a group have no gradient."""
    given = [index for index, gradient in enumerate(gradients) if gradient is not None]
    if not given:
        return [None] * len(gradients)
    if len(what.names) == len(gradients):
        what = what._replace(names=tuple(what.names[index] for index in given))
    made = dict(zip(given, use(what, [tf.convert_to_tensor(gradients[index]) for index in given]), strict=True))
    return [made.get(index) for index in range(len(gradients))]


def _needs_linear(what: Call) -> None:
    if what.reduce not in (ReduceOp.AVERAGE, ReduceOp.SUM):
        raise NotImplementedError(
            f"{what.kind.name.lower()} with op={what.reduce.name.title()} has no gradient; use Sum or Average."
        )


def _members(what: Call) -> list[int]:
    return process_sets.registered()[what.process_set]


def allreduce(what: Call, gradients: Sequence[Any]) -> list[Any]:
    """Reduces the gradients in the same way."""
    _needs_linear(what)
    back = _backward(what, Kind.ALLREDUCE)
    return _only_given(back, gradients, lambda call, given: run(call, given))


def allgather(what: Call, gradients: Sequence[Any], sizes: Any) -> list[Any]:
    """Sums the gradients and returns this rank's rows. sizes: the rows of each [tensor, member]."""
    place = _members(what).index(_session.world().rank)
    back = _backward(what, Kind.ALLREDUCE, reduce=ReduceOp.SUM)
    sums = _only_given(back, gradients, lambda call, given: run(call, given))
    starts = tf.cumsum(sizes, axis=1, exclusive=True)[:, place]
    return [
        None if one is None else one[starts[index] : starts[index] + sizes[index, place]]
        for index, one in enumerate(sums)
    ]


def broadcast(what: Call, gradients: Sequence[Any]) -> list[Any]:
    """Sums the gradients for the root. The other ranks get zeros."""
    back = _backward(what, Kind.ALLREDUCE, reduce=ReduceOp.SUM, root=0)
    sums = _only_given(back, gradients, lambda call, given: run(call, given))
    if _session.world().rank == what.root:
        return sums
    return [None if one is None else one * 0 for one in sums]


def alltoall(what: Call, gradient: Any, received: Any, rows: Any) -> Any:
    """Sends each gradient back to the rank that sent the row. Rows beyond the splits get zeros."""
    back = _backward(what, Kind.ALLTOALL)
    returned, _ = run(back, gradient, tf.cast(received, tf.int64))
    missing = tf.concat([[rows - tf.shape(returned)[0]], tf.shape(returned)[1:]], 0)
    return tf.concat([returned, tf.zeros(missing, returned.dtype)], 0)


def reducescatter(what: Call, gradients: Sequence[Any]) -> list[Any]:
    """Gathers the gradients of the shares, with the scale of the forward pass."""
    _needs_linear(what)
    factor = what.prescale * what.postscale
    if what.reduce == ReduceOp.AVERAGE:
        factor /= len(_members(what))
    back = _backward(what, Kind.ALLGATHER, reduce=ReduceOp.SUM, prescale=1.0, postscale=1.0)
    return _only_given(
        back, gradients, lambda call, given: run(call, [one * tf.cast(factor, one.dtype) for one in given])[:-1]
    )


def scaled(tensors: Sequence[Any], factor: float) -> list[Any]:
    """Returns the tensors unchanged, but multiplies their gradients by `factor`."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def same(tensor: Any) -> tuple[Any, Callable[[Any], Any]]:
        return tf.identity(tensor), lambda gradient: gradient * tf.cast(factor, gradient.dtype)

    return [tensor if tensor.dtype.is_integer or tensor.dtype.is_bool else same(tensor) for tensor in tensors]


def _of_allreduce(op: Any, *gradients: Any) -> list[Any]:
    return allreduce(call_of(Kind.ALLREDUCE, op), gradients)


def _of_allgather(op: Any, *gradients: Any) -> list[Any]:
    return allgather(call_of(Kind.ALLGATHER, op), gradients[:-1], op.outputs[-1])


def _of_broadcast(op: Any, *gradients: Any) -> list[Any]:
    return broadcast(call_of(Kind.BROADCAST, op), gradients)


def _of_alltoall(op: Any, gradient: Any, _: Any) -> list[Any]:
    return [alltoall(call_of(Kind.ALLTOALL, op), gradient, op.outputs[1], tf.shape(op.inputs[0])[0]), None]


def _of_reducescatter(op: Any, *gradients: Any) -> list[Any]:
    return reducescatter(call_of(Kind.REDUCESCATTER, op), gradients)


def register() -> None:
    """Registers the gradients of the native ops with TensorFlow."""
    for name, function in (
        ("Allreduce", _of_allreduce),
        ("Allgather", _of_allgather),
        ("Broadcast", _of_broadcast),
        ("Alltoall", _of_alltoall),
        ("Reducescatter", _of_reducescatter),
    ):
        for order in ("", "Ordered"):
            tf.RegisterGradient(f"Distrun{name}{order}")(function)
