"""NumPy values for distrun.codec, also those with the dtypes of ml_dtypes (bfloat16, float8)."""

from __future__ import annotations

import importlib
import math
import re
from typing import Any

import numpy as np

from distrun import codec
from distrun._abi import DType

# Byte order, kind and size of a plain dtype, then possibly a time unit. Objects, records and sub-arrays do not match.
_DTYPE = re.compile(r"[<>|=][biufcmMSU][1-9]\d{0,9}(\[\w{1,10}\])?")
# The dtypes that operations move. Those that NumPy itself does not have are sent by name.
_MOVED = {code.name.rstrip("_") for code in DType}


def _encode(value: Any) -> tuple[object, Any] | None:
    if isinstance(value, np.dtype):
        text = _text_of(value)
        return None if text is None else (["dtype", text], b"")
    text = _text_of(value.dtype) if isinstance(value, np.ndarray | np.generic) else None
    if text is None:
        return None
    if type(value) is not np.ndarray and isinstance(value, np.ndarray):
        return None  # a masked array or a matrix would be decoded as another type
    data = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    kind = "array" if isinstance(value, np.ndarray) else "scalar"
    return [kind, text, *value.shape], data


def _text_of(dtype: np.dtype[Any]) -> str | None:
    """Returns the text for a dtype; None for one that cannot be encoded."""
    if dtype.name in _MOVED and dtype.type.__module__ != "numpy":
        return dtype.name if np.dtype(dtype.type) == dtype else None
    return dtype.str if _DTYPE.fullmatch(dtype.str) and np.dtype(dtype.str) == dtype else None


def _dtype_of(text: Any) -> np.dtype[Any]:
    if isinstance(text, str) and _DTYPE.fullmatch(text):
        return np.dtype(text)
    if text not in _MOVED:
        raise ValueError(f"{text!r:.40} is not a plain dtype")
    try:
        found: np.dtype[Any] = np.dtype(getattr(importlib.import_module("ml_dtypes"), text))
        return found
    except (ImportError, AttributeError):
        raise codec.CodecError(
            f"the object has an array of dtype {text}. Install a version of ml_dtypes that has it on this rank too: "
            "pip install --upgrade ml_dtypes."
        ) from None


def _decode(description: Any, payload: memoryview) -> object:
    try:
        kind, text, *shape = description
        dtype = _dtype_of(text)
        if kind == "dtype":
            return dtype
        if kind not in ("array", "scalar") or any(type(size) is not int or size < 0 for size in shape):
            raise ValueError("unknown kind or shape")
        if math.prod(shape) * dtype.itemsize != len(payload):
            raise ValueError(f"{len(payload)} bytes do not fill the shape {tuple(shape)}")
        # A copy, so that the result owns its memory and is writable.
        array = np.frombuffer(bytearray(payload), np.uint8).view(dtype).reshape(shape)
        return array if kind == "array" else array[()]
    except codec.CodecError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise codec.CodecError(f"an encoded NumPy value is malformed: {error}.") from None


for _package in ("numpy", "ml_dtypes"):  # scalars of ml_dtypes are of that package
    codec.register(_package, codec.Extension(_encode, _decode))
