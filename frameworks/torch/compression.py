"""Compression: gradients are sent in a smaller dtype, and get their original dtype back afterwards."""

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
        """Returns the tensor in the narrow dtype, and its original dtype."""
        if tensor.dtype.is_floating_point and tensor.dtype.itemsize > cls.dtype.itemsize:
            return tensor.to(cls.dtype), tensor.dtype
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Converts the tensor back to its original dtype."""
        return tensor if ctx is None else tensor.to(ctx)


class FP16Compressor(_Narrow):
    """Sends float32 and float64 as float16."""


class BF16Compressor(_Narrow):
    """Sends float32 and float64 as bfloat16, which has float32's range and fewer digits."""

    dtype = torch.bfloat16


class Compression:
    """The choices for `compression`. Those with `ef_` have error feedback: they add a step's rounding error to the next
    step; see docs/reference/torch-training.md."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
    ef_fp16 = FP16Feedback
    ef_bf16 = BF16Feedback
    ef_int8 = Int8Feedback
