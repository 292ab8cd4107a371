"""Compression: arrays are sent in a smaller dtype, and get their original dtype back afterwards."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from distrun._compression import AstypeCompressor, Compressor, NoneCompressor

from ._adapter import Array

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


def _narrow(tensor: Array, dtype: np.dtype[Any]) -> tuple[Array, Any]:
    if tensor.dtype.kind == "f" and tensor.dtype.itemsize > dtype.itemsize:
        return tensor.astype(dtype), tensor.dtype
    return tensor, None


class FP16Compressor(AstypeCompressor):
    """Sends float32 and float64 as float16."""

    @staticmethod
    def compress(tensor: Array) -> tuple[Array, Any]:
        """Returns the array as float16, and its original dtype."""
        return _narrow(tensor, np.dtype(np.float16))


class BF16Compressor(AstypeCompressor):
    """Sends float32 and float64 as bfloat16. NumPy needs the package ml_dtypes for it."""

    @staticmethod
    def compress(tensor: Array) -> tuple[Array, Any]:
        """Returns the array as bfloat16, and its original dtype. ImportError without ml_dtypes."""
        try:
            bfloat16 = importlib.import_module("ml_dtypes").bfloat16
        except ImportError:
            raise ImportError(
                "Compression.bf16 on NumPy arrays needs the package ml_dtypes: pip install ml_dtypes."
            ) from None
        return _narrow(tensor, np.dtype(bfloat16))


class Compression:
    """The choices for `compression`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
