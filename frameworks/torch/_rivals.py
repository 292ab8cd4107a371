"""Parameters that are in several DistributedOptimizers.

A program may make an optimizer for each fold or stage and keep the earlier ones. It may not even know: Python's garbage
collector frees them at different times on each rank. Only the optimizer that steps may send the gradient. So while
several optimizers with a parameter exist, backward only marks its gradient, and the step sends it. Ranks match
gradients by name, so one rank may send it in backward and another one in the step.
"""

from __future__ import annotations

import weakref

from distrun import errors

from ._changes import is_shared
from ._slot import Slot


def alive(slot: Slot) -> list[Slot]:
    """Returns the slots of other optimizers that have the same parameter."""
    # Slots of a deleted reducer may exist until the garbage collector runs.
    found = [rival() for reducer, rival in slot.rivals if reducer() is not None]
    return [rival for rival in found if rival is not None]


def meet(slot: Slot, reducer: object, rival: Slot, other: object) -> None:
    """Two slots with the same parameter, each with its reducer, get to know each other."""
    slot.rivals.append((weakref.ref(other), weakref.ref(rival)))
    rival.rivals.append((weakref.ref(reducer), weakref.ref(slot)))


class Contested:
    """The slots of one optimizer whose parameters are or were in other optimizers too. Same lock as the slots."""

    def __init__(self) -> None:
        self._slots: dict[int, Slot] = {}

    def add(self, slot: Slot) -> None:
        """Adds a slot. No effect if it was added before."""
        self._slots[id(slot)] = slot

    def remove(self, slot: Slot) -> None:
        """Removes a slot whose parameter has left the optimizer."""
        self._slots.pop(id(slot), None)

    def waiting(self) -> Slot | None:
        """Returns a slot whose gradient waits for a step; None if there is none."""
        return next((slot for slot in self._slots.values() if slot.waits), None)

    @staticmethod
    def holds(slot: Slot) -> bool:
        """Marks a gradient that backward has computed, and returns True, if another optimizer may step with it."""
        if not slot.rivals or not alive(slot):
            return False
        grad = slot.param.grad
        slot.waits = True
        if grad is not None and not is_shared(grad):
            slot.mark(grad)
        return True

    def refuse(self) -> None:
        """Raises InvalidArgument if another optimizer has sent or reduced a gradient that this one is to reduce.

        A gradient that the program has dropped since then (zero_grad) does not count.
        """
        for slot in self._slots.values():
            grad = slot.param.grad
            for rival in alive(slot):
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
                rival.waits, rival.is_reduced, rival.marked = False, False, None

    def drop(self) -> None:
        """The program drops the gradients, so no optimizer has reduced the next ones."""
        for slot in self._slots.values():
            for one in (slot, *alive(slot)):
                one.is_reduced = False
