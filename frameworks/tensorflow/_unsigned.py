"""Unsigned integers of more than 8 bits. The runtime has no such dtypes, so they are sent as signed ones.

That works for operations that only move data. Keras keeps the state of its random numbers in uint32, so a model's
variables contain such tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

_bitcast = tf.bitcast
_SIGNED = {tf.uint16: tf.int16, tf.uint32: tf.int32, tf.uint64: tf.int64}


def signed(tensor: Any) -> Any:
    """Returns the tensor, or its bits as signed integers if its dtype cannot be sent."""
    other = _SIGNED.get(tensor.dtype)
    return tensor if other is None else _bitcast(tensor, other)


def as_given(outputs: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """Converts the outputs of signed() inputs back to the dtypes of the inputs."""
    return [
        _bitcast(output, given.dtype) if given.dtype in _SIGNED else output
        for output, given in zip(outputs, inputs, strict=True)
    ]
