"""Passes MXNet's arrays to the core without copies.

MXNet's engine computes in the background and does not know distrun's engine. So an array is waited for before the
runtime gets its memory. The program must not touch it until the operation is complete.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

import mxnet as mx
from distrun._abi import DType
from distrun._collectives import Collectives, Memory
from distrun._operations import Gathered
from distrun.numpy._plain import checked
from mxnet.base import _LIB, check_call
from mxnet.ndarray import NDArray

Array: TypeAlias = NDArray

_NAMES: dict[str, int] = {code.name.rstrip("_"): int(code) for code in DType}
# MXNet has NumPy's numbers, and no others.
_CODES = {name: code for name, code in _NAMES.items() if hasattr(np, name) and np.dtype(name).kind in tuple("biuf")}


def _code_of(tensor: Array) -> int:
    name = np.dtype(tensor.dtype).name
    if name not in _CODES:
        raise ValueError(f"arrays of dtype {name} are not supported. Convert the array to one of {', '.join(_CODES)}.")
    return _CODES[name]


def _address(tensor: Array) -> int:
    found = ctypes.c_void_p()
    check_call(_LIB.MXNDArrayGetData(tensor.handle, ctypes.byref(found)))
    return found.value or 0


def _new(like: Array, shape: Sequence[int]) -> Array:
    if 0 in shape and not mx.util.is_np_shape():
        raise ValueError("the result has no rows, and MXNet has no array without rows. Call mxnet.npx.set_np() first.")
    made = mx.nd.empty(tuple(shape), ctx=like.context, dtype=like.dtype)
    return made.as_np_ndarray() if isinstance(like, mx.np.ndarray) else made


def to_array(value: Any) -> Array:
    """Converts a value to an array of MXNet. A value that is not an array of MXNet becomes float32."""
    if isinstance(value, NDArray):
        return value
    given = np.asarray(checked(value))
    if given.dtype.kind not in "biuf":  # MXNet makes NaN of None
        raise TypeError(f"distrun.mxnet sends arrays, or numbers that MXNet can make an array of, not {value!r:.60}.")
    made = mx.nd.array(given)
    if given.dtype.kind in "iu" and not np.array_equal(made.asnumpy().astype(given.dtype), given):
        raise ValueError(
            f"the integers of {value!r:.60} do not fit into float32, to which MXNet converts them. Give a dtype: "
            "mx.nd.array(value, dtype='int64')."
        )
    return made


class MxnetAdapter:
    """Adapter[NDArray]; see distrun._collectives."""

    def given(self, value: Any) -> Array:
        return to_array(value)

    def describe(self, tensor: Array) -> Memory:
        if tensor.stype != "default":
            raise ValueError(f"arrays of storage type {tensor.stype} are not supported. Use tostype('default').")
        if tensor.context.device_type not in ("cpu", "cpu_pinned", "cpu_shared"):
            raise ValueError(f"arrays on {tensor.context} are not supported. Use as_in_context(mx.cpu()).")
        tensor.wait_to_read()
        return Memory(_address(tensor), _code_of(tensor), tensor.shape)

    def hold(self, tensor: Array) -> object:
        return tensor

    def pointer(self, tensor: Array) -> int:
        return _address(tensor)

    def layout(self, tensor: Array) -> object:
        return _address(tensor), tensor.shape

    def contiguous(self, tensor: Array) -> Array:
        return tensor  # all arrays are contiguous

    def writable(self, tensor: Array) -> None:
        if not isinstance(tensor, NDArray):
            raise ValueError(f"the in-place forms need an array of MXNet, not {type(tensor).__name__}.")
        # Wait for operations that still read the old contents.
        check_call(_LIB.MXNDArrayWaitToWrite(tensor.handle))

    def empty_like(self, tensor: Array) -> Array:
        return _new(tensor, tensor.shape)

    def copy(self, target: Array, source: Array) -> None:
        source.copyto(target)

    def gathered(self, like: Array, result: Gathered) -> Array:
        output = _new(like, result.shape)
        if result.bytes:
            ctypes.memmove(_address(output), result.data, result.bytes)
        return output

    def check_share(self, tensor: Array, members: int) -> None:
        if tensor.shape and tensor.shape[0] < members and not mx.util.is_np_shape():
            raise ValueError(
                f"{tensor.shape[0]} rows are not enough for {members} ranks. Call mxnet.npx.set_np() first, so that "
                "MXNet has arrays without rows."
            )

    def empty_rows(self, like: Array, rows: int) -> Array:
        return _new(like, (rows, *like.shape[1:]))

    def integers(self, values: Sequence[int]) -> Array:
        # int32, as in Horovod; int64 if a count needs it.
        return mx.nd.array(values, dtype="int32" if max(values, default=0) < 1 << 31 else "int64")


collective = Collectives[Array](MxnetAdapter())
