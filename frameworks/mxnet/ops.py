"""The operations on MXNet's arrays, under Horovod's names. `priority` exists for Horovod's programs, without effect."""

from __future__ import annotations

from typing import Any

from distrun._horovod import Operations, Request, public
from distrun.process_sets import ProcessSet, global_process_set
from mxnet.ndarray import NDArray

from ._adapter import Array, collective

_on_arrays = Operations[Any, Array](collective, __name__, noun="array", given="Any", tensor="Array")


def _reduction_options(
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    op: int | None = None,
) -> Request:
    del priority
    return Request(name, process_set, op, average, prescale_factor, postscale_factor)


def _share_options(
    op: int | None = None,
    name: str | None = None,
    priority: int = 0,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Request:
    del priority
    return Request(name, process_set, op, None, prescale_factor, postscale_factor)


def _name_options(name: str | None = None, priority: int = 0, process_set: ProcessSet = global_process_set) -> Request:
    del priority
    return Request(name, process_set)


def _root_options(
    root_rank: int, name: str | None = None, priority: int = 0, process_set: ProcessSet = global_process_set
) -> Request:
    del priority
    return Request(name, process_set, root=root_rank)


def _split_options(
    splits: Any = None, name: str | None = None, priority: int = 0, process_set: ProcessSet = global_process_set
) -> Request:
    del priority
    return Request(name, process_set, splits=splits.asnumpy() if isinstance(splits, NDArray) else splits)


allgather = public(_on_arrays.allgather, _name_options)
allgather_async = public(_on_arrays.allgather_async, _name_options)
allreduce = public(_on_arrays.allreduce, _reduction_options)
allreduce_ = public(_on_arrays.allreduce_, _reduction_options)
allreduce_async = public(_on_arrays.allreduce_async, _reduction_options)
allreduce_async_ = public(_on_arrays.allreduce_async_, _reduction_options)
alltoall = public(_on_arrays.alltoall, _split_options)
alltoall_async = public(_on_arrays.alltoall_async, _split_options)
broadcast = public(_on_arrays.broadcast, _root_options)
broadcast_ = public(_on_arrays.broadcast_, _root_options)
broadcast_async = public(_on_arrays.broadcast_async, _root_options)
broadcast_async_ = public(_on_arrays.broadcast_async_, _root_options)
grouped_allgather = public(_on_arrays.grouped_allgather, _name_options)
grouped_allreduce = public(_on_arrays.grouped_allreduce, _reduction_options)
grouped_allreduce_ = public(_on_arrays.grouped_allreduce_, _reduction_options)
grouped_reducescatter = public(_on_arrays.grouped_reducescatter, _share_options)
reducescatter = public(_on_arrays.reducescatter, _share_options)
reducescatter_async = public(_on_arrays.reducescatter_async, _share_options)
