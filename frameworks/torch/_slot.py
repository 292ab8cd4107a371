"""One parameter of a DistributedOptimizer, and what its gradient can be."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from distrun import _abi, errors
from distrun._operations import Handle

from ._changes import version
from ._feedback import Feedback

UNKNOWN = -1


class Group:
    """Parameters whose gradients run all or none: handed over when the last one is ready."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.slots: list[Slot] = []
        self.missing = 0


class Slot:
    """One parameter. `struct` is its operation, filled once and then kept from step to step."""

    def __init__(self, param: torch.Tensor, name: str, passes: int, group: Group | None) -> None:
        self.param = param
        self.name = name
        self.group = group
        self.passes_left = passes
        self.queued = False
        self.tries = 0  # to hand the gradient over
        self.error: BaseException | None = None  # of the last one
        self.was_wanted = True  # when the last step was over, or from the start
        self.lent = False  # a frozen parameter has a gradient for the sake of the other ranks
        self.layout = UNKNOWN  # of the gradient: how many of its dimensions are sparse, 0 if it is dense
        self.struct = _abi.OpStruct()
        self.filled_for: tuple[Any, ...] | None = None
        self.pointed_to: object = None  # by `struct`
        # Of the gradient in flight: itself, what compression made of it, the contiguous memory that is reduced.
        self.grad: torch.Tensor | None = None
        self.shared = False  # its memory, which is not reduced in place then
        # A gradient that was handed over, as it was then, until the program's changes were looked for.
        self.marked: torch.Tensor | None = None
        self.version = 0
        self.pointer = 0  # `grad.data = ...` gives it other memory, and torch counts no change; 0 if it is sparse
        self.sent: torch.Tensor | None = None
        self.work: torch.Tensor | None = None
        self.context: Any = None
        self.sparse_result: Callable[[], torch.Tensor] | None = None
        self.feedback: Feedback | None = None
        self.agreement: Handle[torch.Tensor] | None = None
        # Those of other optimizers that reduce the same gradient, each with the reducer that it lives with.
        self.rivals: list[tuple[weakref.ref[object], weakref.ref[Slot]]] = []
        self.hook: Any = None

    def mark(self, grad: torch.Tensor) -> None:
        """Remembers the gradient as it is now."""
        self.marked, self.version = grad, version(grad)
        self.pointer = grad.data_ptr() if grad.layout is torch.strided else 0

    def has_changed(self) -> bool:
        """True if the marked gradient was written to or has got other memory."""
        grad = self.marked
        assert grad is not None
        return version(grad) != self.version or (self.pointer != 0 and grad.data_ptr() != self.pointer)

    def take_back(self) -> None:
        """If no rank had a gradient, the step must not move the parameter by its momentum or decay."""
        grad, self.lent = self.param.grad, False
        if grad is not None and not (grad._nnz() if grad.is_sparse else grad.any()):
            self.param.grad = None


def refuse_rivals(slot: Slot) -> None:
    """InvalidArgument if another optimizer has the same gradient in flight: both would write to it."""
    # Slots of a reducer that is gone may live until the garbage collector runs.
    alive = (rival() for reducer, rival in slot.rivals if reducer() is not None)
    if any(rival is not None and rival.queued for rival in alive):
        raise errors.InvalidArgument(
            f"the parameter {slot.name} is in two DistributedOptimizers, and both would reduce its gradient, at once "
            "or one what the other has reduced. Put it into one of them only (an optimizer may have several parameter "
            "groups).",
            tensor=slot.name,
        )


def check_untouched(slot: Slot) -> None:
    """InvalidArgument if the program has changed or replaced the gradient since it was handed over. None steps nothing.

    The mark is used up: results that are written later are no change of the program's.
    """
    marked, grad = slot.marked, slot.param.grad
    if marked is None or grad is None:
        return
    changed, slot.marked = slot.has_changed(), None
    if grad is not marked and _memory(grad) != _memory(marked):
        raise too_late(slot.name, "replaced")
    if changed:
        raise too_late(slot.name, "changed")


def too_late(name: str, what: str) -> errors.InvalidArgument:
    """Says what was done to the gradient of that name."""
    return errors.InvalidArgument(
        f"the gradient of {name} was {what} after backward had handed it over, so the step would take this rank's own; "
        "call optimizer.synchronize() before changing gradients, and step inside optimizer.skip_synchronize().",
        tensor=name,
    )


def _memory(grad: torch.Tensor) -> tuple[Any, ...]:
    values = grad._values() if grad.layout == torch.sparse_coo else grad
    return values.data_ptr(), values.stride(), grad.layout, grad.dtype, grad.shape


def layout_of(slot: Slot) -> tuple[int, int]:
    """(1, 0) for a dense gradient, (0, sparse dimensions) for a sparse one, (0, 0) where this rank has not seen one."""
    grad = slot.param.grad
    if slot.layout != UNKNOWN:
        return int(slot.layout == 0), slot.layout
    if grad is None:
        return 0, 0
    return (0, grad.sparse_dim()) if grad.is_sparse else (1, 0)


def zeros(param: torch.Tensor, layout: int) -> torch.Tensor:
    dtype = getattr(param, "grad_dtype", None) or param.dtype  # PyTorch 2.10; None lets backward choose
    if layout <= 0:
        return torch.zeros_like(param, dtype=dtype, requires_grad=False, memory_format=torch.preserve_format)
    places = torch.empty((layout, 0), dtype=torch.int64, device=param.device)
    values = torch.empty((0, *param.shape[layout:]), dtype=dtype, device=param.device)
    return torch.sparse_coo_tensor(places, values, param.shape, check_invariants=False)


def other_parameters(error: errors.Mismatch, asked: Sequence[Slot]) -> errors.Mismatch:
    """The error of the exchange of layouts where the ranks have different numbers of parameters. Its own text names
    none of them."""
    return errors.Mismatch(
        "the ranks' optimizers have different parameters, or others that require a gradient: this rank has "
        f"{len(asked)} of them, from '{asked[0].name}' to '{asked[-1].name}'. {error}",
        tensor=error.tensor,
        ranks=error.ranks,
        host=error.host,
        cause=error.cause,
        usable=error.usable,
    )
