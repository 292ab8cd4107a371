"""Gradients of the operations. Only tensors that require gradients use this module.

They are the gradients of the sum of all ranks' losses, as in torch.distributed.nn.

The operations of the backward pass get their names from those of the forward pass. So autograd may run them in another
order on each rank.
"""

from __future__ import annotations

from collections.abc import Sequence
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
        return True  # torch then raises; otherwise the result would count as a constant
    return torch.is_grad_enabled() and any(
        isinstance(tensor, torch.Tensor) and tensor.requires_grad for tensor in tensors
    )


def _has_tangent(tensor: object) -> bool:
    return isinstance(tensor, torch.Tensor) and forward_ad.unpack_dual(tensor).tangent is not None


def _run(
    function: type[torch.autograd.Function], tensors: Sequence[torch.Tensor], what: Call, process_set: ProcessSet
) -> list[torch.Tensor]:
    return list(function.apply(what, process_set, *tensors))


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, what: Call, process_set: ProcessSet, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.what, ctx.process_set = what, process_set
        return tuple(collective.start(what, tensors, process_set).wait())


class _Allreduce(_Function):
    """Its gradient is the same reduction of the gradients."""

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        if ctx.what.reduce not in (ReduceOp.AVERAGE, ReduceOp.SUM):
            raise NotImplementedError(
                f"allreduce with op={ctx.what.reduce.name.title()} has no gradient; use Sum or Average."
            )
        return (None, None, *_run(_Allreduce, gradients, _backward_call(ctx.what), ctx.process_set))


class _Allgather(torch.autograd.Function):
    """Its gradient is this rank's part of the sum of the gradients."""

    @staticmethod
    def forward(ctx: Any, what: Call, process_set: ProcessSet, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outputs, sizes = collective.allgather_sizes(tensors, what).wait()
        mine = process_set.rank() or 0
        ctx.what, ctx.process_set = what, process_set
        ctx.slices = [(sum(dims[:mine]), dims[mine]) for dims in sizes]
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        what = _backward_call(ctx.what, reduce=ReduceOp.SUM)
        reduced = _run(_Allreduce, gradients, what, ctx.process_set)
        return (None, None, *(part.narrow(0, *where) for part, where in zip(reduced, ctx.slices, strict=True)))


class _Broadcast(_Function):
    """Its gradient is the sum of the gradients on the root, and zero on other ranks."""

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        what = _backward_call(ctx.what, reduce=ReduceOp.SUM, root=0)
        reduced = _run(_Allreduce, gradients, what, ctx.process_set)
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
        if back.shape != ctx.shape:  # rows beyond the splits
            back = torch.cat([back, back.new_zeros((ctx.shape[0] - back.shape[0], *ctx.shape[1:]))])
        return None, None, None, back


class _Reducescatter(_Function):
    """Its gradient is the allgather of the shares' gradients, with the scale of the forward pass."""

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        what: Call = ctx.what
        if what.reduce not in (ReduceOp.AVERAGE, ReduceOp.SUM):
            raise NotImplementedError(
                f"reducescatter with op={what.reduce.name.title()} has no gradient; use Sum or Average."
            )
        factor = what.prescale * what.postscale
        if what.reduce == ReduceOp.AVERAGE:
            factor /= ctx.process_set.size() or 1
        scaled = [gradient * factor for gradient in gradients]
        back = _backward_call(what, kind=Kind.ALLGATHER, reduce=ReduceOp.SUM, prescale=1.0, postscale=1.0)
        return (None, None, *_run(_Allgather, scaled, back, ctx.process_set))


class _Scaled(torch.autograd.Function):
    """Returns the tensor itself, but multiplies its gradient."""

    @staticmethod
    def forward(ctx: Any, factor: float, tensor: torch.Tensor) -> torch.Tensor:
        ctx.factor = factor
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[None, torch.Tensor]:
        return None, gradient * ctx.factor


def scaled(tensors: Sequence[torch.Tensor], factor: float) -> list[torch.Tensor]:
    """Returns the tensors unchanged, but multiplies their gradients by `factor`."""
    return [_Scaled.apply(factor, tensor) if tensor.requires_grad else tensor for tensor in tensors]


_FUNCTIONS: dict[Kind, type[torch.autograd.Function]] = {
    Kind.ALLREDUCE: _Allreduce,
    Kind.ALLGATHER: _Allgather,
    Kind.BROADCAST: _Broadcast,
    Kind.REDUCESCATTER: _Reducescatter,
}


def run(tensors: Sequence[torch.Tensor], what: Call, process_set: ProcessSet) -> list[torch.Tensor]:
    """Blocks, and returns new tensors, with gradients if an input requires one. `what` must give a list."""
    if _wanted(tensors):
        return _run(_FUNCTIONS[what.kind], tensors, what, process_set)
    outputs: list[torch.Tensor] = collective.start(what, tensors, process_set).wait()
    return outputs


def alltoall(
    tensor: torch.Tensor, splits: tuple[int, ...] | None, what: Call, process_set: ProcessSet
) -> tuple[torch.Tensor, torch.Tensor]:
    """Blocks, and returns the output and the received rows. Each gradient goes back to the rank that sent the row."""
    if _wanted([tensor]):
        return _Alltoall.apply(what, process_set, splits, tensor)  # type: ignore[no-any-return]
    output, received = collective.alltoall_sizes(tensor, splits, what).wait()
    return output, collective.adapter.integers(received)
