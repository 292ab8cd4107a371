"""SyncBatchNormalization: batch normalization with the statistics of all ranks' batches."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from distrun import basics
from distrun._parameters import without_numbers

from .ops import allreduce


@tf.keras.utils.register_keras_serializable("distrun")  # type: ignore[misc]
class SyncBatchNormalization(tf.keras.layers.BatchNormalization):  # type: ignore[misc]
    """A BatchNormalization whose training mean and variance are those of all ranks' batches together.

    The options are those of Keras's layer. ValueError for fused=True.
    """

    def __init__(self, fused: bool | None = False, **options: Any) -> None:
        if fused in (True, None):
            raise ValueError("SyncBatchNormalization does not support fused=True.")
        if hasattr(tf.keras.layers.BatchNormalization, "_fused_batch_norm"):
            # For images Keras 2 would choose this kernel, which computes the moments itself.
            options["fused"] = False
        super().__init__(**options)

    def _moments(self, inputs: Any, *arguments: Any, **options: Any) -> tuple[Any, Any]:
        """Averages Keras's moments of this rank's batch over the ranks, as means and mean squares."""
        mean, variance = super()._moments(inputs, *arguments, **options)
        if basics.size() == 1:
            return mean, variance
        stacked = tf.stack([mean, variance + tf.square(mean)])
        mean, mean_square = tf.unstack(allreduce(stacked, name=f"sync_batch_norm.{without_numbers(self.name)}"))
        return mean, mean_square - tf.square(mean)
