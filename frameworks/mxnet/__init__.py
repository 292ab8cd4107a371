"""distrun for MXNet 1.9: `import distrun.mxnet as hvd`. Functions, arguments and defaults are Horovod's."""

from __future__ import annotations

import sys

from distrun import basics
from distrun._collectives import barrier
from distrun._horovod import join, poll, synchronize
from distrun._objects import allgather_object, broadcast_object
from distrun._operations import Handle
from distrun.basics import *  # noqa: F403

from .compression import Compression
from .functions import broadcast_parameters
from .ops import (
    allgather,
    allgather_async,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    alltoall,
    alltoall_async,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_allgather,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_reducescatter,
    reducescatter,
    reducescatter_async,
)
from .optimizer import DistributedOptimizer, DistributedTrainer

__all__ = [
    *basics.__all__,
    "Compression",
    "DistributedOptimizer",
    "DistributedTrainer",
    "Handle",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "broadcast_parameters",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_reducescatter",
    "join",
    "poll",
    "reducescatter",
    "reducescatter_async",
    "synchronize",
]

# Horovod's name for the module with the operations.
mpi_ops = sys.modules[f"{__name__}.mpi_ops"] = sys.modules[__name__]
