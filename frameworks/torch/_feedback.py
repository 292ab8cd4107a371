"""Compression with error feedback: the rounding error of a gradient in one step is added to it in the next.

With the gradient g, the kept error e (0 at first) and the compression C, a rank sends C(p) of p = g + e, and keeps
e = p - C(p). So everything sent so far differs from the sum of all gradients by the rounding of one step only. The
method is that of Seide, Fu, Droppo, Li and Yu, "1-bit stochastic gradient descent" (Interspeech 2014). Karimireddy,
Rebjock, Stich and Jaggi, "Error feedback fixes SignSGD" (ICML 2019) show that it converges as fast as SGD.

Each gradient of a DistributedOptimizer has one object of these classes.
"""

from __future__ import annotations

from typing import Any

import torch
from distrun import _compression
from distrun._abi import ReduceOp
from distrun._compression import Compressor

_LARGEST_INT8 = 127


class Feedback(Compressor):
    """A base that keeps the error of one gradient. Single operations have no such state and cannot use it."""

    agrees = False  # True if the ranks first agree on a scale

    def __init__(self, members: int, average: bool) -> None:
        self.members = members
        self.average = average
        self._error: torch.Tensor | None = None

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Raises ValueError, because an operation calls this on the class."""
        raise ValueError(
            "compression with error feedback works with DistributedOptimizer only. Use Compression.fp16 or "
            "Compression.bf16 for an operation."
        )

    def largest(self, gradient: torch.Tensor) -> torch.Tensor:
        """Returns one number, whose maximum over the ranks `encode` gets. Only called if `agrees`."""
        raise NotImplementedError

    def encode(self, gradient: torch.Tensor, largest: float) -> tuple[torch.Tensor, Any]:
        """Returns the tensor to send and the context for `decode`, and keeps the error."""
        raise NotImplementedError

    def decode(self, reduced: torch.Tensor, context: Any) -> torch.Tensor:
        """Returns the reduced gradient, from the reduction of the sent tensors."""
        raise NotImplementedError

    def forget(self) -> None:
        """Resets the error to zero."""
        self._error = None

    def _corrected(self, gradient: torch.Tensor) -> torch.Tensor:
        wide = gradient.to(torch.promote_types(gradient.dtype, torch.float32))
        return wide if self._error is None else wide + self._error

    def _keep(self, error: torch.Tensor) -> None:
        # GradScaler must see an overflow in the gradient. In the error it would spoil every later step.
        self._error = error.nan_to_num_(0.0, 0.0, 0.0)


class _NarrowFeedback(Feedback):
    dtype = torch.float16

    def encode(self, gradient: torch.Tensor, largest: float) -> tuple[torch.Tensor, Any]:
        if not gradient.is_floating_point() or gradient.dtype.itemsize <= self.dtype.itemsize:
            return gradient, None
        corrected = self._corrected(gradient)
        sent = corrected.to(self.dtype)
        self._keep(corrected - sent)
        return sent, gradient.dtype

    def decode(self, reduced: torch.Tensor, context: Any) -> torch.Tensor:
        return reduced if context is None else reduced.to(context)


class FP16Feedback(_NarrowFeedback):
    """Sends float32 and float64 as float16."""


class BF16Feedback(_NarrowFeedback):
    """Sends float32 and float64 as bfloat16."""

    dtype = torch.bfloat16


class Int8Feedback(Feedback):
    """Sends integers of one byte, in units of a scale that all ranks share.

    The ranks agree on m, the largest |p| on any rank. Each sends round(p * L / m), where L = 127 // ranks, so that the
    sum fits into a byte. The sum is exact, and the same on all ranks. The reduced gradient is sum * m / L, divided by
    the number of ranks for an average.
    """

    agrees = True

    def __init__(self, members: int, average: bool) -> None:
        super().__init__(members, average)
        if members > _LARGEST_INT8:
            raise ValueError(
                f"Compression.ef_int8 works with at most {_LARGEST_INT8} ranks, not with {members}. Use ef_bf16."
            )
        self._levels = _LARGEST_INT8 // members
        self._wanted: torch.Tensor | None = None

    def largest(self, gradient: torch.Tensor) -> torch.Tensor:
        # Infinity if the gradient is not finite.
        self._wanted = self._corrected(gradient)
        if not gradient.numel():
            return self._wanted.new_zeros(1)
        return self._wanted.abs().max().nan_to_num(nan=torch.inf, posinf=torch.inf).reshape(1)

    def encode(self, gradient: torch.Tensor, largest: float) -> tuple[torch.Tensor, Any]:
        corrected, self._wanted = self._wanted, None
        assert corrected is not None
        unit = largest / self._levels
        if unit == 0.0 or unit == float("inf"):
            # All values are 0; or there is an overflow, and 0 * inf gives every rank the same NaN. The error stays
            # unchanged.
            return torch.zeros_like(gradient, dtype=torch.int8), (gradient.dtype, unit)
        whole = (corrected / unit).round_().clamp_(-self._levels, self._levels)
        self._keep(corrected - whole * unit)
        return whole.to(torch.int8), (gradient.dtype, unit)

    def decode(self, reduced: torch.Tensor, context: Any) -> torch.Tensor:
        dtype, unit = context
        wide = reduced.to(torch.promote_types(dtype, torch.float32))
        return (wide * (unit / self.members if self.average else unit)).to(dtype)


def feedback_kind(kind: type[Compressor], op: ReduceOp) -> type[Feedback] | None:
    """Returns the compression if it is one with error feedback. ValueError for what is no compression, or does not fit
    the reduction."""
    if not (isinstance(kind, type) and issubclass(kind, Feedback)):
        _compression.check(kind)
        return None
    if op not in (ReduceOp.SUM, ReduceOp.AVERAGE):
        raise ValueError(f"compression with error feedback needs op=Sum or op=Average, not {op.name.title()}.")
    return kind
