"""The slower path, for a TensorFlow that the op library does not fit: Python functions over distrun.numpy's arrays.

A graph runs each of them as one node that holds a thread of TensorFlow's and takes Python's lock while it waits.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import tensorflow as tf
from distrun import _collectives, errors, process_sets
from distrun._abi import Kind

if TYPE_CHECKING:
    from ._call import Call

failures: collections.deque[errors.DistrunError] = collections.deque(maxlen=16)  # in graphs; the newest first


def run(what: Call, *inputs: Any) -> list[Any]:
    """All outputs, as `_call.run` gives them. Differentiable like the native ops."""
    if what.kind in (Kind.JOIN, Kind.BARRIER):
        return _without_tensors(what)
    tensors = list(inputs[0]) if what.kind != Kind.ALLTOALL else [inputs[0], inputs[1]]

    @tf.custom_gradient
    def differentiable(*given: Any) -> tuple[list[Any], Any]:
        outputs = _forward(what, list(given))
        return outputs, lambda *gradients: _gradient(what, list(given), outputs, list(gradients))

    return list(differentiable(*(tf.convert_to_tensor(tensor) for tensor in tensors)))


def _gradient(what: Call, inputs: list[Any], outputs: list[Any], gradients: list[Any]) -> list[Any]:
    from . import _gradients

    if what.kind == Kind.ALLGATHER:
        return _gradients.allgather(what, gradients[:-1], outputs[-1])
    if what.kind == Kind.ALLTOALL:
        rows = tf.shape(inputs[0])[0]
        return [_gradients.alltoall(what, gradients[0], outputs[1], rows), None]
    formula: Any = getattr(_gradients, what.kind.name.lower())
    return list(formula(what, gradients))


def _call(what: Call, count: int) -> _collectives.Call:
    word = what.kind.name.lower()
    if len(what.names) == count:
        names = [f"{word}.{name}" for name in what.names]
    else:
        base = what.names[0] if what.names else f"tensorflow.{_number(what)}"
        names = [f"{word}.{base}_{index + 1}of{count}" for index in range(count)]
    return _collectives.Call(
        what.kind, names, what.process_set, False, 0 if what.grouped else -1, what.reduce, what.root, what.prescale,
        what.postscale,
    )  # fmt: skip


def _number(what: Call) -> int:
    from distrun import _session

    return _session.current().number(f"tensorflow.{what.kind.name.lower()}", what.process_set)


def _set_of(what: Call) -> process_sets.ProcessSet:
    return process_sets._registered[what.process_set]


def _arrays(what: Call, arrays: list[Any]) -> list[Any]:
    from distrun.numpy._adapter import collective  # seldom needed, and import time is everybody's

    if what.kind in (Kind.ALLREDUCE, Kind.BROADCAST):
        return list(collective.same_size(arrays, _call(what, len(arrays)), in_place=False).wait())
    if what.kind == Kind.REDUCESCATTER:
        return list(collective.reducescatter(arrays, _call(what, len(arrays)), _set_of(what)).wait())
    if what.kind == Kind.ALLGATHER:
        outputs, sizes = collective.allgather_sizes(arrays, _call(what, len(arrays))).wait()
        return [*outputs, np.array(sizes, np.int32)]
    splits = tuple(int(rows) for rows in arrays[1])
    output, received = collective.alltoall_sizes(arrays[0], splits or None, _call(what, 1)).wait()
    return [output, np.array(received, np.int32)]


def _in_graph(what: Call, arrays: Sequence[Any]) -> list[Any]:
    try:
        return _arrays(what, [np.asarray(array) for array in arrays])
    except errors.DistrunError as error:  # TensorFlow makes a text of it
        failures.appendleft(error)
        raise


def _python_op(what: Call, function: Callable[..., Any], tensors: list[Any], types: list[Any]) -> list[Any]:
    from . import _rows

    outputs = list(tf.numpy_function(function, tensors, types))
    outputs[0].op.pfor_converter = functools.partial(_rows.convert, what)  # where vectorized_map looks first
    return outputs


def _forward(what: Call, tensors: list[Any]) -> list[Any]:
    extra = [tf.int32] if what.kind in (Kind.ALLGATHER, Kind.ALLTOALL) else []
    kept = tensors[:1] if what.kind == Kind.ALLTOALL else tensors
    types = [tensor.dtype for tensor in kept] + extra
    if tf.executing_eagerly():
        return [tf.convert_to_tensor(array) for array in _arrays(what, [np.asarray(one.numpy()) for one in tensors])]
    outputs = _python_op(what, lambda *arrays: _in_graph(what, arrays), tensors, types)
    for output, tensor in zip(outputs, kept, strict=False):
        same = what.kind in (Kind.ALLREDUCE, Kind.BROADCAST)
        if same:
            output.set_shape(tensor.shape)
        elif tensor.shape.rank:
            output.set_shape([None, *tensor.shape[1:]])
    return outputs


def _without_tensors(what: Call) -> list[Any]:
    def work() -> Any:
        if what.kind == Kind.JOIN:
            return np.int32(_collectives.join(_set_of(what)))
        _collectives.barrier(_set_of(what))
        return np.int32(0)

    if tf.executing_eagerly():
        return [tf.convert_to_tensor(work())]
    return _python_op(what, work, [], [tf.int32])
