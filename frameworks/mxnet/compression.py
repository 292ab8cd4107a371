"""Compression: arrays are sent in a smaller dtype, and get their original dtype back afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np

from distrun._compression import AstypeCompressor, Compressor, NoneCompressor

from ._adapter import Array

__all__ = ["Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class FP16Compressor(AstypeCompressor):
    """Sends float32 and float64 as float16."""

    @staticmethod
    def compress(tensor: Array) -> tuple[Array, Any]:
        """Returns the array as float16, and its original dtype."""
        if tensor.dtype in (np.float32, np.float64):
            return tensor.astype("float16"), tensor.dtype
        return tensor, None


class Compression:
    """The choices for `compression`."""

    none = NoneCompressor
    fp16 = FP16Compressor
