"""The operations on torch tensors, under Horovod's names. The blocking forms that return new tensors have gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from distrun import _collectives
from distrun._abi import Kind
from distrun._collectives import call, grouped_call, reduction, split_rows
from distrun._operations import Handle, checked
from distrun.process_sets import ProcessSet, global_process_set

from . import autograd
from ._adapter import collective, place_of
from ._oldest import COMPILE, have
from .compression import Compression, Compressor

_compiling = torch.compiler.is_compiling


def _traced() -> Any:
    """What takes the place of a call inside torch.compile; not loaded by programs that run eagerly."""
    from . import _compiled

    return _compiled


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[torch.Tensor]:
    """Starts a reduction over the ranks into a new tensor; synchronize() gives it."""
    what = call(Kind.ALLREDUCE, name, process_set, **reduction(op, prescale_factor, postscale_factor, average))
    return collective.same_size([tensor], what, in_place=False)


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[torch.Tensor]:
    """Like allreduce_async, but overwrites the tensor."""
    what = call(Kind.ALLREDUCE, name, process_set, **reduction(op, prescale_factor, postscale_factor, average))
    return collective.same_size([tensor], what, in_place=True)


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """The reduction (default: the average) of the tensors of all ranks, as a new tensor."""
    small, context = compression.compress(tensor)
    if _compiling():
        scales = (average, prescale_factor, postscale_factor)
        output = _traced().allreduce([small], name, False, process_set, op, *scales)[0]
    else:
        what = call(Kind.ALLREDUCE, name, process_set, **reduction(op, prescale_factor, postscale_factor, average))
        output = autograd.allreduce([small], what, process_set)[0]
    return compression.decompress(output, context)


def _overwrite(
    tensors: Sequence[torch.Tensor], operation: Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]
) -> None:
    """In a compiled program, of which autograd sees nothing, as it sees nothing of an eager operation in place."""
    with torch.no_grad():
        given = [tensor.detach() for tensor in tensors]
        for tensor, output in zip(given, operation(given), strict=True):
            tensor.copy_(output)


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Like allreduce, but overwrites the tensor."""
    if _compiling():
        scales = (average, prescale_factor, postscale_factor)
        _overwrite([tensor], lambda given: _traced().allreduce(given, name, False, process_set, op, *scales))
        return tensor
    return allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, process_set).wait()


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[list[torch.Tensor]]:
    """Starts the reduction of several tensors, which run all or none."""
    what = grouped_call(
        Kind.ALLREDUCE, name, process_set, len(tensors), **reduction(op, prescale_factor, postscale_factor, average)
    )
    return collective.same_size(list(tensors), what, in_place=False)


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[list[torch.Tensor]]:
    """Like grouped_allreduce_async, but overwrites the tensors."""
    what = grouped_call(
        Kind.ALLREDUCE, name, process_set, len(tensors), **reduction(op, prescale_factor, postscale_factor, average)
    )
    return collective.same_size(list(tensors), what, in_place=True)


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """The reductions of several tensors, which run all or none."""
    small = [compression.compress(tensor) for tensor in tensors]
    sent = [tensor for tensor, _ in small]
    if _compiling():
        scales = (average, prescale_factor, postscale_factor)
        outputs = _traced().allreduce(sent, name, True, process_set, op, *scales)
    else:
        what = grouped_call(
            Kind.ALLREDUCE, name, process_set, len(tensors), **reduction(op, prescale_factor, postscale_factor, average)
        )
        outputs = autograd.allreduce(sent, what, process_set)
    return [compression.decompress(tensor, ctx) for tensor, (_, ctx) in zip(outputs, small, strict=True)]


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Like grouped_allreduce, but overwrites the tensors."""
    if _compiling():
        scales = (average, prescale_factor, postscale_factor)
        _overwrite(tensors, lambda given: _traced().allreduce(given, name, True, process_set, op, *scales))
        return list(tensors)
    return grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor, process_set).wait()


def allgather_async(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[torch.Tensor]:
    """Starts an allgather; synchronize() gives the new tensor."""
    return collective.allgather([tensor], call(Kind.ALLGATHER, name, process_set))


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """The tensors of all ranks one after the other along dimension 0, whose size may differ."""
    if _compiling():
        return _traced().allgather([tensor], name, False, process_set)[0]
    return autograd.allgather([tensor], call(Kind.ALLGATHER, name, process_set), process_set)[0]


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[list[torch.Tensor]]:
    """Starts the allgather of several tensors, which run all or none."""
    what = grouped_call(Kind.ALLGATHER, name, process_set, len(tensors))
    return collective.allgather(list(tensors), what)


def grouped_allgather(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[torch.Tensor]:
    """The allgathers of several tensors, which run all or none."""
    if _compiling():
        return _traced().allgather(list(tensors), name, True, process_set)
    what = grouped_call(Kind.ALLGATHER, name, process_set, len(tensors))
    return autograd.allgather(list(tensors), what, process_set)


def broadcast_async(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[torch.Tensor]:
    """Starts a broadcast into a new tensor."""
    what = call(Kind.BROADCAST, name, process_set, root=root_rank)
    return collective.same_size([tensor], what, in_place=False)


def broadcast_async_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[torch.Tensor]:
    """Like broadcast_async, but overwrites the tensor."""
    what = call(Kind.BROADCAST, name, process_set, root=root_rank)
    return collective.same_size([tensor], what, in_place=True)


def broadcast(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """The tensor of world rank `root_rank`, as a new tensor of the same shape and dtype on every member."""
    if _compiling():
        return _traced().broadcast(tensor, root_rank, name, process_set)
    what = call(Kind.BROADCAST, name, process_set, root=root_rank)
    return autograd.broadcast([tensor], what, process_set)[0]


def broadcast_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Like broadcast, but overwrites the tensor."""
    if _compiling():
        _overwrite([tensor], lambda given: [_traced().broadcast(*given, root_rank, name, process_set)])
        return tensor
    return broadcast_async_(tensor, root_rank, name, process_set).wait()


def alltoall_async(
    tensor: torch.Tensor, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[tuple[torch.Tensor, torch.Tensor]]:
    """Starts an alltoall; synchronize() gives the output and the received rows, without splits too, as in Horovod."""
    rows, place, integers = split_rows(splits), place_of(splits), collective.adapter.integers
    what = call(Kind.ALLTOALL, name, process_set)
    return collective.exchange(tensor, rows, what, lambda output, received: (output, integers(received).to(place)))


def alltoall(
    tensor: torch.Tensor, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Sends a block of rows to each rank and gives the blocks of all ranks, in rank order.

    splits: rows for each rank; None: equal shares of dimension 0. Rows beyond their sum go to nobody. With splits the
    result is the pair of the output and the rows received from each rank (int32, on the device of `splits`).
    """
    if _compiling():
        return _traced().alltoall(tensor, splits, name, process_set)
    rows, what = split_rows(splits), call(Kind.ALLTOALL, name, process_set)
    output, received = autograd.alltoall(tensor, rows, what, process_set)
    return output if splits is None else (output, received.to(place_of(splits)))


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: int | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[torch.Tensor]:
    """Starts a reducescatter; synchronize() gives this rank's share as a new tensor."""
    what = call(Kind.REDUCESCATTER, name, process_set, **reduction(op, prescale_factor, postscale_factor))
    return collective.reducescatter([tensor], what, process_set)


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Reduces the tensors of all ranks (default: the average) and gives each rank its share of the rows.

    Shares are equal, and one row longer on the first ranks where the rows cannot be shared equally.
    """
    small, context = compression.compress(tensor)
    if _compiling():
        scales = (prescale_factor, postscale_factor)
        output = _traced().reducescatter([small], name, False, process_set, op, *scales)[0]
    else:
        what = call(Kind.REDUCESCATTER, name, process_set, **reduction(op, prescale_factor, postscale_factor))
        output = autograd.reducescatter([small], what, process_set)[0]
    return compression.decompress(output, context)


def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    op: int | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[list[torch.Tensor]]:
    """Starts the reducescatter of several tensors, which run all or none."""
    what = grouped_call(
        Kind.REDUCESCATTER, name, process_set, len(tensors), **reduction(op, prescale_factor, postscale_factor)
    )
    return collective.reducescatter(list(tensors), what, process_set)


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """The reducescatters of several tensors, which run all or none."""
    small = [compression.compress(tensor) for tensor in tensors]
    sent = [tensor for tensor, _ in small]
    if _compiling():
        scales = (prescale_factor, postscale_factor)
        outputs = _traced().reducescatter(sent, name, True, process_set, op, *scales)
    else:
        what = grouped_call(
            Kind.REDUCESCATTER,
            name,
            process_set,
            len(tensors),
            **reduction(op, prescale_factor, postscale_factor),
        )
        outputs = autograd.reducescatter(sent, what, process_set)
    return [compression.decompress(tensor, ctx) for tensor, (_, ctx) in zip(outputs, small, strict=True)]


def join(device: int = -1, process_set: ProcessSet = global_process_set) -> int:
    """For a rank that has run out of data: takes part in what the others do until they have too.

    It contributes the neutral element to reductions and no rows to allgathers, and drops what they give. An average
    still divides by the size of the set. Returns the rank that joined last. device: the number of the GPU on which it
    takes part, if it has had no CUDA tensor in the set itself; by default the current one.
    """
    # Scripts pass their local rank, where a rank sees one GPU alone and on a CPU too.
    if device < 0 or device >= torch.cuda.device_count():
        device = torch.cuda.current_device() if torch.cuda.is_initialized() else -1
    return _collectives.join(process_set, device)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when every member has called it."""
    _collectives.barrier(process_set)


def poll(handle: Handle[Any]) -> bool:
    """True once the operation is complete: synchronize() will not block."""
    return checked(handle).poll()


def synchronize(handle: Handle[Any] | Callable[[], Any] | None) -> Any:
    """Waits for the operation and gives its output, or raises its exception.

    What sparse_allreduce_async returns is accepted too.
    """
    if handle is None:
        return None
    return handle() if callable(handle) else checked(handle).wait()


if not have(COMPILE):
    # Without operators for torch.compile they end a graph, and nothing of them is traced.
    for _each in (
        *(allreduce, allreduce_, grouped_allreduce, grouped_allreduce_),
        *(allgather, grouped_allgather, broadcast, broadcast_, alltoall, reducescatter, grouped_reducescatter),
    ):
        globals()[_each.__name__] = torch.compiler.disable(_each)
