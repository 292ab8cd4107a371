"""Gradients of the operations. Only tensors that ask for gradients come this way.

The operations of the backward pass are named after those of the forward pass, so that the order in which autograd runs
them need not be the same on all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from distrun import _session
from distrun._abi import Kind, ReduceOp
from distrun._collectives import Call
from distrun.process_sets import ProcessSet
from torch.autograd import forward_ad

from ._adapter import collective


def _backward_call(what: Call, kind: Kind = Kind.ALLREDUCE, **changes: Any) -> Call:
    return what._replace(kind=kind, names=[f"{name}.grad" for name in what.names], **changes)


def _wanted(tensors: Sequence[torch.Tensor]) -> bool:
    if forward_ad._current_level >= 0 and any(map(_has_tangent, tensors)):
        return True  # torch refuses it there; else the result would count as a constant
    return torch.is_grad_enabled() and any(
        isinstance(tensor, torch.Tensor) and tensor.requires_grad for tensor in tensors
    )


def _has_tangent(tensor: object) -> bool:
    return isinstance(tensor, torch.Tensor) and forward_ad.unpack_dual(tensor).tangent is not None


def _run(
    function: Callable[..., tuple[torch.Tensor, ...]],
    tensors: Sequence[torch.Tensor],
    what: Call,
    process_set: ProcessSet,
) -> list[torch.Tensor]:
    return list(function(what._replace(single=False), process_set, *tensors))


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, what: Call, process_set: ProcessSet, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.what, ctx.process_set = what, process_set
        return tuple(collective.same_size(tensors, what, in_place=False).wait())

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        if ctx.what.reduce not in (ReduceOp.AVERAGE, ReduceOp.SUM):
            raise NotImplementedError(
                f"allreduce with op={ctx.what.reduce.name.title()} has no gradient; use Sum or Average."
            )
        return (None, None, *_run(_Allreduce.apply, gradients, _backward_call(ctx.what), ctx.process_set))


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, what: Call, process_set: ProcessSet, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outputs, sizes = collective.allgather_sizes(tensors, what).wait()
        mine = process_set.rank() or 0
        ctx.what, ctx.process_set = what, process_set
        ctx.slices = [(sum(dims[:mine]), dims[mine]) for dims in sizes]
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        what = _backward_call(ctx.what, reduce=ReduceOp.AVERAGE)
        reduced = _run(_Allreduce.apply, gradients, what, ctx.process_set)
        return (None, None, *(part.narrow(0, *where) for part, where in zip(reduced, ctx.slices, strict=True)))


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, what: Call, process_set: ProcessSet, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.what, ctx.process_set = what, process_set
        return tuple(collective.same_size(tensors, what, in_place=False).wait())

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        what = _backward_call(ctx.what, reduce=ReduceOp.AVERAGE, root=0)
        reduced = _run(_Allreduce.apply, gradients, what, ctx.process_set)
        if _session.world().rank != ctx.what.root:
            reduced = [gradient * 0 for gradient in reduced]
        return (None, None, *reduced)


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, what: Call, process_set: ProcessSet, splits: tuple[int, ...] | None, tensor: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        output, received = collective.alltoall_sizes(tensor, splits, what).wait()
        sizes = collective.adapter.integers(received)
        ctx.what, ctx.process_set, ctx.received, ctx.shape = what, process_set, received, tensor.shape
        ctx.mark_non_differentiable(sizes)
        return output, sizes

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, _: torch.Tensor) -> tuple[Any, ...]:
        what = _backward_call(ctx.what, kind=Kind.ALLTOALL)
        back, _ = _Alltoall.apply(what, ctx.process_set, ctx.received, gradient)
        if back.shape != ctx.shape:  # rows that went to nobody
            back = torch.cat([back, back.new_zeros((ctx.shape[0] - back.shape[0], *ctx.shape[1:]))])
        return None, None, None, back


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, what: Call, process_set: ProcessSet, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.what, ctx.process_set = what, process_set
        return tuple(collective.reducescatter(tensors, what, process_set).wait())

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        what: Call = ctx.what
        if what.reduce not in (ReduceOp.AVERAGE, ReduceOp.SUM):
            raise NotImplementedError(
                f"reducescatter with op={what.reduce.name.title()} has no gradient; use Sum or Average."
            )
        # As Horovod does, and as the gradient of an allreduce that is cut into shares afterwards.
        factor = what.prescale * what.postscale
        if what.reduce == ReduceOp.SUM:
            factor *= ctx.process_set.size() or 1
        scaled = [gradient * factor for gradient in gradients]
        back = _backward_call(what, kind=Kind.ALLGATHER, reduce=ReduceOp.SUM, prescale=1.0, postscale=1.0)
        return (None, None, *_run(_Allgather.apply, scaled, back, ctx.process_set))


def allreduce(tensors: Sequence[torch.Tensor], what: Call, process_set: ProcessSet) -> list[torch.Tensor]:
    """Blocking; the gradient is the same reduction of the gradients."""
    if _wanted(tensors):
        return _run(_Allreduce.apply, tensors, what, process_set)
    outputs: list[torch.Tensor] = collective.same_size(tensors, what._replace(single=False), in_place=False).wait()
    return outputs


def allgather(tensors: Sequence[torch.Tensor], what: Call, process_set: ProcessSet) -> list[torch.Tensor]:
    """Blocking; the gradient is this rank's part of the averaged gradients."""
    if _wanted(tensors):
        return _run(_Allgather.apply, tensors, what, process_set)
    outputs: list[torch.Tensor] = collective.allgather(tensors, what._replace(single=False)).wait()
    return outputs


def broadcast(tensors: Sequence[torch.Tensor], what: Call, process_set: ProcessSet) -> list[torch.Tensor]:
    """Blocking; the gradient is the averaged gradients on the root, and zero elsewhere."""
    if _wanted(tensors):
        return _run(_Broadcast.apply, tensors, what, process_set)
    outputs: list[torch.Tensor] = collective.same_size(tensors, what._replace(single=False), in_place=False).wait()
    return outputs


def alltoall(
    tensor: torch.Tensor, splits: tuple[int, ...] | None, what: Call, process_set: ProcessSet
) -> tuple[torch.Tensor, torch.Tensor]:
    """Blocking; the output and the received rows. The gradient goes back the way the rows came."""
    if _wanted([tensor]):
        return _Alltoall.apply(what, process_set, splits, tensor)  # type: ignore[no-any-return]
    output, received = collective.alltoall_sizes(tensor, splits, what).wait()
    return output, collective.adapter.integers(received)


def reducescatter(tensors: Sequence[torch.Tensor], what: Call, process_set: ProcessSet) -> list[torch.Tensor]:
    """Blocking; the gradient is the allgather of the shares' gradients, times the set's size for a sum."""
    if _wanted(tensors):
        return _run(_Reducescatter.apply, tensors, what, process_set)
    outputs: list[torch.Tensor] = collective.reducescatter(tensors, what._replace(single=False), process_set).wait()
    return outputs
