"""Compression: arrays are sent in a smaller dtype, and get their original dtype back afterwards."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from distrun._compression import AstypeCompressor, Compressor, NoneCompressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class _Narrow(AstypeCompressor):
    dtype: Any

    @classmethod
    def compress(cls, tensor: jax.Array) -> tuple[jax.Array, Any]:  # type: ignore[override]
        """Returns the array in the narrow dtype, and its original dtype."""
        if jnp.issubdtype(tensor.dtype, jnp.floating) and tensor.dtype.itemsize > jnp.dtype(cls.dtype).itemsize:
            return tensor.astype(cls.dtype), tensor.dtype
        return tensor, None


class FP16Compressor(_Narrow):
    """Sends float32 and float64 as float16."""

    dtype = jnp.float16


class BF16Compressor(_Narrow):
    """Sends float32 and float64 as bfloat16."""

    dtype = jnp.bfloat16


class Compression:
    """The choices for `compression`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
