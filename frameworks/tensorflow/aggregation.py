"""Local gradient aggregation in v1 graphs: a rank sums the gradients of several passes before it sends them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


class LocalGradientAggregationHelper:
    """Sums gradients in variables of this rank, and reduces the sums every `backward_passes_per_step` passes.

    allreduce: maps gradients and variables to reduced gradients. counter: the passes since the last reduction.
    """

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce: Callable[[list[Any], list[Any]], list[Any]],
        average_aggregated_gradients: bool = False,
    ) -> None:
        if backward_passes_per_step <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        self.passes = backward_passes_per_step
        self._allreduce = allreduce
        self._average = average_aggregated_gradients
        self.counter: Any = None
        self._sums: list[Any] = []

    def _make_variables(self, gradients: Sequence[Any]) -> None:
        if self.counter is not None and self.counter.graph is tf.compat.v1.get_default_graph():
            raise ValueError(
                "with backward_passes_per_step > 1, an optimizer computes the gradients of one loss in a graph. "
                "Create a DistributedOptimizer for each loss."
            )
        self.counter = _local("counter", (), tf.int32)
        self._sums = [_local("sum", gradient.shape, gradient.dtype) for gradient in gradients]

    def compute_gradients(self, gradients: list[Any], variables: list[Any]) -> list[Any]:
        """Returns the reduced sums in every `backward_passes_per_step`-th pass. Other passes' results must not be
        applied."""
        given = [index for index, gradient in enumerate(gradients) if gradient is not None]
        dense = [tf.convert_to_tensor(gradients[index]) for index in given]
        self._make_variables(dense)
        adds = [total.assign_add(one) for total, one in zip(self._sums, dense, strict=True)]
        with tf.control_dependencies([*adds, self.counter.assign_add(1)]):
            reduced = tf.cond(self._is_due(), lambda: self._reduced([variables[i] for i in given]), self._waiting)
        results: list[Any] = [None] * len(gradients)
        for index, gradient in zip(given, reduced, strict=True):
            results[index] = gradient
        return results

    def _is_due(self) -> Any:
        return tf.greater_equal(self.counter.read_value(), self.passes)

    def _reduced(self, variables: list[Any]) -> list[Any]:
        factor = 1.0 / self.passes if self._average else 1.0
        sums = [total.read_value() * tf.cast(factor, total.dtype) for total in self._sums]
        reduced = self._allreduce(sums, variables)
        with tf.control_dependencies(sums):
            zeros = [total.assign(tf.zeros_like(total)) for total in self._sums]
        with tf.control_dependencies(zeros):
            return [tf.identity(one) for one in reduced]

    def _waiting(self) -> list[Any]:
        return [total.read_value() for total in self._sums]

    def apply_gradients(self, apply: Callable[[], Any], gradients: Sequence[Any], global_step: Any = None) -> Any:
        """Runs `apply`, which increments `global_step`, after a reduction. Other passes only increment
        `global_step`."""

        def due() -> Any:
            with tf.control_dependencies([apply()]):
                return self.counter.assign(0)

        def not_due() -> Any:
            counted = [] if global_step is None else [tf.compat.v1.assign_add(global_step, 1)]
            with tf.control_dependencies(counted):
                return self.counter.read_value()

        with tf.control_dependencies([gradient for gradient in gradients if gradient is not None]):
            return tf.group(tf.cond(self._is_due(), due, not_due))


def _local(name: str, shape: Any, dtype: Any) -> Any:
    """Makes a variable of zeros that no other helper shares and no checkpoint saves, even in a scope with reuse."""
    return tf.compat.v1.Variable(
        lambda: tf.zeros(shape, dtype),
        trainable=False,
        collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
        name=f"distrun_aggregation/{name}",
        use_resource=True,
    )
