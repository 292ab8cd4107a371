"""The operations on torch tensors, under Horovod's names. Blocking forms that return new tensors have gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from distrun import _collectives, _horovod
from distrun._abi import Kind
from distrun._collectives import EXACT, Call, gradient_factor, split_rows
from distrun._collectives import barrier as barrier
from distrun._horovod import Request
from distrun._operations import Handle, checked
from distrun.process_sets import ProcessSet, global_process_set

from . import autograd
from ._adapter import collective, place_of
from ._changes import watched
from ._oldest import COMPILE, have

_compiling = torch.compiler.is_compiling


def _traced() -> Any:
    """Returns the module for calls inside torch.compile. Programs that run eagerly do not load it."""
    from . import _compiled

    return _compiled


def _guarded(
    handle: Handle[Any], what: Call, tensors: list[torch.Tensor], ask: Request, *, in_place: bool = False
) -> Handle[Any]:
    """Adds a check for changes of tensors in flight.

    For a tensor that is not contiguous, a copy is in flight. Only the in-place forms copy it back, and need the check.
    """
    if ask.process_set.size() != 1:
        pairs = zip(what.names, tensors, strict=True)
        handle.guard(watched([pair for pair in pairs if in_place or pair[1].is_contiguous()]))
    return handle


class _Operations(_horovod.Operations[torch.Tensor, torch.Tensor]):
    """Adds gradients to the blocking operations that return new tensors, and operators for compiled programs."""

    def begin(
        self, kind: Kind, tensors: list[torch.Tensor], ask: Request, *, grouped: bool = False, in_place: bool = False
    ) -> Handle[Any]:
        what = ask.call(kind, len(tensors) if grouped else None)
        handle = self.collectives.start(what, tensors, ask.process_set, in_place=in_place)
        return _guarded(handle, what, tensors, ask, in_place=in_place)

    def run(
        self, kind: Kind, tensors: list[torch.Tensor], ask: Request, *, grouped: bool = False, in_place: bool = False
    ) -> list[torch.Tensor]:
        if ask.gradient != EXACT:
            tensors = autograd.scaled(tensors, gradient_factor(ask.gradient, kind, ask.process_set))
        if not _compiling():
            if in_place:
                return super().run(kind, tensors, ask, grouped=grouped, in_place=True)
            what = ask.call(kind, len(tensors) if grouped else None, single=False)
            return autograd.run(tensors, what, ask.process_set)
        if not in_place:
            outputs: list[torch.Tensor] = _traced().run(kind, tensors, ask, grouped)
            return outputs
        # Hidden from autograd, like an eager operation in place.
        with torch.no_grad():
            given = [tensor.detach() for tensor in tensors]
            for tensor, output in zip(given, _traced().run(kind, given, ask, grouped), strict=True):
                tensor.copy_(output)
        return tensors

    def alltoall_async(self, tensor: torch.Tensor, ask: Request) -> Handle[Any]:
        """Starts an alltoall; synchronize() returns the pair of output and received rows, also without splits."""
        rows, place, integers = split_rows(ask.splits), place_of(ask.splits), collective.adapter.integers
        what = ask.call(Kind.ALLTOALL)
        handle: Handle[Any] = collective.exchange(
            tensor, rows, what, lambda output, received: (output, integers(received).to(place))
        )
        return _guarded(handle, what, [tensor], ask)

    def alltoall(self, tensor: torch.Tensor, ask: Request) -> Any:
        """Sends a block of rows to each rank, and returns the blocks from all ranks, in rank order.

        splits: the number of rows for each rank; None: equal shares of dimension 0. Rows beyond their sum are not sent.
        With splits the result is a pair: the output, and the rows received from each rank (int32, on the device of
        `splits`).
        """
        if _compiling():
            return _traced().alltoall(tensor, ask)
        rows, what = split_rows(ask.splits), ask.call(Kind.ALLTOALL)
        output, received = autograd.alltoall(tensor, rows, what, ask.process_set)
        return output if ask.splits is None else (output, received.to(place_of(ask.splits)))


_on_tensors = _Operations(collective, __name__, noun="tensor", given="torch.Tensor", tensor="torch.Tensor")

allgather = _horovod.public(_on_tensors.allgather, _horovod.gathered_options)
allgather_async = _horovod.public(_on_tensors.allgather_async, _horovod.name_options)
allreduce = _horovod.public(_on_tensors.allreduce, _horovod.compressed_reduction_options)
allreduce_ = _horovod.public(_on_tensors.allreduce_, _horovod.reduction_options)
allreduce_async = _horovod.public(_on_tensors.allreduce_async, _horovod.reduction_options)
allreduce_async_ = _horovod.public(_on_tensors.allreduce_async_, _horovod.reduction_options)
alltoall = _horovod.public(_on_tensors.alltoall, _horovod.split_options)
alltoall_async = _horovod.public(_on_tensors.alltoall_async, _horovod.split_options)
broadcast = _horovod.public(_on_tensors.broadcast, _horovod.sent_options)
broadcast_ = _horovod.public(_on_tensors.broadcast_, _horovod.root_options)
broadcast_async = _horovod.public(_on_tensors.broadcast_async, _horovod.root_options)
broadcast_async_ = _horovod.public(_on_tensors.broadcast_async_, _horovod.root_options)
grouped_allgather = _horovod.public(_on_tensors.grouped_allgather, _horovod.gathered_options)
grouped_allgather_async = _horovod.public(_on_tensors.grouped_allgather_async, _horovod.name_options)
grouped_allreduce = _horovod.public(_on_tensors.grouped_allreduce, _horovod.compressed_reduction_options)
grouped_allreduce_ = _horovod.public(_on_tensors.grouped_allreduce_, _horovod.reduction_options)
grouped_allreduce_async = _horovod.public(_on_tensors.grouped_allreduce_async, _horovod.reduction_options)
grouped_allreduce_async_ = _horovod.public(_on_tensors.grouped_allreduce_async_, _horovod.reduction_options)
grouped_reducescatter = _horovod.public(_on_tensors.grouped_reducescatter, _horovod.shared_options)
grouped_reducescatter_async = _horovod.public(_on_tensors.grouped_reducescatter_async, _horovod.share_options)
reducescatter = _horovod.public(_on_tensors.reducescatter, _horovod.shared_options)
reducescatter_async = _horovod.public(_on_tensors.reducescatter_async, _horovod.share_options)


def join(device: int = -1, process_set: ProcessSet = global_process_set) -> int:
    """Joins: this rank is out of data, and takes part in the others' operations until every member has joined.

    It contributes the neutral element to reductions and no rows to allgathers, and ignores the results. An average
    still divides by the size of the set. Blocks, and returns the world rank that joined last. device: the index of the
    GPU that it uses if it has had no CUDA tensor in the set; by default the current one.
    """
    # Scripts pass their local rank, even if a rank sees only one GPU, or runs on a CPU.
    if device < 0 or device >= torch.cuda.device_count():
        device = torch.cuda.current_device() if torch.cuda.is_initialized() else -1
    return _collectives.join(process_set, device)


def poll(handle: Handle[Any]) -> bool:
    """Returns True once the operation is complete: synchronize() will not block, and its tensors may be changed."""
    complete = checked(handle).poll()
    if complete:
        handle.resolve_if_complete()  # checks for changes that came too early
    return complete


def synchronize(handle: Handle[Any] | Callable[[], Any] | None) -> Any:
    """Waits for the operation and returns its output, or raises its exception.

    It also accepts the result of sparse_allreduce_async.
    """
    if handle is None:
        return None
    return handle() if callable(handle) else checked(handle).wait()


if not have(COMPILE):
    # Without operators for torch.compile, these calls end a graph and are not traced.
    for _each in (
        *(allreduce, allreduce_, grouped_allreduce, grouped_allreduce_),
        *(allgather, grouped_allgather, broadcast, broadcast_, alltoall, reducescatter, grouped_reducescatter),
    ):
        globals()[_each.__name__] = torch.compiler.disable(_each)
