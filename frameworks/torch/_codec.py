"""Torch values in the safe object format: tensors (by their bytes), dtypes, devices and sizes."""

from __future__ import annotations

import math
from typing import Any

import torch
from distrun import codec

from ._adapter import CODES

_NAMES = {str(dtype).removeprefix("torch."): dtype for dtype in (*CODES, torch.complex64, torch.complex128)}


def _encode(value: Any) -> tuple[object, Any] | None:
    if isinstance(value, torch.dtype):
        return ["dtype", str(value).removeprefix("torch.")], b""
    if isinstance(value, torch.device):
        return ["device", str(value)], b""
    if isinstance(value, torch.Size):
        return ["size", *value], b""
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout != torch.strided:
        return None
    name = str(value.dtype).removeprefix("torch.")
    if name not in _NAMES:
        return None
    plain = value.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1).view(torch.uint8)
    return ["tensor", name, value.requires_grad, *value.shape], plain.numpy()


def _decode(description: Any, payload: memoryview) -> object:
    try:
        kind, *rest = description
        if kind == "dtype":
            return _NAMES[rest[0]]
        if kind == "device":
            return torch.device(rest[0])
        if kind == "size":
            return torch.Size(rest)
        name, requires_grad, *shape = rest
        dtype = _NAMES[name]
        if kind != "tensor" or any(type(size) is not int or size < 0 for size in shape):
            raise ValueError("unknown kind or shape")
        if math.prod(shape) * dtype.itemsize != len(payload):
            raise ValueError(f"{len(payload)} bytes do not fill the shape {tuple(shape)}")
        if not payload.nbytes:
            return torch.empty(shape, dtype=dtype, requires_grad=bool(requires_grad))
        tensor = torch.frombuffer(bytearray(payload), dtype=torch.uint8).view(dtype).reshape(shape)
        return tensor.requires_grad_(bool(requires_grad))
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, RuntimeError) as error:
        raise codec.CodecError(f"an encoded torch value is malformed: {error}.") from None


def install() -> None:
    """Lets the core's object format carry torch values."""
    codec.register("torch", codec.Extension(_encode, _decode))
