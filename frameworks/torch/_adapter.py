"""Passes torch tensors to the core. CPU memory is used without copies; for CUDA, the current stream is passed too."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from distrun._abi import DType
from distrun._arguments import elements_overlap
from distrun._collectives import Collectives, Memory
from distrun._operations import Gathered

_NAMES = {code.name.rstrip("_"): code for code in DType}
# A version of torch has some of the dtypes only.
CODES: dict[torch.dtype, int] = {getattr(torch, name): code for name, code in _NAMES.items() if hasattr(torch, name)}

_DEVICES = ("cpu", "cuda")


def _refuse(tensor: Any) -> ValueError:
    if not isinstance(tensor, torch.Tensor):
        return ValueError(f"expected a torch.Tensor, not {type(tensor).__name__}.")
    if tensor.layout != torch.strided:
        return ValueError(
            f"a tensor of layout {tensor.layout} is not supported here. Use sparse_allreduce_async or to_dense()."
        )
    if tensor.dtype not in CODES:
        cure = "tensor.int_repr()" if tensor.is_quantized else "tensor.view(torch.uint8)"
        return ValueError(f"Tensor type {tensor.dtype} is not supported. To send its bytes, pass {cure}.")
    if tensor.device.type not in _DEVICES:
        return ValueError(f"a tensor on {tensor.device} is not supported; move it to cpu or cuda.")
    return ValueError(
        f"a {type(tensor).__name__} of shape {tuple(tensor.shape)} has no memory that can be sent. For a DTensor "
        "(FSDP2, tensor parallelism) pass to_local() or full_tensor(), or train with distrun.torch.c10d."
    )


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """True if elements with these strides fill their memory without overlap: a permutation of a contiguous layout."""
    step = 1
    for stride, size in sorted((stride, size) for stride, size in zip(strides, shape, strict=True) if size != 1):
        if stride != step:
            return False
        step *= size
    return True


class TorchAdapter:
    """Adapter[torch.Tensor]; see distrun._collectives."""

    def given(self, value: torch.Tensor) -> torch.Tensor:
        return value

    def describe(self, tensor: torch.Tensor) -> Memory:
        code = CODES.get(tensor.dtype)
        if code is None or tensor.layout != torch.strided:
            raise _refuse(tensor)
        device = tensor.device
        if device.type not in _DEVICES:
            raise _refuse(tensor)
        pointer = tensor.data_ptr()
        if not pointer and tensor.numel():
            raise _refuse(tensor)
        if device.type == "cpu":
            return Memory(pointer, code, tuple(tensor.shape))
        stream = torch.cuda.current_stream(device).cuda_stream
        return Memory(pointer, code, tuple(tensor.shape), 1, device.index or 0, stream)

    def hold(self, tensor: torch.Tensor) -> object:
        # Hold the storage too, because set_() gives the tensor another one.
        return tensor, tensor.untyped_storage()

    def pointer(self, tensor: torch.Tensor) -> int:
        return tensor.data_ptr()

    def layout(self, tensor: torch.Tensor) -> object:
        return tensor.data_ptr(), tuple(tensor.shape), tensor.stride()

    def contiguous(self, tensor: torch.Tensor) -> torch.Tensor:
        if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided:
            raise _refuse(tensor)
        if tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj():
            return tensor
        return tensor.detach().resolve_neg().resolve_conj().contiguous()

    def writable(self, tensor: torch.Tensor) -> None:
        if not isinstance(tensor, torch.Tensor):
            raise _refuse(tensor)
        if tensor.layout != torch.strided or tensor.is_contiguous():
            return
        if elements_overlap(tensor.shape, tensor.stride()):
            raise ValueError(
                "some of its elements share memory (expand, as_strided), so it cannot be overwritten. Pass a copy "
                "(clone), or use the form that returns a new tensor."
            )

    def empty_like(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(tensor, requires_grad=False, memory_format=torch.contiguous_format)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        # torch writes to a tensor of inference_mode() only inside of it.
        with torch.inference_mode() if target.is_inference() else torch.no_grad():
            target.copy_(source)

    def gathered(self, like: torch.Tensor, result: Gathered) -> torch.Tensor:
        output = torch.empty(result.shape, dtype=like.dtype, device=like.device)
        if result.bytes:
            if like.device.type == "cpu":
                ctypes.memmove(output.data_ptr(), result.data, result.bytes)
            else:
                source = torch.as_tensor(_CudaBytes(result), device=like.device)
                output.reshape(-1).view(torch.uint8).copy_(source)
                # The source is the handle's memory, which is freed after this function.
                torch.cuda.current_stream(like.device).synchronize()
        return output

    def check_share(self, tensor: torch.Tensor, members: int) -> None:
        pass  # a tensor may have no rows

    def empty_rows(self, like: torch.Tensor, rows: int) -> torch.Tensor:
        return torch.empty((rows, *like.shape[1:]), dtype=like.dtype, device=like.device)

    def integers(self, values: Sequence[int]) -> torch.Tensor:
        # int32, as in Horovod; int64 if a count needs it.
        dtype = torch.int32 if max(values, default=0) < 1 << 31 else torch.int64
        return torch.tensor(values, dtype=dtype, device="cpu")


def place_of(splits: object) -> torch.device:
    """Returns the device for alltoall's received splits: that of `splits`, or the CPU if they are no tensor."""
    return splits.device if isinstance(splits, torch.Tensor) else torch.device("cpu")


collective = Collectives[torch.Tensor](TorchAdapter())


class _CudaBytes:
    """Device memory in a form that torch.as_tensor accepts without a copy."""

    def __init__(self, result: Gathered) -> None:
        self.__cuda_array_interface__ = {
            "shape": (result.bytes,),
            "typestr": "|u1",
            "data": (result.data, False),
            "version": 2,
        }
