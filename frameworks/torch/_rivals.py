"""Parameters that are in several optimizers.

A program may make an optimizer for each fold or stage and keep the earlier ones. It may not even know: Python's garbage
collector frees them at different times on each rank. Only the optimizer that steps may send the gradient. So while
several optimizers with a parameter exist, backward only marks its gradient, and the step sends it. Ranks match
gradients by name, so one rank may send it in backward and another one in the step.

One of them is in use: the one whose zero_grad(), synchronize() or step() was the last, or that was made last. The
program decides that, so all ranks know the same. The others send nothing in backward. Optimizers of plain torch count
as well.
"""

from __future__ import annotations

import weakref
from typing import Protocol

import torch
from distrun import errors

from ._changes import is_shared
from ._plain import is_used
from ._slot import Slot


class HasContested(Protocol):
    """A reducer."""

    contested: Contested


def alive(slot: Slot, same_set: bool = False) -> list[Slot]:
    """Returns the slots of other optimizers that have the same parameter. same_set: of the same process set only."""
    # Slots of a deleted reducer may exist until the garbage collector runs.
    found = [rival() for reducer, rival, same in slot.rivals if reducer() is not None and (same or not same_set)]
    return [rival for rival in found if rival is not None]


def meet(slot: Slot, reducer: HasContested, rival: Slot, other: HasContested, same_set: bool) -> None:
    """Two slots with the same parameter, each with its reducer, get to know each other."""
    slot.rivals.append((weakref.ref(other), weakref.ref(rival), same_set))
    rival.rivals.append((weakref.ref(reducer), weakref.ref(slot), same_set))
    reducer.contested.add(slot)
    other.contested.add(rival)
    reducer.contested.others.add(other)
    other.contested.others.add(reducer)


class Contested:
    """The slots of one optimizer whose parameters are or were in other optimizers too. Same lock as the slots."""

    def __init__(self) -> None:
        self._slots: dict[int, Slot] = {}
        self.others: weakref.WeakSet[HasContested] = weakref.WeakSet()
        self.in_use = True
        self.owner: weakref.ref[object] | None = None  # the optimizer; None in tests

    def add(self, slot: Slot) -> None:
        """Adds a slot. No effect if it was added before."""
        self._slots[id(slot)] = slot

    def remove(self, slot: Slot) -> None:
        """Removes a slot whose parameter has left the optimizer."""
        self._slots.pop(id(slot), None)

    def use(self) -> None:
        """The program uses this optimizer, and none of the others with its parameters."""
        for other in tuple(self.others):
            other.contested.in_use = False
        self.in_use = True

    def use_plain(self, plain: torch.optim.Optimizer, slots: list[Slot]) -> None:
        """The program uses an optimizer that is not distributed. `slots` have its parameters."""
        if self._is_inside(plain):
            return
        self.in_use = False
        for slot in slots:
            slot.stop_waiting()

    def belongs_to(self, optimizer: object) -> bool:
        """True if these are the gradients of that optimizer."""
        return self.owner is not None and self.owner() is optimizer

    def _is_inside(self, plain: torch.optim.Optimizer) -> bool:
        """True if the plain optimizer has this one as an attribute, and steps by it (Lookahead)."""
        owner = self.owner and self.owner()
        return owner is not None and any(value is owner for value in vars(plain).values())

    def _has_plain(self, slot: Slot) -> bool:
        found = [plain() for plain in slot.plain]
        return any(plain is not None and is_used(plain) and not self._is_inside(plain) for plain in found)

    def waiting(self) -> Slot | None:
        """Returns a slot whose gradient waits for a step; None if there is none."""
        return next((slot for slot in self._slots.values() if slot.waits), None)

    def may_be_sent(self) -> bool:
        """True if other ranks may have sent a gradient that waits here."""
        return any(slot.may_be_sent for slot in self._slots.values())

    def holds(self, slot: Slot) -> bool:
        """Marks a gradient that backward has computed, and returns True, if another optimizer may step with it."""
        if self.in_use and not (slot.rivals and alive(slot)) and not (slot.plain and self._has_plain(slot)):
            return False
        self.add(slot)
        grad = slot.param.grad
        slot.waits, slot.may_be_sent = True, self.in_use
        if grad is not None and not is_shared(grad):
            slot.mark(grad)
        return True

    def refuse(self) -> None:
        """Raises InvalidArgument if another optimizer has sent or reduced a gradient that this one is to reduce.

        A gradient that the program has dropped since then (zero_grad) does not count.
        """
        for slot in self._slots.values():
            grad = slot.param.grad
            for rival in alive(slot, same_set=True):
                both = (rival.queued and rival.grad is grad) or (rival.is_reduced and not slot.waits)
                if grad is not None and both:
                    raise errors.InvalidArgument(
                        f"the parameter {slot.name} is in two DistributedOptimizers, so its gradient would be "
                        "reduced twice. Put it into one of them. An optimizer may have several parameter groups.",
                        tensor=slot.name,
                    )

    def reduced(self) -> None:
        """Tells the other optimizers that this one has reduced the gradients."""
        for slot in self._slots.values():
            slot.is_reduced = True
            for rival in alive(slot):
                rival.is_reduced = False
                rival.stop_waiting()

    def drop(self) -> None:
        """The program drops the gradients, so no optimizer has reduced the next ones."""
        for slot in self._slots.values():
            for one in (slot, *alive(slot)):
                one.is_reduced = False
                one.stop_waiting()
