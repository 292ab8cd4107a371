"""Detects changes of tensors in flight by torch's version counter. It does not count writes through `data` or NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from distrun import errors


def version(tensor: torch.Tensor) -> int:
    """Returns how often torch has written to the tensor. For inference tensors torch does not count: 0."""
    try:
        return tensor._version
    except RuntimeError:
        return 0


def users_of(memory: torch.Tensor) -> int:
    """Returns how many tensors share this memory."""
    users: int = torch._C._storage_Use_Count(memory.untyped_storage()._cdata)  # type: ignore[attr-defined]
    return users


_ALONE = users_of(torch.zeros(1))  # the count includes the tensor that is passed


def is_shared(tensor: torch.Tensor) -> bool:
    """True if other tensors share the memory.

    They may be gradients from which autograd still computes those of earlier layers (`h + pos[None]` gives both sides
    the same tensor), a gradient of another parameter, or a buffer for all gradients.
    """
    return tensor.layout == torch.strided and users_of(tensor) > _ALONE


def is_whole(tensor: torch.Tensor) -> bool:
    """True if the tensor covers all of its memory, so that each counted write to this memory changes the tensor.

    A view of all elements does, and `x.detach()`. A part of a tensor does not.
    """
    if tensor.layout != torch.strided:
        return False
    return tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()


def watched(tensors: Iterable[tuple[str, torch.Tensor]]) -> Callable[[], errors.InvalidArgument | None]:
    """Returns a function that returns an error if one of the tensors was written to since this call.

    Parts of a buffer are left out, because torch's counter also counts writes to the other parts.
    """
    marked = [(name, tensor, version(tensor)) for name, tensor in tensors if not tensor._is_view() or is_whole(tensor)]

    def check() -> errors.InvalidArgument | None:
        for name, tensor, seen in marked:
            if version(tensor) != seen and (is_whole(tensor) or not is_shared(tensor)):
                return errors.InvalidArgument(
                    f"tensor '{name}' was changed while it was in flight, so its result may mix old and new values. "
                    "Wait for an operation before you change its tensor.",
                    tensor=name,
                )
        return None

    return check
