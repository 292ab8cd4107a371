"""Gradients in flight: what DistributedOptimizer knows about each parameter between backward and step.

A gradient is handed over when backward has accumulated it for the last time before the step. Handing over is done for
several gradients at once, when enough bytes have come together: small ones share one call, big ones leave at once,
while backward goes on. Where that only slows backward down, all leave together at its end.

Threads: hooks run on autograd's threads, everything else on the caller's; `_lock` guards all of it. Ranks agree by
name, so neither the order of the hooks nor the size of the batches need be the same everywhere.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from distrun import _abi, _compression, _operations, _session, errors
from distrun._abi import Kind, ReduceOp
from distrun._collectives import call
from distrun._operations import Handle, Op
from distrun.process_sets import ProcessSet, registered_id

from ._adapter import collective
from ._advice import COMES_BACK, too_many
from ._changes import is_shared
from ._feedback import Feedback
from ._slot import (
    UNKNOWN,
    Group,
    Slot,
    check_untouched,
    layout_of,
    other_parameters,
    refuse_rivals,
    zeros,
)
from .compression import Compressor
from .sparse import start_sparse_allreduce

# Gradients wait for each other until this many bytes are ready: below it a call costs more than the bytes.
_BATCH_BYTES = 1 << 20

_ROWS = 1  # sparse dimensions of a gradient of nn.Embedding
_TRIES = 2

_alive: weakref.WeakSet[Reducer] = weakref.WeakSet()


class Options(NamedTuple):
    """What all gradients of one optimizer have in common."""

    compression: type[Compressor]
    op: ReduceOp
    predivide: float
    passes: int
    sparse_as_dense: bool
    process_set: ProcessSet
    steps_sparse: bool  # the optimizer refuses gradients that are not sparse


class Reducer:
    """Sends the gradients of the parameters it was given; `finish` waits until all of them are reduced."""

    def __init__(self, options: Options, prefix: str) -> None:
        self.options = options
        self._prefix = prefix
        self._lock = threading.RLock()
        self._busy = False  # True for a thread that has the lock: it was interrupted and called again
        self._slots: list[Slot] = []
        self._by_param: dict[int, Slot] = {}
        self._given: set[int] = set()  # those that are frozen so far too
        self._undecided: list[Slot] = []  # the ranks do not know yet whether these gradients are sparse
        self._asked: tuple[Handle[torch.Tensor], list[Slot]] | None = None  # about these; the answer is in flight
        self._agreed = False  # in this step
        self._failure: errors.DistrunError | None = None  # the first of it, not told yet
        self._frozen: list[tuple[torch.Tensor, str]] = []
        self._ready: list[Slot] = []
        self._ready_bytes = 0
        self._queued = 0  # gradients in flight, those that wait for their group included
        self._by_memory: dict[int, Slot] = {}  # the dense gradients since the last step, by their address
        self._shared: list[Slot] = []  # of those in flight, the ones whose memory is other tensors' too
        self._marked_in = -1  # the backward pass at whose end these are marked
        self._flights: list[tuple[Handle[None], list[Slot]]] = []
        self._sparse: list[Slot] = []
        self._unsettled: list[Slot] = []  # the ranks agree on the scale of their gradients
        self._feedback = _feedback_kind(options)
        self._overlaps = _session.overlaps(_session.world())
        self._array: ctypes.Array[_abi.OpStruct] = (_abi.OpStruct * 64)()
        self._hooks: list[Any] = []
        self.arrived = 0  # gradients that backward has made so far
        # The parameters outlive the optimizer: their hooks must not keep it alive, and go when it goes.
        weakref.finalize(self, _remove_hooks, self._hooks)
        _alive.add(self)

    def new_group(self, number: int) -> Group:
        """A group for `add`."""
        return Group(number)

    def add(self, param: torch.Tensor, name: str, group: Group | None) -> None:
        """Takes care of the gradient of `param` from now on, or from the first step that requires one.

        Nothing changes for one that it has: programs empty param_groups and sort the parameters into new ones.
        """
        if id(param) not in self._given:
            self._given.add(id(param))
            self._add(param, name, group)

    def _add(self, param: torch.Tensor, name: str, group: Group | None) -> None:
        if not param.requires_grad:
            self._frozen.append((param, name))
            return
        options = self.options
        slot = Slot(param, name, options.passes, group)
        if self._feedback is not None:
            slot.feedback = self._feedback(options.process_set.size() or 1, options.op == ReduceOp.AVERAGE)
        if group is not None:
            group.slots.append(slot)
            group.missing += 1
        self._slots.append(slot)
        self._by_param[id(param)] = slot
        self._undecided.append(slot)
        self._meet_rivals(slot)
        reducer = weakref.ref(self)

        def on_gradient(_: torch.Tensor) -> None:
            alive = reducer()
            if alive is not None:
                alive._on_gradient(slot)

        slot.hook = param.register_post_accumulate_grad_hook(on_gradient)
        self._hooks.append(slot.hook)

    def keep(self, params: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Lets go of all others, which are returned. No gradient is in flight."""
        kept = {id(param) for param in params}
        gone = [slot for slot in self._slots if id(slot.param) not in kept]
        others = [param for param, _ in self._frozen if id(param) not in kept]
        for slot in gone:
            slot.hook.remove()
            self._hooks.remove(slot.hook)
            slot.take_back()
            del self._by_param[id(slot.param)]
            if slot.group is not None:
                slot.group.slots.remove(slot)
                slot.group.missing -= 1
        self._slots = [slot for slot in self._slots if slot not in gone]
        self._undecided = [slot for slot in self._undecided if slot not in gone]
        self._frozen = [one for one in self._frozen if id(one[0]) in kept]
        others += [slot.param for slot in gone]
        self._given -= {id(param) for param in others}
        return others

    def outstanding(self) -> bool:
        """True if a gradient is in flight: it must not be changed now."""
        return self._queued > 0

    def first_outstanding(self) -> str:
        """The name of a parameter whose gradient is in flight."""
        return next(slot.name for slot in self._slots if slot.queued)

    def finish(self) -> None:
        """Sends what backward did not compute, waits for all, and puts the results into the gradients.

        Every rank sends a gradient for every parameter that requires one, in every step; a missing one counts as zero.
        """
        with self._lock:
            if self._busy:
                raise RuntimeError(COMES_BACK)
            try:
                self._busy = True
                self._finish()
            finally:
                self._busy = False

    def _finish(self) -> None:
        self._adopt()
        if not self._agreed:
            self._agree_on_layouts()
        self._agreed = True
        for slot in self._slots:
            if slot.queued:
                try:
                    check_untouched(slot)
                except errors.InvalidArgument as error:
                    self._failure = self._failure or error
            elif self._is_wanted(slot):
                self._queue(slot)
        given_up = self._prepare_rest()
        self._flush()
        self._settle()
        while self._flights:
            handle, slots = self._flights[0]
            self._for_each(slots, functools.partial(self._write_back, handle))
            self._flights.pop(0)
        self._by_memory.clear()
        if self._shared:  # results count as changes of what other optimizers have in the same memory
            for other in _alive:
                other._mark_shared()
        self._finish_sparse()
        # All at once: an interrupted call that is repeated does the rest, and neither asks nor sends twice.
        self._forget([slot for slot in self._slots if slot.queued])
        self._agreed = False
        for slot in self._slots:
            slot.was_wanted = slot.param.requires_grad
            if slot.lent:
                slot.take_back()
        failure, self._failure = self._failure or given_up, None
        if failure is not None:
            raise failure

    @torch.no_grad()
    def finite(self) -> torch.Tensor:
        """Whether all gradients are finite now: one element, so that nothing waits for CUDA before it is looked at."""
        grads = [slot.param.grad for slot in self._slots if slot.param.grad is not None]
        values = [grad._values() if grad.is_sparse else grad for grad in grads]
        # No sum of float32 overflows here.
        sums = [value.sum(dtype=torch.promote_types(value.dtype, torch.float64)) for value in values]
        if not sums:
            return torch.tensor(True)
        return torch.stack([one.to(sums[0].device, non_blocking=True) for one in sums]).isfinite().all()

    def reset(self, passes: int | None = None) -> None:
        """Waits for the gradients in flight, drops them, and starts counting backward passes anew."""
        if passes is not None:
            self.options = self.options._replace(passes=passes)
        if self.outstanding():
            self.finish()
        self._forget(self._slots)

    def forget_errors(self) -> None:
        """The rounding errors kept so far do not belong to a training that starts from a checkpoint."""
        for slot in self._slots:
            if slot.feedback is not None:
                slot.feedback.forget()

    def _meet_rivals(self, slot: Slot) -> None:
        """An optimizer may be made anew while the old one is still there: it is no mistake before both are in use."""
        for other in _alive:
            if other is self or other.options.process_set is not self.options.process_set:
                continue
            rival = other._by_param.get(id(slot.param))
            if rival is not None:
                slot.rivals.append((weakref.ref(other), weakref.ref(rival)))
                rival.rivals.append((weakref.ref(self), weakref.ref(slot)))

    def _on_gradient(self, slot: Slot) -> None:
        with self._lock:
            if self._busy:
                raise RuntimeError(COMES_BACK)
            try:
                self._busy = True
                self._take(slot)
            finally:
                self._busy = False

    def _take(self, slot: Slot) -> None:
        self.arrived += 1
        if slot.queued:
            slot.marked = None  # the program hears of this change here
            raise too_many(slot.name)
        slot.passes_left -= 1
        if slot.passes_left <= 0:
            self._queue(slot)
            if self._ready_bytes >= _BATCH_BYTES and (self._overlaps or slot.param.device.type != "cpu"):
                self._flush()
        if self._shared:
            self._mark_after_backward()

    def _mark_after_backward(self) -> None:
        """Tensors that share memory share torch's counter of changes: until backward ends, it counts what autograd adds
        to the others too."""
        current = torch._C._current_graph_task_id()
        if current not in (-1, self._marked_in):
            self._marked_in = current
            torch.autograd.Variable._execution_engine.queue_callback(self._mark_shared)  # type: ignore[attr-defined]

    def _mark_shared(self) -> None:
        """Without the lock: two optimizers may do it for each other at once."""
        for slot in tuple(self._shared):
            grad = slot.marked
            if grad is not None:
                slot.mark(grad)

    def _queue(self, slot: Slot) -> None:
        registered_id(self.options.process_set)  # raises before the gradient counts as handed over
        if slot.rivals:
            refuse_rivals(slot)
        slot.queued = True
        self._queued += 1
        group = slot.group
        if group is None:
            self._prepare(slot)
            return
        group.missing -= 1
        grad = slot.param.grad
        if grad is not None and not is_shared(grad):
            slot.mark(grad)  # it waits for the group
        if group.missing == 0:
            for member in group.slots:
                self._prepare(member)

    def _adopt(self) -> None:
        """Takes care of the parameters that require a gradient by now: the step would take what this rank computed."""
        for one in [one for one in self._frozen if one[0].requires_grad]:
            self._add(*one, None)  # the rest of its group may be in flight
            self._frozen = [other for other in self._frozen if other is not one]

    def _is_wanted(self, slot: Slot) -> bool:
        # A parameter may be frozen when some ranks have its gradient already, which others cannot know: all of them
        # send it in this step.
        return slot.param.requires_grad or slot.was_wanted

    def _agree_on_layouts(self) -> None:
        """A rank that does not use a parameter cannot see that its gradient is sparse, and sparse ones are sent in
        another way. So the ranks exchange it.

        A rank that has joined contributes nothing and learns nothing. When all have joined, they start again, as the
        numbers of unnamed operations do.
        """
        options = self.options
        if options.sparse_as_dense:
            return
        try:
            if self._asked is None:
                self._asked = self._ask_for_layouts()
            if self._asked is None:
                return
            handle, asked = self._asked  # of an interrupted call too: the other ranks ask but once
            answers = handle.wait().tolist()
        except errors.Mismatch as error:  # on all ranks; what some lack would be waited for
            asked, self._asked = self._asked[1] if self._asked else self._undecided, None
            raise other_parameters(error, asked) from error
        except errors.DistrunError as error:
            self._asked = None
            self._failure = self._failure or error
            return
        for slot, (dense, sparse) in zip(asked, answers, strict=True):
            if dense and sparse:
                self._asked = None
                raise ValueError(
                    f"the gradient of {slot.name} is sparse on some ranks and dense on others; pass "
                    "sparse_as_dense=True to DistributedOptimizer on all ranks."
                )
            if dense or sparse:
                slot.layout = sparse
        self._undecided = [slot for slot in self._undecided if slot.layout == UNKNOWN]
        self._agreed, self._asked = True, None

    def _ask_for_layouts(self) -> tuple[Handle[torch.Tensor], list[Slot]] | None:
        options = self.options
        if _session.current().number(f"{self._prefix}.layouts", registered_id(options.process_set)) == 0:
            self._undecided = list(self._slots)
        asked = [slot for slot in self._undecided if self._is_wanted(slot)]
        if not asked:
            return None
        own = torch.tensor([layout_of(slot) for slot in asked], dtype=torch.uint8)
        what = call(Kind.ALLREDUCE, f"{self._prefix}.layouts", options.process_set, reduce=ReduceOp.MAX)
        return collective.same_size([own], what, in_place=True), asked

    def _prepare_rest(self) -> BaseException | None:
        """Sends gradients that wait for frozen members of their group, and those that an error in backward kept back,
        such as a lack of memory: a script may catch it, and the other ranks have sent theirs. Gives the error of a
        gradient that is given up: the step must not run without its result."""
        given_up: BaseException | None = None
        for slot in self._slots:
            if not slot.queued or slot.grad is not None:
                continue
            if slot.tries < _TRIES:
                self._prepare(slot)
            else:
                given_up = given_up or slot.error
        return given_up

    def _prepare(self, slot: Slot) -> None:
        slot.tries += 1
        try:
            self._hand_over(slot)
        except BaseException as error:
            if not any(slot in ready for ready in (self._ready, self._sparse, self._unsettled)):
                slot.grad = None
            if isinstance(error, errors.DistrunError):
                slot.tries = _TRIES  # it would be the same again
            else:
                slot.error = error
            raise

    def _hand_over(self, slot: Slot) -> None:
        options = self.options
        grad = slot.grad = self._gradient(slot)
        slot.shared = is_shared(grad)
        if grad.is_sparse:
            slot.sparse_result = start_sparse_allreduce(grad, self._prefix + slot.name, options.op, options.process_set)
            self._sparse.append(slot)
            slot.mark(grad)
            return
        if slot.feedback is not None and slot.feedback.agrees:
            name = f"{self._prefix}{slot.name}.largest"
            what = call(Kind.ALLREDUCE, name, options.process_set, reduce=ReduceOp.MAX)
            slot.agreement = collective.same_size([slot.feedback.largest(grad.detach())], what, in_place=True)
            self._unsettled.append(slot)
        else:
            self._send(slot, 0.0)
        slot.mark(grad)
        if slot.shared:
            self._shared.append(slot)

    def _settle(self) -> None:
        """Sends the gradients whose scale had to be agreed on."""

        def send(slot: Slot) -> None:
            assert slot.agreement is not None
            self._send(slot, float(slot.agreement.wait()))

        self._for_each(self._unsettled, send)
        self._flush()

    def _finish_sparse(self) -> None:
        def finish(slot: Slot) -> None:
            result = slot.sparse_result() if slot.sparse_result is not None else None
            if result is not None and slot.param.grad is not None:  # None steps nothing
                slot.param.grad = result
            slot.sparse_result = None

        self._for_each(self._sparse, finish)

    def _for_each(self, slots: list[Slot], end: Callable[[Slot], None]) -> None:
        """Empties the list, each slot when it has ended: an interrupted call can be repeated."""
        while slots:
            try:
                end(slots[0])
            except errors.DistrunError as error:
                self._failure = self._failure or error
            slots.pop(0)

    def _send(self, slot: Slot, largest: float) -> None:
        grad = slot.grad
        assert grad is not None
        if slot.feedback is None:
            sent, slot.context = self.options.compression.compress(grad.detach())
        else:
            sent, slot.context = slot.feedback.encode(grad.detach(), largest)
        work = sent if sent.is_contiguous() else sent.contiguous()
        if slot.shared and work.data_ptr() == grad.data_ptr():
            work = work.clone()
        slot.sent, slot.work = sent, work
        self._fill(slot, work)
        self._ready.append(slot)
        self._ready_bytes += work.nbytes

    def _gradient(self, slot: Slot) -> torch.Tensor:
        param, options = slot.param, self.options
        if param.grad is None:
            no_rank_has_one = slot.layout == UNKNOWN and options.steps_sparse and not options.sparse_as_dense
            param.grad = zeros(param, _ROWS if no_rank_has_one else slot.layout)
            slot.lent = not param.requires_grad
        elif param.grad.is_sparse:
            if options.sparse_as_dense or slot.layout == 0:
                param.grad = param.grad.to_dense()
        elif slot.layout > 0:
            param.grad = param.grad.to_sparse(slot.layout)
        if not param.grad.is_sparse and param.grad.numel():
            self._separate(slot, param.grad)
        return param.grad

    def _separate(self, slot: Slot, grad: torch.Tensor) -> None:
        """Autograd may give the gradients of two parameters one memory (`a[None] + b[None]`): a copy for the second."""
        if self._by_memory.setdefault(grad.data_ptr(), slot) is not slot:
            slot.param.grad = grad.clone()

    def _fill(self, slot: Slot, work: torch.Tensor) -> None:
        options, struct = self.options, slot.struct
        key = (work.dtype, work.shape, work.device)
        if slot.filled_for != key:
            memory = collective.adapter.describe(work)
            # Whole numbers are summed as they are; their scale has all that remains.
            whole = slot.agreement is not None
            slot.pointed_to = _operations.fill(
                struct,
                Op(
                    kind=Kind.ALLREDUCE,
                    name=f"allreduce.{self._prefix}{slot.name}",
                    dtype=memory.dtype,
                    shape=memory.shape,
                    reduce=ReduceOp.SUM if whole else options.op,
                    prescale=1.0 if whole else 1.0 / options.predivide,
                    postscale=1.0 if whole else options.predivide,
                    process_set=registered_id(options.process_set),
                    group=-1 if whole or slot.group is None else slot.group.number,
                    device_type=memory.device_type,
                    device_index=memory.device_index,
                ),
            )
            slot.filled_for = key
        struct.input = struct.output = work.data_ptr()
        struct.process_set = registered_id(options.process_set)  # added again, the set has another one
        if work.is_cuda:
            struct.stream = torch.cuda.current_stream(work.device).cuda_stream

    def _flush(self) -> None:
        slots = self._ready
        if not slots:
            return
        if len(slots) > len(self._array):
            self._array = (_abi.OpStruct * (2 * len(slots)))()
        for index, slot in enumerate(slots):
            self._array[index] = slot.struct
        keep = [slot.work for slot in slots]
        handle: Handle[None] | None = None
        try:
            handle = _operations.enqueue_array(self._array, len(slots), keep, lambda _: None)
        except BaseException as error:
            handle = _operations.handed_over(keep)  # what a signal handler has raised says nothing of that
            if handle is None and isinstance(error, errors.DistrunError):
                self._ready, self._ready_bytes = [], 0
                self._forget(slots)
            raise
        finally:
            if handle is not None:
                self._flights.append((handle, slots))
                self._ready, self._ready_bytes = [], 0

    def _write_back(self, handle: Handle[None], slot: Slot) -> None:
        handle.wait()
        grad, sent, work = slot.grad, slot.sent, slot.work
        assert grad is not None and sent is not None and work is not None
        slot.marked = None
        if sent is not work:
            sent.copy_(work)
        if slot.feedback is None:
            result = self.options.compression.decompress(sent, slot.context)
        else:
            result = slot.feedback.decode(sent, slot.context)
        if result.data_ptr() != grad.data_ptr() or result.dtype != grad.dtype:
            with torch.no_grad():
                grad.copy_(result)
        if self.options.steps_sparse and self.options.sparse_as_dense and slot.param.grad is not None:
            # By rows on all ranks, also where this one had no gradient and cannot know.
            slot.param.grad = grad.to_sparse(_ROWS)

    def _forget(self, slots: list[Slot]) -> None:
        for slot in slots:
            if slot.queued:
                self._queued -= 1
                if slot.group is not None:
                    slot.group.missing += 1
            slot.queued = False
            slot.tries, slot.error = 0, None
            slot.passes_left = self.options.passes
            slot.grad = slot.sent = slot.work = slot.context = slot.sparse_result = slot.agreement = slot.marked = None
        self._shared = [slot for slot in self._shared if slot.queued]


def _feedback_kind(options: Options) -> type[Feedback] | None:
    kind = options.compression
    if not (isinstance(kind, type) and issubclass(kind, Feedback)):
        _compression.check(kind)
        return None
    if options.op not in (ReduceOp.SUM, ReduceOp.AVERAGE):
        raise ValueError(f"compression with error feedback needs op=Sum or op=Average, not {options.op.name.title()}.")
    return kind


def _remove_hooks(hooks: list[Any]) -> None:
    for hook in hooks:
        hook.remove()
