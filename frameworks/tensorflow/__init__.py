"""distrun for TensorFlow: `import distrun.tensorflow as hvd`. Functions, arguments and defaults are Horovod's."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from distrun import basics
from distrun._operations import Handle
from distrun.basics import *  # noqa: F403

from . import _gradients, _rows
from ._execution import distrun_error
from ._start import extend, init, no_autograph
from .compression import Compression
from .functions import (
    BroadcastGlobalVariablesHook,
    allgather_object,
    broadcast_,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from .mwms import patch_keras_mwms
from .ops import (
    _allreduce,  # noqa: F401  # programs of older releases of Horovod use it
    allgather,
    allreduce,
    alltoall,
    barrier,
    broadcast,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    join,
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    reducescatter,
    size_op,
)
from .optimizer import DistributedOptimizer, _DistributedOptimizer  # noqa: F401  # programs test isinstance()
from .tape import DistributedGradientTape, PartialDistributedGradientTape

__all__ = [
    *basics.__all__,
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "Handle",
    "PartialDistributedGradientTape",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "distrun_error",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "init",
    "join",
    "local_rank_op",
    "local_size_op",
    "patch_keras_mwms",
    "process_set_included_op",
    "rank_op",
    "reducescatter",
    "size_op",
]

extend()
_gradients.register()
_rows.register()
no_autograph()

# Horovod's name for the module with the operations.
mpi_ops = sys.modules[f"{__name__}.mpi_ops"] = sys.modules[__name__]


def __getattr__(name: str) -> Any:
    # Loaded on demand, because Keras takes seconds to import.
    if name == "SyncBatchNormalization":
        from ._sync_batch_norm import SyncBatchNormalization

        return SyncBatchNormalization
    if name == "keras":
        return importlib.import_module("distrun.tensorflow.keras")
    raise AttributeError(f"module 'distrun.tensorflow' has no attribute {name!r}")
