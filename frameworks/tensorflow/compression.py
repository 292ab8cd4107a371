"""Compression: tensors are sent in a smaller dtype, and get their original dtype back afterwards."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from distrun._compression import Compressor, NoneCompressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class _Narrow(Compressor):
    dtype = tf.float16

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:  # type: ignore[override]
        """Returns the tensor in the narrow dtype, and its original dtype."""
        if tensor.dtype.is_floating and tensor.dtype.size > cls.dtype.size:
            return tf.cast(tensor, cls.dtype), tensor.dtype
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Converts the tensor back to its original dtype."""
        return tensor if ctx is None else tf.cast(tensor, ctx)


class FP16Compressor(_Narrow):
    """Sends float32 and float64 as float16."""


class BF16Compressor(_Narrow):
    """Sends float32 and float64 as bfloat16."""

    dtype = tf.bfloat16


class Compression:
    """The choices for `compression`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
