"""Reduces gradients over the ranks on Keras's three backends. All gradients of a step are one operation."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from distrun._abi import Kind, ReduceOp
from distrun._collectives import batch_call
from distrun._parameters import layer_path
from distrun.errors import DistrunError
from distrun.process_sets import ProcessSet, global_process_set, has_peers

from ._keras import LEGACY, MULTI, SCALING, keras

SCALED = (
    "loss scaling (mixed_float16, LossScaleOptimizer): an overflow in one of their gradients would skip the step on "
    'this rank only. Use the policy "mixed_bfloat16", which needs no scaling'
)


@dataclasses.dataclass
class Reduction:
    """How gradients are reduced."""

    compression: str = "none"  # a name in Compression
    op: ReduceOp = ReduceOp.AVERAGE
    prescale: float = 1.0
    postscale: float = 1.0
    sparse_as_dense: bool = False
    process_set: ProcessSet = global_process_set
    scale_local: bool = True
    # Variables whose gradients are not reduced, by id(). Holding them keeps their ids valid.
    local: dict[int, Any] = dataclasses.field(default_factory=dict)

    def keep_local(self, variable: Any) -> None:
        """Excludes the gradient of `variable` from the reduction."""
        self.local[id(variable)] = checked_variable("register_local_var", variable)

    def copied(self) -> Reduction:
        """Returns a copy for another optimizer. TypeError if it has local variables, which the other one may not
        have."""
        if self.local:
            raise TypeError(
                "an optimizer with variables of one rank only (local_layers, register_local_var) cannot be copied or "
                "pickled by itself, because the copy does not know which variables of its model these are. Copy the "
                "model that it trains, or create the optimizer again: hvd.PartialDistributedOptimizer(...)."
            )
        return self.without_local()

    def without_local(self) -> Reduction:
        """Returns a copy without the local variables."""
        return dataclasses.replace(self, local={})

    def active(self) -> bool:
        """True if the process set has other ranks to reduce with."""
        return has_peers(self.process_set)

    def travels(self) -> bool:
        """Like `active`, but also True for a set that is not registered yet, for instance before init."""
        return self.process_set.process_set_id is None or self.active()

    @property
    def _scale(self) -> float:
        """The factor for every gradient, reduced or not."""
        return self.prescale * self.postscale

    def reduce(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Returns one gradient for each given one; None stays None.

        Some gradients are new values of their variables: scales of float8, and the maxima that such scales are computed
        from. Their result is the maximum over the ranks, as Keras does it over several passes.
        """
        active, results = self.active(), list(gradients)
        shared_by = (self.process_set.size() or 1) if active and self.scale_local else 1
        travels: list[tuple[int, str]] = []
        values: list[tuple[int, str]] = []
        place = 0
        for index, (gradient, variable) in enumerate(zip(gradients, variables, strict=True)):
            is_value = getattr(variable, "overwrite_with_gradient", False)
            if active and id(variable) not in self.local:
                # The index makes the name unique; the path is for people. Local variables do not count, because their
                # number may differ among the ranks.
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
    """Returns the variables in `given` as a list. TypeError for other values. A single variable would yield its
    rows."""
    if not isinstance(given, Iterable) or hasattr(given, "assign"):
        raise TypeError(
            f"{argument} must be a list of Keras variables, such as model.weights, not {given!r:.60} of type "
            f"{type(given).__name__}."
        )
    return [checked_variable(argument, one) for one in given]


def checked_variable(argument: str, given: Any) -> Any:
    """Returns `given` if it is a variable of Keras or TensorFlow; TypeError otherwise."""
    if not hasattr(given, "assign"):
        raise TypeError(
            f"{argument} must have Keras variables, such as those of model.weights, not {given!r:.60} of type "
            f"{type(given).__name__}."
        )
    return given


def refuse_local_where_all_are_judged(optimizer: Any) -> None:
    """Raises ValueError if one decision depends on the gradients of all variables: it would differ among the ranks."""
    if isinstance(optimizer, SCALING):
        raise local_with(SCALED)
    several = optimizer._inner_optimizers if isinstance(optimizer, MULTI) else [optimizer]
    if any(getattr(one, "global_clipnorm", None) is not None for one in several):
        raise local_with(
            "global_clipnorm: its norm would differ among the ranks, and so would the shared variables. Use "
            "clipnorm, which clips each variable by itself"
        )


def local_with(what: str) -> ValueError:
    return ValueError(f"variables of one rank only (local_layers, register_local_var) cannot be used with {what}.")


def as_array(value: Any) -> Any:
    """Returns the value of a backend's tensor, or of a number, as a NumPy array."""
    return np.asarray(value if LEGACY else keras.ops.convert_to_numpy(value))


def path_of(variable: Any, shortened: Callable[[str], str] = layer_path) -> str:
    """Returns a variable's path, for people. Legacy Keras has TensorFlow's variables, which have only
    names."""
    return shortened(str(getattr(variable, "path", variable.name)))


def _scaled(gradient: Any, factor: float) -> Any:
    if gradient is None or factor == 1.0:
        return gradient
    if _has_rows(gradient):
        return type(gradient)(gradient.values * factor, gradient.indices, gradient.dense_shape)
    return gradient * factor


def _dense(gradient: Any) -> Any:
    """Converts tf.IndexedSlices to a tensor."""
    return importlib.import_module("tensorflow").convert_to_tensor(gradient) if _has_rows(gradient) else gradient


def _has_rows(gradient: Any) -> bool:
    return hasattr(gradient, "dense_shape")  # tf.IndexedSlices, without importing TensorFlow


def front_end() -> Any:
    """Returns the distrun package for Keras's backend."""
    return importlib.import_module(f"distrun.{keras.backend.backend()}")


def error_of(failure: BaseException) -> DistrunError | None:
    """Returns the distrun exception behind an exception of fit(); None if there is none.

    A compiled step of TensorFlow or JAX raises the framework's own exception, with distrun's text. The exception
    returned here also has the attributes: tensor, ranks, host.
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
    del names  # a compiled program gets its names when it is traced
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
