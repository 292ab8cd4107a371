"""What every front end's compressors have in common."""

from __future__ import annotations

from typing import Any


class Compressor:
    """A class with these two static methods can be passed as `compression`. Tensors are the front end's."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor to send, and what decompress needs to know."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The received tensor in its old dtype."""
        raise NotImplementedError


def check(compression: Any) -> None:
    """ValueError if it is none: a program on one rank would never notice, and one on several only in backward."""
    if not (hasattr(compression, "compress") and hasattr(compression, "decompress")):
        raise ValueError(
            f"compression is a class with compress and decompress, such as hvd.Compression.fp16, not {compression!r}."
        )


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Nothing changes."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Nothing changes."""
        return tensor


class AstypeCompressor(Compressor):
    """A base for arrays that have NumPy's `astype`; the context is the old dtype, or None where nothing changed."""

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Back to the old dtype."""
        return tensor if ctx is None else tensor.astype(ctx)
