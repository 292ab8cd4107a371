"""Changes of tensors in flight, as far as torch counts them: it does not where they go through `data` or NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from distrun import errors


def version(tensor: torch.Tensor) -> int:
    """How often torch has written to it. Of inference tensors it does not count that: 0."""
    try:
        return tensor._version
    except RuntimeError:
        return 0


def users_of(memory: torch.Tensor) -> int:
    """How many tensors have this memory."""
    users: int = torch._C._storage_Use_Count(memory.untyped_storage()._cdata)  # type: ignore[attr-defined]
    return users


_ALONE = users_of(torch.zeros(1))  # counts what is asked with


def is_shared(tensor: torch.Tensor) -> bool:
    """True where the memory is other tensors' too: what autograd has yet to compute earlier layers' from
    (`h + pos[None]` gives both sides one), a gradient of another parameter, a buffer for all of them."""
    return tensor.layout == torch.strided and users_of(tensor) > _ALONE


def watched(tensors: Iterable[tuple[str, torch.Tensor]]) -> Callable[[], errors.InvalidArgument | None]:
    """Gives what makes the error if one of the tensors was written to since.

    Parts of a buffer are left out: torch counts what is written to the other parts for them too.
    """
    marked = [(name, tensor, version(tensor)) for name, tensor in tensors if not tensor._is_view()]

    def check() -> errors.InvalidArgument | None:
        for name, tensor, seen in marked:
            if version(tensor) != seen and not is_shared(tensor):
                return errors.InvalidArgument(
                    f"tensor '{name}' was changed while it was in flight, so its result is neither that of the old "
                    "values nor that of the new ones; wait for an operation before changing its tensor.",
                    tensor=name,
                )
        return None

    return check
