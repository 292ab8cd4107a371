"""Unsigned integers of more than 8 bits, which the runtime has no dtypes for: what only moves travels as signed ones.

Keras keeps the state of its random numbers in them (uint32), so they are among a model's variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

_bitcast = tf.bitcast
_SIGNED = {tf.uint16: tf.int16, tf.uint32: tf.int32, tf.uint64: tf.int64}


def signed(tensor: Any) -> Any:
    """The tensor, or its bits as integers that can travel."""
    other = _SIGNED.get(tensor.dtype)
    return tensor if other is None else _bitcast(tensor, other)


def as_given(outputs: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """The outputs of signed() inputs, with the dtypes of the inputs."""
    return [
        _bitcast(output, given.dtype) if given.dtype in _SIGNED else output
        for output, given in zip(outputs, inputs, strict=True)
    ]
