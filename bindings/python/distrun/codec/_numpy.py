"""NumPy values for distrun.codec."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from distrun import codec

# Byte order, kind and size of a plain dtype, then possibly a time unit. Objects, records and sub-arrays do not match.
_DTYPE = re.compile(r"[<>|=][biufcmMSU][1-9]\d{0,9}(\[\w{1,10}\])?")


def _encode(value: Any) -> tuple[object, Any] | None:
    if isinstance(value, np.dtype):
        return (["dtype", value.str], b"") if _plain(value) else None
    if not isinstance(value, np.ndarray | np.generic) or not _plain(value.dtype):
        return None
    if type(value) is not np.ndarray and isinstance(value, np.ndarray):
        return None  # a masked array or a matrix would be decoded as another type
    data = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    kind = "array" if isinstance(value, np.ndarray) else "scalar"
    return [kind, value.dtype.str, *value.shape], data


def _plain(dtype: np.dtype[Any]) -> bool:
    return _DTYPE.fullmatch(dtype.str) is not None and np.dtype(dtype.str) == dtype


def _decode(description: Any, payload: memoryview) -> object:
    try:
        kind, text, *shape = description
        if not isinstance(text, str) or not _DTYPE.fullmatch(text):
            raise ValueError(f"{text!r:.40} is not a plain dtype")
        dtype = np.dtype(text)
        if kind == "dtype":
            return dtype
        if kind not in ("array", "scalar") or any(type(size) is not int or size < 0 for size in shape):
            raise ValueError("unknown kind or shape")
        if math.prod(shape) * dtype.itemsize != len(payload):
            raise ValueError(f"{len(payload)} bytes do not fill the shape {tuple(shape)}")
        # A copy, so that the result owns its memory and is writable.
        array = np.frombuffer(bytearray(payload), np.uint8).view(dtype).reshape(shape)
        return array if kind == "array" else array[()]
    except (TypeError, ValueError, OverflowError) as error:
        raise codec.CodecError(f"an encoded NumPy value is malformed: {error}.") from None


codec.register("numpy", codec.Extension(_encode, _decode))
