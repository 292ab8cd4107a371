"""Torch values for distrun.codec: tensors (by their bytes), dtypes, devices and sizes."""

from __future__ import annotations

import math
from typing import Any

import torch
from distrun import codec

from ._adapter import CODES, is_dense

_DTYPES = {str(one).removeprefix("torch."): one for one in vars(torch).values() if isinstance(one, torch.dtype)}
# The dtypes of tensors that can be encoded.
_NAMES = {str(dtype).removeprefix("torch."): dtype for dtype in CODES}


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
    plain = value.detach().resolve_conj().resolve_neg().cpu()
    description = ["tensor", name, value.requires_grad, *plain.shape]
    if not plain.is_contiguous() and is_dense(plain.shape, plain.stride()):  # channels_last, for instance
        description[:1] = ["strided", list(plain.stride())]
        plain = plain.as_strided((plain.numel(),), (1,))
    return description, plain.contiguous().reshape(-1).view(torch.uint8).numpy()


def _decode(description: Any, payload: memoryview) -> object:
    try:
        kind, *rest = description
        if kind == "dtype":
            return _DTYPES[rest[0]]
        if kind == "device":
            return torch.device(rest[0])
        if kind == "size":
            return torch.Size(rest)
        strides: Any = rest.pop(0) if kind == "strided" else ()
        name, requires_grad, *shape = rest
        dtype = _NAMES[name]
        if kind not in ("tensor", "strided") or any(type(one) is not int or one < 0 for one in (*shape, *strides)):
            raise ValueError("unknown kind or shape")
        if kind == "strided" and not is_dense(shape, strides):
            raise ValueError(f"the strides {strides} do not fill the memory of the shape {shape}")
        if math.prod(shape) * dtype.itemsize != len(payload):
            raise ValueError(f"{len(payload)} bytes do not fill the shape {tuple(shape)}")
        if not payload.nbytes:
            return torch.empty(shape, dtype=dtype, requires_grad=bool(requires_grad))
        flat = torch.frombuffer(bytearray(payload), dtype=torch.uint8).view(dtype)
        tensor = flat.as_strided(shape, strides) if kind == "strided" else flat.reshape(shape)
        return tensor.requires_grad_(bool(requires_grad))
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, RuntimeError) as error:
        raise codec.CodecError(f"an encoded torch value is malformed: {error}.") from None


def install() -> None:
    """Registers torch values with distrun.codec."""
    codec.register("torch", codec.Extension(_encode, _decode))
