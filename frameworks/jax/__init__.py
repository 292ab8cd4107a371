"""distrun for JAX: `import distrun.jax as hvd`. Horovod's functions for arrays and pytrees, in and outside jax.jit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distrun import basics
from distrun.basics import *  # noqa: F403
from distrun.process_sets import ProcessSet

from . import _devices, _native
from ._native import error_of
from .compression import Compression
from .distributed import initialize_distributed
from .functions import allgather_object, broadcast_object, broadcast_optimizer_state, broadcast_parameters
from .ops import (
    allgather,
    allreduce,
    alltoall,
    barrier,
    broadcast,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    join,
    reducescatter,
)
from .optimizer import DistributedOptimizer, distribute_gradients

__all__ = [
    *basics.__all__,
    "Compression",
    "DistributedOptimizer",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "distribute_gradients",
    "error_of",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "initialize_distributed",
    "join",
    "reducescatter",
]


def init(  # type: ignore[no-redef]  # in place of the one in basics
    comm: Any = None,
    process_sets: Sequence[ProcessSet] | str | None = None,
    *,
    settings: Mapping[str, object] | None = None,
) -> None:
    """Joins the job, like every front end's init, and limits JAX to this rank's own GPUs.

    Call it before anything that makes JAX look for devices; RuntimeError if JAX has started with other GPUs. The
    arguments are those of distrun.init().
    """
    basics.init(comm, process_sets, settings=settings)
    _devices.select()
    _native.attach()
