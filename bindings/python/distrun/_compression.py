"""The base classes of the front ends' compressors."""

from __future__ import annotations

from typing import Any


class Compressor:
    """The interface of `compression` arguments: a class with these two static methods, for the front end's tensors."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Returns the tensor to send, and a context for decompress."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Returns the received tensor in its original dtype."""
        raise NotImplementedError


def check(compression: Any) -> None:
    """Raises ValueError if `compression` is no compressor.

    Without this check, a program on one rank would never fail, and one on several ranks only in backward.
    """
    if not (hasattr(compression, "compress") and hasattr(compression, "decompress")):
        raise ValueError(
            "compression must be a class with compress and decompress, such as hvd.Compression.fp16, not "
            f"{compression!r}."
        )


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Returns the tensor unchanged."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Returns the tensor unchanged."""
        return tensor


class AstypeCompressor(Compressor):
    """A base for arrays with NumPy's `astype`. The context is the original dtype, or None if it did not change."""

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Converts the tensor back to its original dtype."""
        return tensor if ctx is None else tensor.astype(ctx)
