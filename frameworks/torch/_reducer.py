"""Gradients in flight: the state of each parameter of a DistributedOptimizer between backward and step.

A gradient is submitted when backward has accumulated it for the last time before the step. Several gradients are
submitted together, when they have enough bytes: small ones share one call, and big ones are sent at once, while
backward continues. If that would only slow backward down, all are sent together at its end.

Threads: hooks run on autograd's threads, everything else on the caller's; `_lock` guards all state. Ranks match
gradients by name, so the order of the hooks and the size of the batches may differ among ranks.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from distrun import _abi, _operations, _session, errors
from distrun._abi import Kind, ReduceOp
from distrun._collectives import call
from distrun._operations import Handle, Op
from distrun.process_sets import registered_id

from ._adapter import collective
from ._advice import COMES_BACK, too_many
from ._changes import is_shared
from ._feedback import feedback_kind
from ._sharing import ALIVE, Options, Sharing
from ._slot import (
    UNKNOWN,
    Group,
    Slot,
    check_untouched,
    layout_of,
    other_parameters,
    zeros,
)
from .sparse import start_sparse_allreduce

# Gradients are collected until this many bytes are ready. Below it a call costs more than the bytes.
_BATCH_BYTES = 1 << 20

_ROWS = 1  # sparse dimensions of a gradient of nn.Embedding
_TRIES = 2


class Reducer(Sharing):
    """Sends the gradients of the added parameters. `finish` waits until all of them are reduced."""

    def __init__(self, options: Options, prefix: str) -> None:
        super().__init__()
        self.options = options
        self._prefix = prefix
        self._lock = threading.RLock()
        self._busy = False  # if a thread with the lock sees True, it was interrupted and called again
        self._slots: list[Slot] = []
        self._given: set[int] = set()  # by id(), including the frozen ones
        self._undecided: list[Slot] = []  # the ranks do not know yet whether these gradients are sparse
        self._asked: tuple[Handle[torch.Tensor], list[Slot]] | None = None  # the exchange in flight, its slots
        self._agreed = False  # the layouts of this step
        self._failure: errors.DistrunError | None = None  # the first one of this step, not raised yet
        self._frozen: list[tuple[torch.Tensor, str]] = []
        self._ready: list[Slot] = []
        self._ready_bytes = 0
        self._by_memory: dict[int, Slot] = {}  # the dense gradients since the last step, by address
        self._shared: list[Slot] = []  # gradients in flight that share memory with other tensors
        self._marked_in = -1  # the backward pass that marks these at its end
        self._flights: list[tuple[Handle[None], list[Slot]]] = []
        self._sparse: list[Slot] = []
        self._awaiting_scale: list[Slot] = []  # gradients whose scale the ranks still have to agree on
        self._feedback = feedback_kind(options.compression, options.op)
        self._overlaps = _session.overlaps(_session.world())
        self._array: ctypes.Array[_abi.OpStruct] = (_abi.OpStruct * 64)()
        self._hooks: list[Any] = []
        self.arrived = 0  # gradients that backward has computed so far
        # The parameters outlive the optimizer. Their hooks must not keep it alive, and are removed with it.
        weakref.finalize(self, _remove_hooks, self._hooks)

    def new_group(self, number: int) -> Group:
        """Returns a new group for `add`."""
        return Group(number)

    def add(self, param: torch.Tensor, name: str, group: Group | None) -> None:
        """Sends the gradient of `param` from now on, or from the first step that requires one.

        No effect if it was added before: programs empty param_groups and sort the parameters into new ones.
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
        """Removes all other parameters and returns them. No gradient may be in flight."""
        kept = {id(param) for param in params}
        gone = [slot for slot in self._slots if id(slot.param) not in kept]
        others = [param for param, _ in self._frozen if id(param) not in kept]
        for slot in gone:
            slot.hook.remove()
            self._hooks.remove(slot.hook)
            self.contested.remove(slot)
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

    def groups(self) -> list[list[torch.Tensor]]:
        """Returns the parameters of each group that new_group() made."""
        found: dict[int, list[torch.Tensor]] = {}
        for slot in self._slots:
            if slot.group is not None:
                found.setdefault(slot.group.number, []).append(slot.param)
        return [found[number] for number in sorted(found)]

    def outstanding(self) -> bool:
        """Returns True if a gradient is in flight, or waits to be sent. The program must not change it now."""
        return self._queued > 0 or (self.contested.in_use and self.contested.waiting() is not None)

    def first_outstanding(self) -> str:
        """Returns the name of a parameter whose gradient is in flight, or waits to be sent."""
        return next(slot.name for slot in self._slots if slot.queued or slot.waits)

    def finish(self) -> None:
        """Sends gradients that backward did not compute, waits for all, and writes the results into the gradients.

        In every step, every rank sends a gradient for every parameter that requires one. A missing one counts as zero.
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
        self._begin()
        if not self._gives_up:
            self._adopt()
            self.contested.refuse()
        if not self._agreed:
            self._agree_on_layouts()
        self._agreed = True
        for slot in self._slots:
            if (slot.queued or slot.waits) and not self._gives_up:
                try:
                    check_untouched(slot)
                except errors.InvalidArgument as error:
                    self._failure = self._failure or error
            if not slot.queued and self._is_wanted(slot):
                self._queue(slot)
        given_up = self._prepare_rest()
        self._flush()
        self._send_agreed()
        while self._flights:
            handle, slots = self._flights[0]
            self._for_each(slots, functools.partial(self._write_back, handle))
            self._flights.pop(0)
        self._by_memory.clear()
        if self._shared:  # other optimizers would see results in shared memory as the program's changes
            for other in ALIVE:
                other._mark_shared()
        self._finish_sparse()
        # All at once. If the call is interrupted and repeated, it does the rest without asking or sending twice.
        self._forget([slot for slot in self._slots if slot.queued])
        if not self._gives_up:
            self.contested.reduced()
        self._end()
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
        """Returns whether all gradients are finite, as a tensor of one element. So only reading it waits for CUDA."""
        grads = [slot.param.grad for slot in self._slots if slot.param.grad is not None]
        values = [grad._values() if grad.is_sparse else grad for grad in grads]
        # In float64 a sum of float32 values cannot overflow.
        sums = [value.sum(dtype=torch.promote_types(value.dtype, torch.float64)) for value in values]
        if not sums:
            return torch.tensor(True)
        return torch.stack([one.to(sums[0].device, non_blocking=True) for one in sums]).isfinite().all()

    def reset(self, passes: int | None = None) -> None:
        """Waits for the gradients in flight, drops them, and restarts the count of backward passes."""
        if passes is not None:
            self.options = self.options._replace(passes=passes)
        if self.is_in_a_step():
            self.finish()
        self._forget(self._slots)

    def forget_errors(self) -> None:
        """Drops the rounding errors kept so far. They do not belong to a training that starts from a checkpoint."""
        for slot in self._slots:
            if slot.feedback is not None:
                slot.feedback.forget()

    def _drop_all(self) -> None:
        self._flights, self._ready, self._ready_bytes, self._sparse, self._awaiting_scale = [], [], 0, [], []
        self._asked, self._agreed, self._failure = None, False, None
        self._by_memory.clear()
        self._forget(self._slots)
        self.contested.drop()
        self._end()

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
            if not self.contested.in_use and slot.has_new_gradient():
                return  # it belongs to another optimizer, and the one in flight to a step that was left
            slot.marked = None  # too_many() reports this change
            raise too_many(slot.name)
        slot.is_reduced = False
        slot.passes_left -= 1
        if slot.passes_left > 0:
            return
        if self.contested.in_use:
            self._begin()
        if not self.contested.holds(slot):
            self._queue(slot)
            if self._ready_bytes >= _BATCH_BYTES and (self._overlaps or slot.param.device.type != "cpu"):
                self._flush()
        if self._shared:
            self._mark_after_backward()

    def _mark_after_backward(self) -> None:
        """Marks shared gradients again at the end of backward.

        Tensors that share memory also share torch's counter of changes. Until backward ends, the counter includes what
        autograd adds to the others.
        """
        current = torch._C._current_graph_task_id()
        if current not in (-1, self._marked_in):
            self._marked_in = current
            torch.autograd.Variable._execution_engine.queue_callback(self._mark_shared)  # type: ignore[attr-defined]

    def _mark_shared(self) -> None:
        """Marks the shared gradients. Runs without the lock, because two optimizers may call this for each other at
        once."""
        for slot in tuple(self._shared):
            grad = slot.marked
            if grad is not None:
                slot.mark(grad)

    def _queue(self, slot: Slot) -> None:
        registered_id(self.options.process_set)  # raises before the gradient counts as submitted
        slot.queued, slot.waits, slot.may_be_sent = True, False, False
        self._queued += 1
        group = slot.group
        if group is None:
            self._prepare(slot)
            return
        group.missing -= 1
        grad = slot.param.grad
        if grad is not None and not is_shared(grad):
            slot.mark(grad)  # it waits for its group
        if group.missing == 0:
            for member in group.slots:
                self._prepare(member)

    def _adopt(self) -> None:
        """Adds frozen parameters that now require a gradient. Otherwise the step would use this rank's gradient."""
        for one in [one for one in self._frozen if one[0].requires_grad]:
            self._add(*one, None)  # the rest of its group may be in flight
            self._frozen = [other for other in self._frozen if other is not one]

    def _is_wanted(self, slot: Slot) -> bool:
        # A parameter may be frozen after some ranks have sent its gradient. The others cannot know, so all send it in
        # this step.
        return slot.param.requires_grad or slot.was_wanted

    def _agree_on_layouts(self) -> None:
        """Exchanges which gradients are sparse. Those are sent in another way, and a rank that does not use a parameter
        cannot see its layout.

        A rank that has joined contributes nothing and learns nothing. After all have joined, the exchange starts again,
        like the numbers of unnamed operations.
        """
        options = self.options
        if options.sparse_as_dense:
            return
        try:
            if self._asked is None:
                self._asked = self._ask_for_layouts()
            if self._asked is None:
                return
            handle, asked = self._asked  # also that of an interrupted call: the other ranks ask only once
            answers = handle.wait().tolist()
        except errors.Mismatch as error:  # on all ranks; otherwise they would wait for the missing parameters
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
                    f"the gradient of {slot.name} is sparse on some ranks and dense on others. Pass "
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
        """Submits gradients that wait for frozen members of their group, or that an error in backward held back.

        A script may catch such an error, for instance a lack of memory, and the other ranks have sent their gradients.
        Returns the error of a gradient that is given up, since the step must not run without its result.
        """
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
            if not any(slot in ready for ready in (self._ready, self._sparse, self._awaiting_scale)):
                slot.grad = None
            if isinstance(error, errors.DistrunError):
                slot.tries = _TRIES  # another try would give the same error
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
            self._awaiting_scale.append(slot)
        else:
            self._send(slot, 0.0)
        slot.mark(grad)
        if slot.shared:
            self._shared.append(slot)

    def _send_agreed(self) -> None:
        """Sends the gradients whose scale the ranks have agreed on."""

        def send(slot: Slot) -> None:
            assert slot.agreement is not None
            self._send(slot, float(slot.agreement.wait()))

        self._for_each(self._awaiting_scale, send)
        self._flush()

    def _finish_sparse(self) -> None:
        def finish(slot: Slot) -> None:
            result = slot.sparse_result() if slot.sparse_result is not None else None
            if result is not None and self._takes(slot):
                slot.param.grad = result / self._share() if self._gives_up else result
            slot.sparse_result = None

        self._for_each(self._sparse, finish)

    def _takes(self, slot: Slot) -> bool:
        """True if the parameter takes the result. A step skips a gradient that is None."""
        return slot.param.grad is slot.grad if self._gives_up else slot.param.grad is not None

    def _share(self) -> int:
        """Returns by what a result is divided, to be the mean of all ranks."""
        return (self.options.process_set.size() or 1) if self.options.op == ReduceOp.SUM else 1

    def _for_each(self, slots: list[Slot], end: Callable[[Slot], None]) -> None:
        """Empties the list. Each slot is removed after `end` has run, so that an interrupted call can be repeated."""
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
            made = zeros(param, _ROWS if no_rank_has_one else slot.layout)
            if self._gives_up:
                return made
            param.grad, slot.lent = made, not param.requires_grad
        elif param.grad.is_sparse:
            if options.sparse_as_dense or slot.layout == 0:
                param.grad = param.grad.to_dense()
        elif slot.layout > 0:
            param.grad = param.grad.to_sparse(slot.layout)
        if not param.grad.is_sparse and param.grad.numel():
            self._separate(slot, param.grad)
        return param.grad

    def _separate(self, slot: Slot, grad: torch.Tensor) -> None:
        """Copies the gradient if another parameter's has the same memory, as autograd may do (`a[None] + b[None]`)."""
        if self._by_memory.setdefault(grad.data_ptr(), slot) is not slot:
            slot.param.grad = grad.clone()

    def _fill(self, slot: Slot, work: torch.Tensor) -> None:
        options, struct = self.options, slot.struct
        key = (work.dtype, work.shape, work.device)
        if slot.filled_for != key:
            memory = collective.adapter.describe(work)
            # Integers are summed unscaled. Their common scale contains all factors.
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
        struct.process_set = registered_id(options.process_set)  # a set that was added again has another id
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
            handle = _operations.handed_over(keep)  # a signal handler's exception says nothing of that
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
        if self._gives_up and self._share() > 1:
            with torch.no_grad():
                grad.div_(self._share())
        if self.options.steps_sparse and self.options.sparse_as_dense and self._takes(slot):
            # Make it sparse on all ranks, also where this rank had no gradient and cannot know the layout.
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


def _remove_hooks(hooks: list[Any]) -> None:
    for hook in hooks:
        hook.remove()
