"""distrun for Keras 3 on its three backends and for legacy Keras: `import distrun.keras as hvd`. Horovod's
functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distrun import basics
from distrun._objects import allgather_object, broadcast_object
from distrun.basics import *  # noqa: F403
from distrun.numpy import barrier, join
from distrun.process_sets import ProcessSet

from . import _backends, _jit, _models, callbacks
from ._backends import error_of
from .functions import (
    allgather,
    allreduce,
    broadcast,
    broadcast_global_variables,
    broadcast_model,
    broadcast_variables,
    load_model,
    reducescatter,
)
from .optimizer import Compression, DistributedOptimizer, PartialDistributedOptimizer

__all__ = [
    *basics.__all__,
    "Compression",
    "DistributedOptimizer",
    "PartialDistributedOptimizer",
    "allgather",
    "allgather_object",
    "allreduce",
    "barrier",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_model",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "error_of",
    "join",
    "load_model",
    "reducescatter",
]

_jit.amend_trainer()
_models.amend_models()


def init(  # type: ignore[no-redef]  # in place of the one in basics
    comm: Any = None,
    process_sets: Sequence[ProcessSet] | str | None = None,
    *,
    settings: Mapping[str, object] | None = None,
) -> None:
    """Joins the job like distrun.init(), and selects this rank's own GPU in the framework of Keras's backend."""
    _backends.front_end().init(comm, process_sets, settings=settings)
