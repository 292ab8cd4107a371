"""Passes NumPy arrays to the core."""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from distrun._abi import DType
from distrun._arguments import elements_overlap
from distrun._collectives import Collectives, Memory
from distrun._operations import Gathered
from numpy.typing import NDArray

from . import _plain

Array = NDArray[Any]

# bfloat16, float8 and complex32 are types of ml_dtypes. They are recognized by name, so this package is optional.
_CODES: dict[str, int] = {code.name.rstrip("_"): int(code) for code in DType}


@functools.cache
def code_of(dtype: np.dtype[Any]) -> int:
    """Returns the distrun_dtype of a dtype; ValueError for one that distrun cannot send."""
    code = _CODES.get(dtype.name)
    if code is None:
        raise ValueError(f"arrays of dtype {dtype} are not supported. Convert the array to one of {', '.join(_CODES)}.")
    if not dtype.isnative:
        raise ValueError(
            f"an array of dtype {dtype.str} does not have this machine's byte order. Convert it: "
            "array.astype(array.dtype.newbyteorder('='))."
        )
    return code


def to_array(value: Any) -> Array:
    """Converts an array-like value to an array in native byte order. ValueError if it has more than numbers."""
    array = np.asanyarray(_plain.checked(value))
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _new(like: Array, shape: Sequence[int]) -> Array:
    made: Array = _plain.in_class_of(like, np.empty(tuple(shape), like.dtype))
    return made


class NumpyAdapter:
    """Adapter[ndarray]; see distrun._collectives."""

    def given(self, value: Any) -> Array:
        return to_array(value)

    def describe(self, tensor: Array) -> Memory:
        return Memory(tensor.__array_interface__["data"][0], code_of(tensor.dtype), tensor.shape)

    def hold(self, tensor: Array) -> object:
        # While a weak reference exists, ndarray.resize raises instead of moving the memory.
        return tensor, weakref.ref(tensor)

    def pointer(self, tensor: Array) -> int:
        address: int = tensor.__array_interface__["data"][0]
        return address

    def layout(self, tensor: Array) -> object:
        return self.pointer(tensor), tensor.shape, tensor.strides

    def contiguous(self, tensor: Array) -> Array:
        # ascontiguousarray would make a 0-d array one-dimensional.
        return tensor if tensor.flags.c_contiguous else tensor.copy(order="C")

    def writable(self, tensor: Array) -> None:
        if not isinstance(tensor, np.ndarray):
            raise ValueError(f"the in-place forms need a NumPy array, not {type(tensor).__name__}.")
        _plain.checked(tensor)
        if not tensor.flags.writeable:
            raise ValueError("the array is read-only. Use the form that returns a new array.")
        if not tensor.flags.c_contiguous and elements_overlap(tensor.shape, tensor.strides, tensor.itemsize):
            raise ValueError(
                "some of the array's elements share memory (as_strided), so it cannot be overwritten. Pass a copy, or "
                "use the form that returns a new array."
            )

    def empty_like(self, tensor: Array) -> Array:
        return _new(tensor, tensor.shape)

    def copy(self, target: Array, source: Array) -> None:
        np.copyto(target, source)

    def gathered(self, like: Array, result: Gathered) -> Array:
        output = _new(like, result.shape)
        if result.bytes:
            ctypes.memmove(output.ctypes.data, result.data, result.bytes)
        return output

    def check_share(self, tensor: Array, members: int) -> None:
        pass  # an array may have no rows

    def empty_rows(self, like: Array, rows: int) -> Array:
        return _new(like, (rows, *like.shape[1:]))

    def integers(self, values: Sequence[int]) -> Array:
        # int32, as in Horovod; int64 if a count needs it.
        return np.array(values, np.int32 if max(values, default=0) < 1 << 31 else np.int64)


collective = Collectives[Array](NumpyAdapter())
