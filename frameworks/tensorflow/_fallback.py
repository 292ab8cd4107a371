"""The operations as Python functions over distrun.numpy, for a TensorFlow that cannot load the op library.

They are slower. In a graph each is one node, which occupies a thread of TensorFlow and takes the GIL while it waits.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import tensorflow as tf
from distrun import _collectives, _session, errors, process_sets
from distrun._abi import Kind
from distrun.numpy._adapter import collective

from . import _gradients, _rows
from ._call import Call
from ._errors import as_tensorflows
from ._execution import Execution


class PythonFunctions(Execution):
    """Runs operations as Python functions. They have gradients, like the native ops."""

    def __init__(self) -> None:
        self._failures: collections.deque[errors.DistrunError] = collections.deque(maxlen=16)  # in graphs; newest first

    def eagerly(self, what: Call, inputs: tuple[Any, ...]) -> list[Any]:
        """Runs the operation on the tensors' arrays."""
        try:
            if what.kind in _WITHOUT_TENSORS:
                return [tf.convert_to_tensor(_without_tensors(what))]
            return _differentiable(what, inputs, lambda given: _arrays(what, _numpy(given)))
        except errors.DistrunError as error:
            as_tensorflows(error)
            raise

    def in_graph(self, what: Call, inputs: tuple[Any, ...], graph: Any) -> list[Any]:
        """Adds the operation as one node."""
        if what.kind in _WITHOUT_TENSORS:
            return _python_op(what, lambda: _without_tensors(what), [], [tf.int32])
        return _differentiable(what, inputs, lambda given: self._node(what, given))

    def error_of(self, failure: BaseException) -> errors.DistrunError | None:
        """Finds the exception by its text, which TensorFlow's exception quotes."""
        return next((one for one in self._failures if str(one) in str(failure)), None)

    def _node(self, what: Call, tensors: list[Any]) -> list[Any]:
        extra = [tf.int32] if what.kind in (Kind.ALLGATHER, Kind.ALLTOALL) else []
        kept = tensors[:1] if what.kind == Kind.ALLTOALL else tensors
        types = [tensor.dtype for tensor in kept] + extra
        outputs = _python_op(what, lambda *arrays: self._work(what, arrays), tensors, types)
        for output, tensor in zip(outputs, kept, strict=False):
            if what.kind in (Kind.ALLREDUCE, Kind.BROADCAST):
                output.set_shape(tensor.shape)
            elif tensor.shape.rank:
                output.set_shape([None, *tensor.shape[1:]])
        return outputs

    def _work(self, what: Call, arrays: tuple[Any, ...]) -> list[Any]:
        try:
            return _arrays(what, [np.asarray(array) for array in arrays])
        except errors.DistrunError as error:  # TensorFlow keeps only its text
            self._failures.appendleft(error)
            raise


_WITHOUT_TENSORS = (Kind.JOIN, Kind.BARRIER)


def _differentiable(what: Call, inputs: tuple[Any, ...], forward: Callable[[list[Any]], list[Any]]) -> list[Any]:
    tensors = list(inputs[0]) if what.kind != Kind.ALLTOALL else [inputs[0], inputs[1]]

    @tf.custom_gradient
    def differentiable(*given: Any) -> tuple[list[Any], Any]:
        outputs = [tf.convert_to_tensor(output) for output in forward(list(given))]
        return outputs, lambda *gradients: _gradient(what, list(given), outputs, list(gradients))

    return list(differentiable(*(tf.convert_to_tensor(tensor) for tensor in tensors)))


def _gradient(what: Call, inputs: list[Any], outputs: list[Any], gradients: list[Any]) -> list[Any]:
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
    return _session.current().number(f"tensorflow.{what.kind.name.lower()}", what.process_set)


def _set_of(what: Call) -> process_sets.ProcessSet:
    return process_sets._registered[what.process_set]


def _numpy(tensors: list[Any]) -> list[Any]:
    return [np.asarray(tensor.numpy()) for tensor in tensors]


def _arrays(what: Call, arrays: list[Any]) -> list[Any]:
    if what.kind == Kind.ALLGATHER:
        outputs, sizes = collective.allgather_sizes(arrays, _call(what, len(arrays))).wait()
        return [*outputs, np.array(sizes, np.int32)]
    if what.kind == Kind.ALLTOALL:
        splits = tuple(int(rows) for rows in arrays[1])
        output, received = collective.alltoall_sizes(arrays[0], splits or None, _call(what, 1)).wait()
        return [output, np.array(received, np.int32)]
    return list(collective.start(_call(what, len(arrays)), arrays, _set_of(what)).wait())


def _python_op(what: Call, function: Callable[..., Any], tensors: list[Any], types: list[Any]) -> list[Any]:
    outputs = list(tf.numpy_function(function, tensors, types))
    outputs[0].op.pfor_converter = functools.partial(_rows.convert, what)  # vectorized_map looks here first
    return outputs


def _without_tensors(what: Call) -> Any:
    if what.kind == Kind.JOIN:
        return np.int32(_collectives.join(_set_of(what)))
    _collectives.barrier(_set_of(what))
    return np.int32(0)
