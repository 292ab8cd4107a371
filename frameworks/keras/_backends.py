"""The gradients of all ranks on Keras's three backends: one operation for all of them."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from distrun._abi import Kind, ReduceOp
from distrun._collectives import batch_call
from distrun._parameters import layer_path
from distrun.errors import DistrunError
from distrun.process_sets import ProcessSet, global_process_set, has_peers

from ._keras import keras


@dataclasses.dataclass
class Reduction:
    """How gradients are reduced."""

    compression: str = "none"  # the name of one of the front ends' Compression
    op: ReduceOp = ReduceOp.AVERAGE
    prescale: float = 1.0
    postscale: float = 1.0
    sparse_as_dense: bool = False
    process_set: ProcessSet = global_process_set
    scale_local: bool = True
    # Variables that are this rank's own business, by id(), which is theirs while they are held.
    local: dict[int, Any] = dataclasses.field(default_factory=dict)

    def keep_local(self, variable: Any) -> None:
        """The gradient of `variable` is this rank's own business."""
        self.local[id(variable)] = checked_variable("register_local_var", variable)

    def active(self) -> bool:
        """True where there is somebody to reduce with."""
        return has_peers(self.process_set)

    def travels(self) -> bool:
        """Like `active`, but true of a set that is not registered yet, as before init: it may come to that."""
        return self.process_set.process_set_id is None or self.active()

    @property
    def _scale(self) -> float:
        """What every gradient is multiplied by, reduced or not."""
        return self.prescale * self.postscale

    def reduce(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """One gradient for each that is given; None stays None.

        What is no gradient but the new value of its variable, a scale of float8 or the largest values that such scales
        are made of, is the largest of the ranks, as Keras has it of several passes.
        """
        active, results = self.active(), list(gradients)
        shared_by = (self.process_set.size() or 1) if active and self.scale_local else 1
        travels: list[tuple[int, str]] = []
        values: list[tuple[int, str]] = []
        place = 0
        for index, (gradient, variable) in enumerate(zip(gradients, variables, strict=True)):
            is_value = getattr(variable, "overwrite_with_gradient", False)
            if active and id(variable) not in self.local:
                # Paths are for people: the place tells variables apart. Without the local ones, of which each rank may
                # have another number.
                if gradient is not None:
                    (values if is_value else travels).append((index, f"gradient.{place}.{path_of(variable)}"))
                place += 1
            elif not is_value:
                if self.sparse_as_dense and id(variable) not in self.local:
                    gradient = _dense(gradient)
                results[index] = _scaled(gradient, self._scale / shared_by)
        for how, part in ((self, travels), (self._largest, values)):
            if part:
                given = [gradients[index] for index, _ in part]
                reduced = _FUNCTIONS[keras.backend.backend()](how, given, [name for _, name in part])
                for (index, _), gradient in zip(part, reduced, strict=True):
                    results[index] = gradient
        return results

    @property
    def _largest(self) -> Reduction:
        return dataclasses.replace(self, op=ReduceOp.MAX, prescale=1.0, postscale=1.0, compression="none")


def checked_variables(argument: str, given: Any) -> list[Any]:
    """`given` as a list, if it is one of variables; a variable by itself would give its rows."""
    if not isinstance(given, Iterable) or hasattr(given, "assign"):
        raise TypeError(
            f"{argument} is a list of Keras variables, such as model.weights, not {given!r:.60} of type "
            f"{type(given).__name__}."
        )
    return [checked_variable(argument, one) for one in given]


def checked_variable(argument: str, given: Any) -> Any:
    """`given`, if it is a variable of Keras or TensorFlow."""
    if not hasattr(given, "assign"):
        raise TypeError(
            f"{argument} takes Keras variables, such as those of model.weights, not {given!r:.60} of type "
            f"{type(given).__name__}."
        )
    return given


def path_of(variable: Any, shortened: Callable[[str], str] = layer_path) -> str:
    """What people know it by. Legacy Keras has TensorFlow's variables, which have names only."""
    return shortened(str(getattr(variable, "path", variable.name)))


def _scaled(gradient: Any, factor: float) -> Any:
    if gradient is None or factor == 1.0:
        return gradient
    if _has_rows(gradient):
        return type(gradient)(gradient.values * factor, gradient.indices, gradient.dense_shape)
    return gradient * factor


def _dense(gradient: Any) -> Any:
    """tf.IndexedSlices as a tensor."""
    return importlib.import_module("tensorflow").convert_to_tensor(gradient) if _has_rows(gradient) else gradient


def _has_rows(gradient: Any) -> bool:
    return hasattr(gradient, "dense_shape")  # tf.IndexedSlices, without importing TensorFlow


def front_end() -> Any:
    """The distrun package of Keras's backend."""
    return importlib.import_module(f"distrun.{keras.backend.backend()}")


def error_of(failure: BaseException) -> DistrunError | None:
    """The distrun exception behind one that fit() raised, with its attributes; None if none is.

    A compiled step of TensorFlow or JAX raises that framework's own exception, which holds our text.
    """
    if isinstance(failure, DistrunError):
        return failure
    look = {"tensorflow": "distrun_error", "jax": "error_of"}.get(keras.backend.backend())
    found: DistrunError | None = getattr(front_end(), look)(failure) if look else None
    return found


def _on_tensorflow(reduction: Reduction, gradients: list[Any], names: list[str]) -> list[Any]:
    import tensorflow as tf

    from distrun.tensorflow.ops import allreduce_dense, allreduce_slices

    if reduction.sparse_as_dense:
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
    compression = getattr(front_end().Compression, reduction.compression)
    results: list[Any] = list(gradients)
    sparse = [index for index, one in enumerate(gradients) if isinstance(one, tf.IndexedSlices)]
    dense = [index for index, one in enumerate(gradients) if not isinstance(one, tf.IndexedSlices)]
    if dense:
        reduced = allreduce_dense(
            [gradients[index] for index in dense],
            reduction.op,
            [names[index] for index in dense],
            reduction.process_set,
            compression,
            grouped=False,
            prescale=reduction.prescale,
            postscale=reduction.postscale,
        )
        for index, one in zip(dense, reduced, strict=True):
            results[index] = one
    if sparse:
        rows = [gradients[index] for index in sparse]
        gathered = allreduce_slices(
            rows, reduction.op, [names[index] for index in sparse], reduction.process_set, compression
        )
        for index, one in zip(sparse, gathered, strict=True):
            results[index] = _scaled(one, reduction._scale)
    return results


def _on_torch(reduction: Reduction, gradients: list[Any], names: list[str]) -> list[Any]:
    from distrun.torch._adapter import collective

    compression = getattr(front_end().Compression, reduction.compression)
    small = [compression.compress(gradient) for gradient in gradients]
    what = batch_call(Kind.ALLREDUCE, names, reduction.process_set)._replace(
        reduce=reduction.op, prescale=reduction.prescale, postscale=reduction.postscale
    )
    outputs = collective.same_size([tensor for tensor, _ in small], what, in_place=False).wait()
    return [compression.decompress(output, ctx) for output, (_, ctx) in zip(outputs, small, strict=True)]


def _on_jax(reduction: Reduction, gradients: list[Any], names: list[str]) -> list[Any]:
    del names  # those of a compiled program are made when it is traced
    results: list[Any] = front_end().allreduce(
        gradients,
        compression=getattr(front_end().Compression, reduction.compression),
        op=reduction.op,
        prescale_factor=reduction.prescale,
        postscale_factor=reduction.postscale,
        process_set=reduction.process_set,
    )
    return results


_FUNCTIONS: dict[str, Callable[[Reduction, list[Any], list[str]], list[Any]]] = {
    "tensorflow": _on_tensorflow,
    "torch": _on_torch,
    "jax": _on_jax,
}
