"""Compression: gradients are made smaller for the way and get their dtype back afterwards."""

from __future__ import annotations

from typing import Any

import torch
from distrun._compression import Compressor, NoneCompressor

from ._feedback import BF16Feedback, FP16Feedback, Int8Feedback

__all__ = [
    "BF16Compressor",
    "BF16Feedback",
    "Compression",
    "Compressor",
    "FP16Compressor",
    "FP16Feedback",
    "Int8Feedback",
    "NoneCompressor",
]


class _Narrow(Compressor):
    dtype = torch.float16

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:  # type: ignore[override]
        """The narrow dtype, and the old one."""
        if tensor.dtype.is_floating_point and tensor.dtype.itemsize > cls.dtype.itemsize:
            return tensor.to(cls.dtype), tensor.dtype
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Back to the old dtype."""
        return tensor if ctx is None else tensor.to(ctx)


class FP16Compressor(_Narrow):
    """Sends float32 and float64 as float16."""


class BF16Compressor(_Narrow):
    """Sends float32 and float64 as bfloat16: float32's range, fewer digits."""

    dtype = torch.bfloat16


class Compression:
    """The choices for `compression`. Those with `ef_` keep what a step lost for the next one; see docs/pytorch.md."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
    ef_fp16 = FP16Feedback
    ef_bf16 = BF16Feedback
    ef_int8 = Int8Feedback
