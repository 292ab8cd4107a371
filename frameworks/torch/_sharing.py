"""Which of several optimizers with the same parameters a program uses, and how steps end that it has left.

A program leaves a step after an exception, a loss that is not finite, or Ctrl-C in a notebook. Gradients are in flight
then, on some ranks perhaps more than on others. So all ranks end that step when the next optimizer is made.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any, NamedTuple

import torch
from distrun import _session, errors
from distrun._abi import ReduceOp
from distrun.process_sets import ProcessSet

from . import _plain
from ._rivals import Contested, meet
from ._slot import Slot
from .compression import Compressor

ALIVE: weakref.WeakSet[Any] = weakref.WeakSet()  # all reducers
# Reducers in the middle of a step. The garbage collector must not free them on some ranks only: the next optimizer with
# their parameters ends their step, together with the other ranks. The end of any step empties this set, so that a model
# that the program has dropped can be freed.
_IN_A_STEP: set[Sharing] = set()
_numbers = itertools.count()


class Options(NamedTuple):
    """The options that all gradients of one optimizer share."""

    compression: type[Compressor]
    op: ReduceOp
    predivide: float
    passes: int
    sparse_as_dense: bool
    process_set: ProcessSet
    steps_sparse: bool  # the optimizer accepts sparse gradients only


class Sharing:
    """The base of Reducer that knows the other optimizers with its parameters."""

    options: Options

    def __init__(self) -> None:
        self._number = next(_numbers)  # ranks make optimizers in the same order
        self._by_param: dict[int, Slot] = {}
        self._queued = 0  # gradients in flight, also those that wait for their group
        self.contested = Contested()
        self._session: weakref.ref[_session.Session] | None = None  # that of this step
        self._gives_up = False  # the program has left the step, and uses no results of it
        ALIVE.add(self)

    def finish(self) -> None:
        """Ends a step. See Reducer."""
        raise NotImplementedError

    def _drop_all(self) -> None:
        raise NotImplementedError

    def _meet_rivals(self, slot: Slot) -> None:
        """Records other optimizers with the same parameter. An unused old optimizer may still exist; that is no
        mistake."""
        for other in tuple(ALIVE):
            rival = other._by_param.get(id(slot.param)) if other is not self else None
            if rival is not None:
                meet(slot, self, rival, other, other.options.process_set is self.options.process_set)

    def _meet_plain(self, plain: torch.optim.Optimizer, params: list[torch.Tensor]) -> None:
        """Records an optimizer that is not distributed, and has the same parameters."""
        slots = [self._by_param[id(param)] for param in params if id(param) in self._by_param]
        for slot in slots:
            slot.plain.append(weakref.ref(plain))
        if slots:
            self.contested.in_use = False
            contested, optimizer = weakref.ref(self.contested), weakref.ref(plain)

            def used() -> None:
                its, itself = contested(), optimizer()
                if its is not None and itself is not None:
                    its.use_plain(itself, slots)

            _plain.on_use(plain, used)

    def use(self) -> None:
        """The program uses this optimizer now: it makes it, or calls its zero_grad, synchronize or step.

        This ends steps that the program has left: this one's, if another optimizer was used since, and those of others
        at the time when this one is made or gets parameters. All ranks do so at the same place.
        """
        if not self.contested.in_use and self.is_in_a_step():
            self._give_up()
        self.contested.use()

    def use_new(self) -> None:
        """Like `use`, for an optimizer that has got new parameters."""
        others = [other for other in self.contested.others if isinstance(other, Sharing)]
        for other in sorted(others, key=lambda other: other._number):
            if other.options.process_set is self.options.process_set:
                other._give_up()
        self.use()

    def is_in_a_step(self) -> bool:
        """True if a gradient is in flight, here or perhaps on another rank."""
        return self._queued > 0 or self.contested.may_be_sent()

    def _begin(self) -> None:
        if self._session is None:
            self._session = weakref.ref(_session.current())
            _IN_A_STEP.add(self)

    def _give_up(self) -> None:
        """Ends a step that the program has left. Every rank sends what the others wait for.

        The gradients get the mean of all ranks. An optimizer may use them like gradients of this rank.
        """
        if not self.is_in_a_step():
            return
        if self._session is not None and self._session() is not _session.current():
            self._drop_all()  # the operations have ended with their session
            return
        self._gives_up = True
        try:
            self.finish()
        except errors.DistrunError as error:
            if not error.usable:
                raise
        finally:
            self._gives_up = False

    def _end(self) -> None:
        self._session = None
        _IN_A_STEP.clear()


def _plain_optimizer_got(optimizer: torch.optim.Optimizer, params: list[torch.Tensor]) -> None:
    reducers = tuple(ALIVE)
    if not any(reducer.contested.belongs_to(optimizer) for reducer in reducers):
        for reducer in reducers:
            reducer._meet_plain(optimizer, params)


_plain.watch(_plain_optimizer_got)
