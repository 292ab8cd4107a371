"""What the runtime reads and writes for a tensor: contiguous memory of a dtype that it knows."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from distrun import errors
from distrun._operations import Gathered

from .._adapter import CODES, collective


def values(tensor: torch.Tensor, linear: bool = True) -> torch.Tensor:
    """Memory to compute with: the tensor's own if it is contiguous, else a copy; of complex numbers both parts.

    ValueError for a dtype that has no reductions, and for complex numbers if the reduction is not linear.
    """
    if tensor.is_complex():
        if not linear:
            raise ValueError(f"{tensor.dtype} has no order and no product by parts: use SUM, AVG or PREMUL_SUM.")
        tensor = torch.view_as_real(tensor.detach().resolve_conj())
    return collective.adapter.contiguous(tensor)


def data(tensor: torch.Tensor) -> torch.Tensor:
    """Memory to move, as one row: the tensor's own if contiguous, else a copy; bytes, if its dtype is unknown."""
    flat = collective.adapter.contiguous(tensor.detach().resolve_conj()).reshape(-1)
    return flat if flat.dtype in CODES else flat.view(torch.uint8)


def put(tensor: torch.Tensor, work: torch.Tensor) -> None:
    """Brings what the runtime wrote into `work`, which values() or data() gave, to the tensor: if it is a copy."""
    if work.data_ptr() != tensor.data_ptr():
        with torch.no_grad():
            tensor.copy_(work.reshape(-1).view(tensor.dtype).reshape(tensor.shape))
        if tensor.is_cuda:  # whoever uses it may do so on another stream than this thread's
            torch.cuda.current_stream(tensor.device).synchronize()


def take(outputs: Sequence[torch.Tensor], like: torch.Tensor, result: Gathered, members: Sequence[int]) -> None:
    """Copies what each member sent in an allgather or alltoall of data() to the output for it.

    Mismatch, which names the members, where the sizes differ.
    """
    sent = [count * like.element_size() for count in result.first_dims]
    wrong = [index for index, output in enumerate(outputs) if output.nbytes != sent[index]]
    if wrong:
        first = wrong[0]
        raise errors.Mismatch(
            f"rank {members[first]} sent {sent[first]} bytes of {like.dtype} for an output of shape "
            f"{tuple(outputs[first].shape)}, which has {outputs[first].nbytes}: make the outputs as large as what the "
            "ranks send.",
            ranks=[members[index] for index in wrong],
        )
    if like.device.type == "cpu":
        _copy_from(result.data, outputs)
        return
    whole = collective.adapter.gathered(like, result)
    for output, part in zip(outputs, whole.split(list(result.first_dims)), strict=True):
        put(output, part)


def _copy_from(address: int, outputs: Sequence[torch.Tensor]) -> None:
    for output in outputs:
        work = data(output)
        if output.nbytes:
            ctypes.memmove(work.data_ptr(), address, output.nbytes)
            put(output, work)
        address += output.nbytes
