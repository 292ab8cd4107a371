"""The operations on NumPy arrays, under Horovod's names.

Forms that return a new array accept array-likes (lists, numbers). The in-place forms need arrays.
"""

from __future__ import annotations

from typing import Any

from distrun import _horovod
from distrun._collectives import barrier as barrier
from distrun._horovod import join as join
from distrun._horovod import poll as poll
from distrun._horovod import synchronize as synchronize

from ._adapter import Array, collective

_on_arrays = _horovod.Operations[Any, Array](collective, __name__, noun="array", given="Any", tensor="Array")

allgather = _horovod.public(_on_arrays.allgather, _horovod.name_options)
allgather_async = _horovod.public(_on_arrays.allgather_async, _horovod.name_options)
allreduce = _horovod.public(_on_arrays.allreduce, _horovod.compressed_reduction_options)
allreduce_ = _horovod.public(_on_arrays.allreduce_, _horovod.reduction_options)
allreduce_async = _horovod.public(_on_arrays.allreduce_async, _horovod.reduction_options)
allreduce_async_ = _horovod.public(_on_arrays.allreduce_async_, _horovod.reduction_options)
alltoall = _horovod.public(_on_arrays.alltoall, _horovod.split_options)
alltoall_async = _horovod.public(_on_arrays.alltoall_async, _horovod.split_options)
broadcast = _horovod.public(_on_arrays.broadcast, _horovod.root_options)
broadcast_ = _horovod.public(_on_arrays.broadcast_, _horovod.root_options)
broadcast_async = _horovod.public(_on_arrays.broadcast_async, _horovod.root_options)
broadcast_async_ = _horovod.public(_on_arrays.broadcast_async_, _horovod.root_options)
grouped_allgather = _horovod.public(_on_arrays.grouped_allgather, _horovod.name_options)
grouped_allgather_async = _horovod.public(_on_arrays.grouped_allgather_async, _horovod.name_options)
grouped_allreduce = _horovod.public(_on_arrays.grouped_allreduce, _horovod.compressed_reduction_options)
grouped_allreduce_ = _horovod.public(_on_arrays.grouped_allreduce_, _horovod.reduction_options)
grouped_allreduce_async = _horovod.public(_on_arrays.grouped_allreduce_async, _horovod.reduction_options)
grouped_allreduce_async_ = _horovod.public(_on_arrays.grouped_allreduce_async_, _horovod.reduction_options)
grouped_reducescatter = _horovod.public(_on_arrays.grouped_reducescatter, _horovod.compressed_share_options)
grouped_reducescatter_async = _horovod.public(_on_arrays.grouped_reducescatter_async, _horovod.share_options)
reducescatter = _horovod.public(_on_arrays.reducescatter, _horovod.compressed_share_options)
reducescatter_async = _horovod.public(_on_arrays.reducescatter_async, _horovod.share_options)
