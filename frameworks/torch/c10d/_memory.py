"""The memory that the runtime reads and writes for a tensor: contiguous, with a dtype that the runtime has."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from distrun import errors
from distrun._operations import Gathered

from .._adapter import CODES, collective


def values(tensor: torch.Tensor, linear: bool = True) -> torch.Tensor:
    """Returns memory for a reduction: the tensor's own if it is contiguous, else a copy.

    A complex tensor gives its real and imaginary parts. ValueError for complex numbers if the reduction is not linear.
    """
    if tensor.is_complex():
        if not linear:
            raise ValueError(f"{tensor.dtype} has no minimum, maximum or product. Use SUM, AVG or PREMUL_SUM.")
        tensor = torch.view_as_real(tensor.detach().resolve_conj())
    return collective.adapter.contiguous(tensor)


def data(tensor: torch.Tensor) -> torch.Tensor:
    """Returns memory to move, one-dimensional: the tensor's own or a contiguous copy; bytes if distrun lacks the
    dtype."""
    flat = collective.adapter.contiguous(tensor.detach().resolve_conj()).reshape(-1)
    return flat if flat.dtype in CODES else flat.view(torch.uint8)


def put(tensor: torch.Tensor, work: torch.Tensor) -> None:
    """Copies a result in `work`, which values() or data() returned, to the tensor, if `work` is a copy."""
    if work.data_ptr() != tensor.data_ptr():
        with torch.no_grad():
            tensor.copy_(work.reshape(-1).view(tensor.dtype).reshape(tensor.shape))
        if tensor.is_cuda:  # the next user may use another stream than this thread's
            torch.cuda.current_stream(tensor.device).synchronize()


def take(outputs: Sequence[torch.Tensor], like: torch.Tensor, result: Gathered, members: Sequence[int]) -> None:
    """Copies the parts that the members sent in an allgather or alltoall of data() to the outputs for them.

    Mismatch, which names the members, if the sizes differ.
    """
    sent = [count * like.element_size() for count in result.first_dims]
    wrong = [index for index, output in enumerate(outputs) if output.nbytes != sent[index]]
    if wrong:
        first = wrong[0]
        raise errors.Mismatch(
            f"rank {members[first]} sent {sent[first]} bytes of {like.dtype} for an output of shape "
            f"{tuple(outputs[first].shape)}, which has {outputs[first].nbytes} bytes. Make each output as large as "
            "what its rank sends.",
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
