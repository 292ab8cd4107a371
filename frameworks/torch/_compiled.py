"""The operations inside torch.compile: operators of torch.library, so that a compiled step stays one graph.

ops.py calls this only while a program is traced. An operator takes several times as long as an eager call.

Agreement: an operator blocks at its place in the graph, so the ranks' graphs must have the same operators in the same
order. They do if the ranks run the same program. dynamo records calls in the program's order. The operators are
registered as ordered effects, which later passes neither reorder nor drop nor repeat. Backward graphs follow from the
forward graphs. Ranks need not compile equally often: a name is made when an operator runs, not when it is traced.
Unnamed calls share a counter with eager ones, so a rank may run eagerly what another rank has compiled. Only the
gradients of unnamed calls have their own counter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from distrun import _arguments, _session
from distrun._abi import Kind, ReduceOp
from distrun._collectives import Call, call, grouped_call, reduce_op, reduction, share_of, split_rows
from distrun._horovod import Request
from distrun.process_sets import ProcessSet, find, registered_id
from torch._library.effects import EffectType

from . import autograd
from ._adapter import collective, place_of

Tensors = Sequence[torch.Tensor]
_Named = tuple[str, bool, int]

# As plain ints, which a traced program can contain.
_AVERAGE, _SUM = int(ReduceOp.AVERAGE), int(ReduceOp.SUM)
_NAMED = "str name, bool grouped, int members"
_REDUCED = "str name, bool grouped, int members, int op, float prescale, float postscale"


def _operator(name: str, schema: str) -> Callable[[Callable[..., Any]], Any]:
    return torch.library.custom_op(f"distrun::{name}", mutates_args=(), schema=schema)


def _what(
    kind: Kind, tensors: Tensors, name: str, grouped: bool, members: int, **arguments: Any
) -> tuple[Call, ProcessSet]:
    process_set = find(members)
    if grouped:
        return grouped_call(kind, name or None, process_set, len(tensors), **arguments), process_set
    return call(kind, name or None, process_set, single=False, **arguments), process_set


def _context(kind: Kind, gradients: Tensors, named: _Named, arguments: dict[str, Any], **saved: Any) -> SimpleNamespace:
    """Returns the context for the gradient of the eager operation. `saved` are its attributes beside the call."""
    name, grouped, members = named
    if not name:
        name = f"compiled.{_session.current().number(f'{kind.name}.grad', members)}"
    what, process_set = _what(kind, gradients, name, grouped, members, **arguments)
    return SimpleNamespace(what=what, process_set=process_set, **saved)


@_operator("allreduce", f"(Tensor[] tensors, {_REDUCED}) -> Tensor[]")
def _allreduce(tensors: Tensors, name: str, grouped: bool, members: int, *scaled: Any) -> list[torch.Tensor]:
    return autograd.run(tensors, *_what(Kind.ALLREDUCE, tensors, name, grouped, members, **reduction(*scaled)))


@_operator("allreduce_grad", f"(Tensor[] gradients, {_REDUCED}) -> Tensor[]")
def _allreduce_grad(gradients: Tensors, name: str, grouped: bool, members: int, *scaled: Any) -> list[torch.Tensor]:
    context = _context(Kind.ALLREDUCE, gradients, (name, grouped, members), reduction(*scaled))
    return list(autograd._Allreduce.backward(context, *gradients)[2:])


@_operator("allgather", f"(Tensor[] tensors, {_NAMED}) -> Tensor[]")
def _allgather(tensors: Tensors, name: str, grouped: bool, members: int) -> list[torch.Tensor]:
    """Returns the gathered tensors and, as the last one, the rows of each tensor from each member."""
    what, _ = _what(Kind.ALLGATHER, tensors, name, grouped, members)
    outputs, sizes = collective.allgather_sizes(tensors, what).wait()
    return [*outputs, torch.tensor(sizes, dtype=torch.int64)]


@_operator("allgather_grad", f"(Tensor[] gradients, SymInt[] rows, Tensor sizes, {_NAMED}) -> Tensor[]")
def _allgather_grad(
    gradients: Tensors, rows: Sequence[int], sizes: torch.Tensor, name: str, grouped: bool, members: int
) -> list[torch.Tensor]:
    mine = find(members).rank() or 0
    slices = [(sum(dims[:mine]), dims[mine]) for dims in sizes.tolist()]
    context = _context(Kind.ALLGATHER, gradients, (name, grouped, members), {}, slices=slices)
    return list(autograd._Allgather.backward(context, *gradients)[2:])


@_operator("broadcast", f"(Tensor[] tensors, {_NAMED}, int root) -> Tensor[]")
def _broadcast(tensors: Tensors, name: str, grouped: bool, members: int, root: int) -> list[torch.Tensor]:
    return autograd.run(tensors, *_what(Kind.BROADCAST, tensors, name, grouped, members, root=root))


@_operator("broadcast_grad", f"(Tensor[] gradients, {_NAMED}, int root) -> Tensor[]")
def _broadcast_grad(gradients: Tensors, name: str, grouped: bool, members: int, root: int) -> list[torch.Tensor]:
    context = _context(Kind.BROADCAST, gradients, (name, grouped, members), {"root": root})
    return list(autograd._Broadcast.backward(context, *gradients)[2:])


@_operator("reducescatter", f"(Tensor[] tensors, {_REDUCED}) -> Tensor[]")
def _reducescatter(tensors: Tensors, name: str, grouped: bool, members: int, *scaled: Any) -> list[torch.Tensor]:
    what = _what(Kind.REDUCESCATTER, tensors, name, grouped, members, **reduction(*scaled))
    return autograd.run(tensors, *what)


@_operator("reducescatter_grad", f"(Tensor[] gradients, SymInt[] rows, {_REDUCED}) -> Tensor[]")
def _reducescatter_grad(
    gradients: Tensors, rows: Sequence[int], name: str, grouped: bool, members: int, *scaled: Any
) -> list[torch.Tensor]:
    context = _context(Kind.REDUCESCATTER, gradients, (name, grouped, members), reduction(*scaled))
    return list(autograd._Reducescatter.backward(context, *gradients)[2:])


@_operator("alltoall", f"(Tensor tensor, Tensor? splits, {_NAMED}) -> Tensor[]")
def _alltoall(
    tensor: torch.Tensor, splits: torch.Tensor | None, name: str, grouped: bool, members: int
) -> list[torch.Tensor]:
    """Returns the received rows, and their number from each member. A list: inductor loses a tuple's symbolic sizes."""
    what, _ = _what(Kind.ALLTOALL, [tensor], name, grouped, members)
    output, received = collective.alltoall_sizes(tensor, split_rows(splits), what).wait()
    return [output, collective.adapter.integers(received).to(place_of(splits))]


@_operator("alltoall_grad", f"(Tensor gradient, SymInt rows, Tensor received, {_NAMED}) -> Tensor")
def _alltoall_grad(
    gradient: torch.Tensor, rows: int, received: torch.Tensor, name: str, grouped: bool, members: int
) -> torch.Tensor:
    saved = {"received": tuple(received.tolist()), "shape": (rows, *gradient.shape[1:])}
    context = _context(Kind.ALLTOALL, [gradient], (name, grouped, members), {}, **saved)
    result: torch.Tensor = autograd._Alltoall.backward(context, gradient, received)[3]
    return result


def _like(tensors: Tensors, *_: Any) -> list[torch.Tensor]:
    return [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in tensors]


def _with_rows(tensors: Tensors, rows: Sequence[Any], *_: Any) -> list[torch.Tensor]:
    return [tensor.new_empty((count, *tensor.shape[1:])) for tensor, count in zip(tensors, rows, strict=True)]


def _gathered(tensors: Tensors, name: str, grouped: bool, members: int) -> list[torch.Tensor]:
    # The others' numbers of rows are known only when the graph runs.
    context = torch.library.get_ctx()
    outputs = _with_rows(tensors, [context.new_dynamic_size() for _ in tensors])
    return [*outputs, torch.empty((len(tensors), find(members).size() or 1), dtype=torch.int64)]


def _exchanged(
    tensor: torch.Tensor, splits: torch.Tensor | None, name: str, grouped: bool, members: int
) -> list[torch.Tensor]:
    rows = torch.library.get_ctx().new_dynamic_size()
    received = torch.empty(find(members).size() or 1, dtype=torch.int32, device=place_of(splits))
    return [*_with_rows([tensor], [rows]), received]


def _shares(tensors: Tensors, name: str, grouped: bool, members: int, *_: Any) -> list[torch.Tensor]:
    process_set = find(members)
    return _with_rows(tensors, [share_of(tensor.shape[0], process_set) for tensor in tensors])


_allreduce.register_fake(_like)
_allreduce_grad.register_fake(_like)
_broadcast.register_fake(_like)
_broadcast_grad.register_fake(_like)
_allgather.register_fake(_gathered)
_allgather_grad.register_fake(_with_rows)
_reducescatter.register_fake(_shares)
_reducescatter_grad.register_fake(_with_rows)
_alltoall.register_fake(_exchanged)
_alltoall_grad.register_fake(lambda gradient, rows, *_: _with_rows([gradient], [rows])[0])


def _differentiable(operator: Any, gradient: Any, *, rows: bool = False, sizes: bool = False) -> None:
    """Registers the gradient of lists of tensors. `gradient` also gets the inputs' rows (`rows`) and the last output
    (`sizes`)."""

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.rest = inputs[1:]
        ctx.rows = ([tensor.shape[0] for tensor in inputs[0]],) if rows else ()
        ctx.save_for_backward(*output[-1:] if sizes else ())

    def backward(ctx: Any, gradients: list[torch.Tensor]) -> tuple[Any, ...]:
        real = gradients[:-1] if sizes else gradients
        return gradient(real, *ctx.rows, *ctx.saved_tensors, *ctx.rest), *[None] * len(ctx.rest)

    operator.register_autograd(backward, setup_context=setup_context)


def _keep_rows(ctx: Any, inputs: tuple[Any, ...], output: list[torch.Tensor]) -> None:
    ctx.rows, ctx.named = inputs[0].shape[0], inputs[2:]
    ctx.save_for_backward(output[1])


def _send_back(ctx: Any, gradients: list[torch.Tensor]) -> tuple[Any, ...]:
    return _alltoall_grad(gradients[0], ctx.rows, *ctx.saved_tensors, *ctx.named), None, None, None, None


_differentiable(_allreduce, _allreduce_grad)
_differentiable(_broadcast, _broadcast_grad)
_differentiable(_allgather, _allgather_grad, rows=True, sizes=True)
_differentiable(_reducescatter, _reducescatter_grad, rows=True)
_alltoall.register_autograd(_send_back, setup_context=_keep_rows)

# Without an effect, passes over a graph may move, merge or drop calls. One rank would then wait for a call that another
# rank has dropped.
for _each in (_allreduce, _allgather, _broadcast, _reducescatter, _alltoall):
    _each.register_effect(EffectType.ORDERED)
for _each in (_allreduce_grad, _allgather_grad, _broadcast_grad, _reducescatter_grad, _alltoall_grad):
    _each.register_effect(EffectType.ORDERED)


def _op_number(op: int | None, average: bool | None) -> int:
    """Like reduce_op(), but without its warning of `average`, which would end the graph."""
    if op is None and isinstance(average, bool):
        return _AVERAGE if average else _SUM
    return int(reduce_op(op, average))


def _named(name: Any) -> str:
    """Returns the name, or "" for None, which operators do not accept. A wrong name ends the graph, and then the
    call."""
    return name if isinstance(name, str) else _arguments.name(name) or ""


def _factors(prescale: Any, postscale: Any) -> tuple[float, float]:
    for argument, value in (("prescale_factor", prescale), ("postscale_factor", postscale)):
        if isinstance(value, str):
            raise TypeError(f"{argument} must be one number, not {value!r}.")
    return float(prescale), float(postscale)


def run(kind: Kind, tensors: Tensors, ask: Request, grouped: bool) -> list[torch.Tensor]:
    """Runs an operation and returns one new tensor for each tensor."""
    named = _named(ask.name), grouped, registered_id(ask.process_set)
    if kind == Kind.ALLGATHER:
        return _allgather(tensors, *named)[:-1]
    if kind == Kind.BROADCAST:
        return _broadcast(tensors, *named, ask.root)
    operator = _allreduce if kind == Kind.ALLREDUCE else _reducescatter
    return operator(tensors, *named, _op_number(ask.op, ask.average), *_factors(ask.prescale, ask.postscale))


def alltoall(tensor: torch.Tensor, ask: Request) -> Any:
    """Returns the output; with splits a pair of the output and the received rows."""
    rows = splits = ask.splits
    if splits is not None and not isinstance(splits, torch.Tensor):
        rows = torch.tensor(splits, device="cpu")  # no dtype, which would truncate: the operator refuses fractions
    output, received = _alltoall(tensor, rows, _named(ask.name), False, registered_id(ask.process_set))
    return output if splits is None else (output, received)
