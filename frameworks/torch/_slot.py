"""One parameter of a DistributedOptimizer, and the state of its gradient."""

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
    """Parameters whose gradients run all or none. They are submitted when the last one is ready."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.slots: list[Slot] = []
        self.missing = 0


class Slot:
    """One parameter of a DistributedOptimizer. `struct` is its operation: filled once, reused in every step."""

    def __init__(self, param: torch.Tensor, name: str, passes: int, group: Group | None) -> None:
        self.param = param
        self.name = name
        self.group = group
        self.passes_left = passes
        self.queued = False
        self.tries = 0  # attempts to submit the gradient
        self.error: BaseException | None = None  # the error of the last attempt
        self.was_wanted = True  # True at the end of the last step, and at the start
        self.lent = False  # a frozen parameter has a gradient only because the other ranks send one
        self.layout = UNKNOWN  # the number of sparse dimensions of the gradient, 0 if it is dense
        self.struct = _abi.OpStruct()
        self.filled_for: tuple[Any, ...] | None = None
        self.pointed_to: object = None  # the memory that `struct` points to
        # The gradient in flight, its compressed form (sent), and the contiguous memory that is reduced (work).
        self.grad: torch.Tensor | None = None
        self.shared = False  # other tensors share its memory, so it is not reduced in place
        # The submitted gradient, as it was then. None after the check for changes by the program.
        self.marked: torch.Tensor | None = None
        self.version = 0
        self.pointer = 0  # detects `grad.data = ...`, which torch does not count; 0 if sparse
        self.sent: torch.Tensor | None = None
        self.work: torch.Tensor | None = None
        self.context: Any = None
        self.sparse_result: Callable[[], torch.Tensor] | None = None
        self.feedback: Feedback | None = None
        self.agreement: Handle[torch.Tensor] | None = None
        # Other optimizers with the same gradient. See _rivals.py.
        self.rivals: list[tuple[weakref.ref[object], weakref.ref[Slot], bool]] = []  # reducer, slot, same process set
        self.plain: list[weakref.ref[torch.optim.Optimizer]] = []  # optimizers that are not distributed
        self.waits = False  # backward has computed the gradient, and no optimizer has sent it
        self.may_be_sent = False  # it waits here only, and other ranks may have sent it
        self.is_reduced = False  # this optimizer has reduced the gradient, and backward has not added to it since
        self.hook: Any = None

    def mark(self, grad: torch.Tensor) -> None:
        """Stores the gradient's present state."""
        self.marked, self.version = grad, version(grad)
        self.pointer = grad.data_ptr() if grad.layout is torch.strided else 0

    def stop_waiting(self) -> None:
        """The gradient that waits belongs to another optimizer, or the program has dropped it."""
        self.waits = self.may_be_sent = False
        if not self.queued:
            self.marked = None

    def has_new_gradient(self) -> bool:
        """True if the gradient that backward has just computed has other memory than the one in flight."""
        return self.param.grad is not self.grad

    def has_changed(self) -> bool:
        """True if the marked gradient was written to, or has other memory now."""
        grad = self.marked
        assert grad is not None
        return version(grad) != self.version or (self.pointer != 0 and grad.data_ptr() != self.pointer)

    def take_back(self) -> None:
        """Removes the gradient if no rank had one. The step must not move the parameter by its momentum or decay."""
        grad, self.lent = self.param.grad, False
        if grad is not None and not (grad._nnz() if grad.is_sparse else grad.any()):
            self.param.grad = None


def check_untouched(slot: Slot) -> None:
    """Raises InvalidArgument if the program changed or replaced the gradient after it was submitted. None is accepted.

    This clears the mark, because results that are written later are no change by the program.
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
    """Returns the error for a gradient that was changed too late. `what` says how: "changed" or "replaced"."""
    return errors.InvalidArgument(
        f"the gradient of {name} was {what} after its reduction had started, so the step would use this rank's "
        "gradient only. Call optimizer.synchronize() before you change gradients, and step inside `with "
        "optimizer.skip_synchronize():`.",
        tensor=name,
    )


def _memory(grad: torch.Tensor) -> tuple[Any, ...]:
    values = grad._values() if grad.layout == torch.sparse_coo else grad
    return values.data_ptr(), values.stride(), grad.layout, grad.dtype, grad.shape


def layout_of(slot: Slot) -> tuple[int, int]:
    """Returns (1, 0) for a dense gradient, (0, sparse dimensions) for a sparse one, (0, 0) if this rank has none
    yet."""
    grad = slot.grad if slot.grad is not None else slot.param.grad  # the program may have dropped one in flight
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
    """Returns the error of the exchange of layouts for ranks with different parameters. Its own text does not name
    them."""
    return errors.Mismatch(
        f"the optimizers of the ranks have different parameters that require a gradient. This rank has {len(asked)}, "
        f"from '{asked[0].name}' to '{asked[-1].name}'. {error}",
        tensor=error.tensor,
        ranks=error.ranks,
        host=error.host,
        cause=error.cause,
        usable=error.usable,
    )
