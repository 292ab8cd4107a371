"""DistributedOptimizer for tf.compat.v1 optimizers. Keras optimizers are passed on to distrun.keras."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from distrun import _session
from distrun._abi import ReduceOp
from distrun.process_sets import ProcessSet, global_process_set

from .aggregation import LocalGradientAggregationHelper
from .compression import Compression, Compressor
from .reduction import Reduction
from .tape import groups_of


class _DistributedOptimizer(tf.compat.v1.train.Optimizer):
    """Computes gradients, reduces them over the ranks, and applies them with the wrapped optimizer."""

    def __init__(
        self, optimizer: Any, name: str | None, use_locking: bool, reduction: Reduction, passes: int, average: bool
    ) -> None:
        _refuse_if_distributed(optimizer)
        super().__init__(name=name or f"Distributed{type(optimizer).__name__}", use_locking=use_locking)
        self._optimizer = optimizer
        self._reduction = reduction
        self._agg_helper = LocalGradientAggregationHelper(passes, reduction.reduce, average) if passes > 1 else None
        self._warns = True
        self._used = False

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copies and pickles as TensorFlow's optimizers do. They cannot in a graph, once they belong to it."""
        self._reduction.copied()
        if self._used and not tf.executing_eagerly():
            raise TypeError(
                "a DistributedOptimizer cannot be copied or pickled in a graph, because its variables belong to the "
                "graph. Create another one: hvd.DistributedOptimizer(optimizer). To keep its state, use "
                "tf.compat.v1.train.Saver."
            )
        return super().__reduce_ex__(protocol)

    def register_local_var(self, var: Any) -> None:
        """Excludes the gradient of this variable from the reduction."""
        self._reduction.keep_local(var)

    def compute_gradients(self, *arguments: Any, **options: Any) -> list[tuple[Any, Any]]:
        """Computes gradients with the wrapped optimizer, and reduces them over the ranks."""
        self._warns, self._used = False, True
        pairs = self._optimizer.compute_gradients(*arguments, **options)
        gradients, variables = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        if self._agg_helper is not None:
            reduced = self._agg_helper.compute_gradients(gradients, variables)
        else:
            reduced = self._reduction.reduce(gradients, variables)
        return list(zip(reduced, variables, strict=True))

    def apply_gradients(self, grads_and_vars: Any, *arguments: Any, **options: Any) -> Any:
        """Applies gradients with the wrapped optimizer.

        With several passes per step, only the last pass applies them. Every pass increments `global_step`.
        """
        pairs = list(grads_and_vars)
        self._used = True
        self._warn_of_gradients_of_others()

        def apply() -> Any:
            return self._optimizer.apply_gradients(pairs, *arguments, **options)

        if self._agg_helper is None:
            return apply()
        global_step = arguments[0] if arguments else options.get("global_step")
        return self._agg_helper.apply_gradients(apply, [pair[0] for pair in pairs], global_step)

    def _warn_of_gradients_of_others(self) -> None:
        """Warns once of unreduced gradients. It is no error, because the program may have reduced them itself."""
        if not self._warns or not _session.is_open() or not self._reduction.active():
            return
        self._warns = False
        warnings.warn(
            "apply_gradients() was called on a DistributedOptimizer, but compute_gradients() never was, so nothing "
            "would be reduced. Take the gradients of this optimizer's compute_gradients(loss). If "
            "DistributedGradientTape or hvd.allreduce() reduces them, leave out DistributedOptimizer.",
            stacklevel=3,
        )

    def get_slot(self, *arguments: Any, **options: Any) -> Any:
        """Calls the wrapped optimizer."""
        return self._optimizer.get_slot(*arguments, **options)

    def get_slot_names(self, *arguments: Any, **options: Any) -> Any:
        """Calls the wrapped optimizer."""
        return self._optimizer.get_slot_names(*arguments, **options)

    def variables(self, *arguments: Any, **options: Any) -> Any:
        """Calls the wrapped optimizer."""
        return self._optimizer.variables(*arguments, **options)


def _refuse_if_distributed(optimizer: Any) -> None:
    """Raises ValueError for a distributed optimizer, also inside wrappers such as TensorFlow's for mixed precision."""
    while optimizer is not None:
        if isinstance(optimizer, _DistributedOptimizer):
            raise ValueError("the optimizer is already distributed. Its gradients would be reduced twice.")
        optimizer = getattr(optimizer, "_optimizer", None)


def _keras_optimizer(optimizer: Any) -> bool:
    return any(kind.__module__.split(".")[0] in ("keras", "tf_keras") for kind in type(optimizer).__mro__)


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = ReduceOp.AVERAGE,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Returns an optimizer that reduces gradients over the ranks before it applies them.

    sparse_as_dense: convert tf.IndexedSlices to dense tensors first. backward_passes_per_step: sum (or average, with
    average_aggregated_gradients) the gradients of this many local passes before the reduction; in graph mode only. Each
    pass counts as a step of global_step, as in Horovod. gradient_predivide_factor: divide by this part of the average
    before the sum, for dtypes with a small range. groups: gradients that are reduced all or none, as a number of equal
    groups or as lists of variables. scale_local_gradients: divide gradients that are not reduced (register_local_var)
    by the number of ranks. ValueError if `optimizer` is distributed already, or does not fit the other arguments.
    """
    del device_dense, device_sparse
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    shared: dict[str, Any] = {
        "compression": compression,
        "sparse_as_dense": sparse_as_dense,
        "op": op,
        "groups": groups_of(num_groups, groups),
        "process_set": process_set,
    }
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        if backward_passes_per_step > 1 and tf.executing_eagerly():
            raise ValueError(
                "backward_passes_per_step > 1 with a tf.compat.v1 optimizer works in graph mode only. Add up the "
                "gradients yourself, or use a Keras optimizer."
            )
        reduction = Reduction(predivide=gradient_predivide_factor, scale_local=scale_local_gradients, **shared)
        return _DistributedOptimizer(
            optimizer, name, use_locking, reduction, backward_passes_per_step, average_aggregated_gradients
        )
    if not _keras_optimizer(optimizer):
        raise ValueError(
            f"DistributedOptimizer wraps a tf.compat.v1.train.Optimizer or a Keras optimizer, not "
            f"{type(optimizer).__name__}."
        )
    return importlib.import_module("distrun.keras").DistributedOptimizer(
        optimizer,
        name=name,
        backward_passes_per_step=backward_passes_per_step,
        gradient_predivide_factor=gradient_predivide_factor,
        average_aggregated_gradients=average_aggregated_gradients,
        scale_local_gradients=scale_local_gradients,
        **shared,
    )
