"""Compression: gradients are made smaller for the way and get their dtype back afterwards."""

from __future__ import annotations

from typing import Any

import torch
from distrun._compression import Compressor, NoneCompressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


def _narrow(tensor: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, Any]:
    if tensor.dtype.is_floating_point and tensor.dtype.itemsize > dtype.itemsize:
        return tensor.to(dtype), tensor.dtype
    return tensor, None


class FP16Compressor(Compressor):
    """Sends float32 and float64 as float16."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """float16, and the old dtype."""
        return _narrow(tensor, torch.float16)

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Back to the old dtype."""
        return tensor if ctx is None else tensor.to(ctx)


class BF16Compressor(Compressor):
    """Sends float32 and float64 as bfloat16: float32's range, fewer digits."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """bfloat16, and the old dtype."""
        return _narrow(tensor, torch.bfloat16)

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Back to the old dtype."""
        return tensor if ctx is None else tensor.to(ctx)


class Compression:
    """The choices for `compression`."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
