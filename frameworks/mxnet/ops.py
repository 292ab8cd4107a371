"""The operations on MXNet's arrays, under Horovod's names. `priority` is Horovod's and has no effect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mxnet as mx
from distrun._abi import Kind
from distrun._collectives import call, grouped_call, reduction, split_rows
from distrun._operations import Handle
from distrun.process_sets import ProcessSet, global_process_set
from mxnet.ndarray import NDArray

from ._adapter import Array, collective, to_array


def allreduce_async(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> Handle[Array]:
    """Starts a reduction over the ranks into a new array; synchronize() gives it."""
    del priority
    what = call(Kind.ALLREDUCE, name, process_set, **reduction(op, prescale_factor, postscale_factor, average))
    return collective.same_size([to_array(tensor)], what, in_place=False)


def allreduce_async_(
    tensor: Array,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> Handle[Array]:
    """Like allreduce_async, but overwrites the array."""
    del priority
    what = call(Kind.ALLREDUCE, name, process_set, **reduction(op, prescale_factor, postscale_factor, average))
    return collective.same_size([tensor], what, in_place=True)


def allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> Array:
    """The reduction (default: the average) of the arrays of all ranks, as a new array."""
    what = (average, name, priority, prescale_factor, postscale_factor, process_set, op)
    return allreduce_async(tensor, *what).wait()


def allreduce_(
    tensor: Array,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> Array:
    """Like allreduce, but overwrites the array."""
    what = (average, name, priority, prescale_factor, postscale_factor, process_set, op)
    return allreduce_async_(tensor, *what).wait()


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> list[Array]:
    """The reductions of several arrays, which run all or none."""
    del priority
    factors = reduction(op, prescale_factor, postscale_factor, average)
    what = grouped_call(Kind.ALLREDUCE, name, process_set, len(tensors), **factors)
    found: list[Array] = collective.same_size([to_array(one) for one in tensors], what, in_place=False).wait()
    return found


def grouped_allreduce_(
    tensors: Sequence[Array],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> list[Array]:
    """Like grouped_allreduce, but overwrites the arrays."""
    del priority
    factors = reduction(op, prescale_factor, postscale_factor, average)
    what = grouped_call(Kind.ALLREDUCE, name, process_set, len(tensors), **factors)
    found: list[Array] = collective.same_size(list(tensors), what, in_place=True).wait()
    return found


def allgather_async(
    tensor: Any, name: str | None = None, priority: int = 0, process_set: ProcessSet = global_process_set
) -> Handle[Array]:
    """Starts an allgather; synchronize() gives the new array."""
    del priority
    return collective.allgather([to_array(tensor)], call(Kind.ALLGATHER, name, process_set))


def allgather(
    tensor: Any, name: str | None = None, priority: int = 0, process_set: ProcessSet = global_process_set
) -> Array:
    """The arrays of all ranks one after the other along dimension 0, whose size may differ."""
    return allgather_async(tensor, name, priority, process_set).wait()


def grouped_allgather(
    tensors: Sequence[Any], name: str | None = None, priority: int = 0, process_set: ProcessSet = global_process_set
) -> list[Array]:
    """The allgathers of several arrays, which run all or none."""
    del priority
    what = grouped_call(Kind.ALLGATHER, name, process_set, len(tensors))
    found: list[Array] = collective.allgather([to_array(one) for one in tensors], what).wait()
    return found


def broadcast_async(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Handle[Array]:
    """Starts a broadcast into a new array."""
    del priority
    what = call(Kind.BROADCAST, name, process_set, root=root_rank)
    return collective.same_size([to_array(tensor)], what, in_place=False)


def broadcast_async_(
    tensor: Array,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Handle[Array]:
    """Like broadcast_async, but overwrites the array."""
    del priority
    return collective.same_size([tensor], call(Kind.BROADCAST, name, process_set, root=root_rank), in_place=True)


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """The array of world rank `root_rank`, as a new array of the same shape and dtype on every member."""
    return broadcast_async(tensor, root_rank, name, priority, process_set).wait()


def broadcast_(
    tensor: Array,
    root_rank: int,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Array:
    """Like broadcast, but overwrites the array."""
    return broadcast_async_(tensor, root_rank, name, priority, process_set).wait()


def alltoall_async(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Handle[Any]:
    """Starts an alltoall; synchronize() gives what alltoall returns."""
    del priority
    rows = split_rows(splits.asnumpy() if isinstance(splits, NDArray) else splits)
    return collective.alltoall(to_array(tensor), rows, call(Kind.ALLTOALL, name, process_set))


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends a block of rows to each rank and gives the blocks of all ranks, in rank order.

    splits: rows for each rank; None: equal shares of dimension 0. With splits the result is the pair of the output and
    the rows received from each rank (int32, or int64 from 2^31 rows on).
    """
    return alltoall_async(tensor, splits, name, priority, process_set).wait()


def _shareable(tensors: Sequence[Any], process_set: ProcessSet) -> list[Array]:
    """As arrays, of which each rank's share has a row, or MXNet has arrays without rows. All ranks find the same, so
    none waits for one that has no array to take its share with."""
    arrays = [to_array(one) for one in tensors]
    members = process_set.size() or 1
    for one in arrays:
        if one.shape and one.shape[0] < members and not mx.util.is_np_shape():
            raise ValueError(
                f"{one.shape[0]} rows are too few for {members} ranks: some would get an array without rows, which "
                "MXNet has only after mxnet.npx.set_np()."
            )
    return arrays


def reducescatter_async(
    tensor: Any,
    op: int | None = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[Array]:
    """Starts a reducescatter; synchronize() gives this rank's share as a new array."""
    del priority
    what = call(Kind.REDUCESCATTER, name, process_set, **reduction(op, prescale_factor, postscale_factor))
    return collective.reducescatter(_shareable([tensor], process_set), what, process_set)


def reducescatter(
    tensor: Any,
    op: int | None = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Array:
    """Reduces the arrays of all ranks (default: the average) and gives each rank its share of the rows."""
    return reducescatter_async(tensor, op, name, priority, process_set, prescale_factor, postscale_factor).wait()


def grouped_reducescatter(
    tensors: Sequence[Any],
    op: int | None = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Array]:
    """The reducescatters of several arrays, which run all or none."""
    del priority
    factors = reduction(op, prescale_factor, postscale_factor)
    what = grouped_call(Kind.REDUCESCATTER, name, process_set, len(tensors), **factors)
    found: list[Array] = collective.reducescatter(_shareable(tensors, process_set), what, process_set).wait()
    return found
