"""The operations on NumPy arrays, under Horovod's names.

Array-likes (lists, numbers) are accepted where a new array is returned; the in-place forms need arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distrun import _collectives
from distrun._abi import Kind
from distrun._collectives import call, grouped_call, reduction, split_rows
from distrun._operations import Handle, checked
from distrun.process_sets import ProcessSet, global_process_set

from ._adapter import Array, collective, to_array
from .compression import Compression, Compressor


def allreduce_async(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[Array]:
    """Starts a reduction over the ranks into a new array; synchronize() gives it."""
    what = call(Kind.ALLREDUCE, name, process_set, **reduction(op, prescale_factor, postscale_factor, average))
    return collective.same_size([to_array(tensor)], what, in_place=False)


def allreduce_async_(
    tensor: Array,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[Array]:
    """Like allreduce_async, but overwrites the array."""
    what = call(Kind.ALLREDUCE, name, process_set, **reduction(op, prescale_factor, postscale_factor, average))
    return collective.same_size([tensor], what, in_place=True)


def allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """The reduction (default: the average) of the arrays of all ranks, as a new array."""
    small, context = compression.compress(to_array(tensor))
    handle = allreduce_async(small, average, name, op, prescale_factor, postscale_factor, process_set)
    return compression.decompress(handle.wait(), context)


def allreduce_(
    tensor: Array,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """Like allreduce, but overwrites the array."""
    return allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, process_set).wait()


def grouped_allreduce_async(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[list[Array]]:
    """Starts the reduction of several arrays, which run all or none."""
    what = grouped_call(
        Kind.ALLREDUCE, name, process_set, len(tensors), **reduction(op, prescale_factor, postscale_factor, average)
    )
    return collective.same_size([to_array(tensor) for tensor in tensors], what, in_place=False)


def grouped_allreduce_async_(
    tensors: Sequence[Array],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle[list[Array]]:
    """Like grouped_allreduce_async, but overwrites the arrays."""
    what = grouped_call(
        Kind.ALLREDUCE, name, process_set, len(tensors), **reduction(op, prescale_factor, postscale_factor, average)
    )
    return collective.same_size(list(tensors), what, in_place=True)


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Array]:
    """The reductions of several arrays, which run all or none."""
    small = [compression.compress(to_array(tensor)) for tensor in tensors]
    arrays = [array for array, _ in small]
    handle = grouped_allreduce_async(arrays, average, name, op, prescale_factor, postscale_factor, process_set)
    return [compression.decompress(array, ctx) for array, (_, ctx) in zip(handle.wait(), small, strict=True)]


def grouped_allreduce_(
    tensors: Sequence[Array],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Array]:
    """Like grouped_allreduce, but overwrites the arrays."""
    return grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor, process_set).wait()


def allgather_async(
    tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Array]:
    """Starts an allgather; synchronize() gives the new array."""
    return collective.allgather([to_array(tensor)], call(Kind.ALLGATHER, name, process_set))


def allgather(tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Array:
    """The arrays of all ranks one after the other along dimension 0, whose size may differ."""
    return allgather_async(tensor, name, process_set).wait()


def grouped_allgather_async(
    tensors: Sequence[Any], name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[list[Array]]:
    """Starts the allgather of several arrays, which run all or none."""
    what = grouped_call(Kind.ALLGATHER, name, process_set, len(tensors))
    return collective.allgather([to_array(tensor) for tensor in tensors], what)


def grouped_allgather(
    tensors: Sequence[Any], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Array]:
    """The allgathers of several arrays, which run all or none."""
    return grouped_allgather_async(tensors, name, process_set).wait()


def broadcast_async(
    tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Array]:
    """Starts a broadcast into a new array."""
    what = call(Kind.BROADCAST, name, process_set, root=root_rank)
    return collective.same_size([to_array(tensor)], what, in_place=False)


def broadcast_async_(
    tensor: Array, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Array]:
    """Like broadcast_async, but overwrites the array."""
    what = call(Kind.BROADCAST, name, process_set, root=root_rank)
    return collective.same_size([tensor], what, in_place=True)


def broadcast(
    tensor: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Array:
    """The array of world rank `root_rank`, as a new array of the same shape and dtype on every member."""
    return broadcast_async(tensor, root_rank, name, process_set).wait()


def broadcast_(
    tensor: Array, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Array:
    """Like broadcast, but overwrites the array."""
    return broadcast_async_(tensor, root_rank, name, process_set).wait()


def alltoall_async(
    tensor: Any, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Handle[Any]:
    """Starts an alltoall; synchronize() gives what alltoall returns."""
    return collective.alltoall(to_array(tensor), split_rows(splits), call(Kind.ALLTOALL, name, process_set))


def alltoall(
    tensor: Any, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Sends a block of rows to each rank and gives the blocks of all ranks, in rank order.

    splits: rows for each rank; None: equal shares of dimension 0. Rows beyond their sum go to nobody. With splits the
    result is the pair of the output and the rows received from each rank (int32, or int64 from 2^31 rows on).
    """
    return alltoall_async(tensor, splits, name, process_set).wait()


def reducescatter_async(
    tensor: Any,
    name: str | None = None,
    op: int | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[Array]:
    """Starts a reducescatter; synchronize() gives this rank's share as a new array."""
    what = call(Kind.REDUCESCATTER, name, process_set, **reduction(op, prescale_factor, postscale_factor))
    return collective.reducescatter([to_array(tensor)], what, process_set)


def reducescatter(
    tensor: Any,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Array:
    """Reduces the arrays of all ranks (default: the average) and gives each rank its share of the rows.

    Shares are equal, and one row longer on the first ranks where the rows cannot be shared equally.
    """
    small, context = compression.compress(to_array(tensor))
    handle = reducescatter_async(small, name, op, process_set, prescale_factor, postscale_factor)
    return compression.decompress(handle.wait(), context)


def grouped_reducescatter_async(
    tensors: Sequence[Any],
    name: str | None = None,
    op: int | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[list[Array]]:
    """Starts the reducescatter of several arrays, which run all or none."""
    what = grouped_call(
        Kind.REDUCESCATTER, name, process_set, len(tensors), **reduction(op, prescale_factor, postscale_factor)
    )
    return collective.reducescatter([to_array(tensor) for tensor in tensors], what, process_set)


def grouped_reducescatter(
    tensors: Sequence[Any],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Array]:
    """The reducescatters of several arrays, which run all or none."""
    small = [compression.compress(to_array(tensor)) for tensor in tensors]
    arrays = [array for array, _ in small]
    handle = grouped_reducescatter_async(arrays, name, op, process_set, prescale_factor, postscale_factor)
    return [compression.decompress(array, ctx) for array, (_, ctx) in zip(handle.wait(), small, strict=True)]


def join(device: int = -1, process_set: ProcessSet = global_process_set) -> int:
    """For a rank that has run out of data: takes part in what the others do until they have too.

    It contributes the neutral element to reductions and no rows to allgathers, and drops what they give. An average
    still divides by the size of the set. Returns the rank that joined last. `device` is Horovod's and has no effect.
    """
    del device
    return _collectives.join(process_set)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when every member has called it."""
    _collectives.barrier(process_set)


def poll(handle: Handle[Any]) -> bool:
    """True once the operation is complete: synchronize() will not block."""
    return checked(handle).poll()


def synchronize(handle: Handle[Any]) -> Any:
    """Waits for the operation and gives its output, or raises its exception."""
    return checked(handle).wait()
