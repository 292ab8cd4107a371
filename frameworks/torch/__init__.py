"""distrun for PyTorch: `import distrun.torch as hvd`. Functions, arguments and defaults are Horovod's."""

from __future__ import annotations

import os
import sys
import warnings
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from distrun import _horovod, _protected, _session, basics
from distrun._objects import allgather_object, broadcast_object
from distrun._operations import Handle
from distrun.basics import *  # noqa: F403
from distrun.process_sets import ProcessSet

from . import _codec, _oldest  # noqa: F401  # raises ImportError if PyTorch is too old
from .compression import Compression
from .functions import broadcast_optimizer_state, broadcast_parameters
from .local_sgd import PeriodicAverage, periodic_average
from .ops import *  # noqa: F403
from .optimizer import DistributedOptimizer, _DistributedOptimizer  # noqa: F401  # also here in old Horovods
from .sampler import DistributedSampler
from .sparse import sparse_allreduce_async
from .sync_batch_norm import SyncBatchNorm

__all__ = [
    *basics.__all__,
    *_horovod.NAMES,
    "Compression",
    "DistributedOptimizer",
    "DistributedSampler",
    "Handle",
    "PeriodicAverage",
    "SyncBatchNorm",
    "allgather_object",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "periodic_average",
    "sparse_allreduce_async",
]

_codec.install()
if _protected.asked() and torch.distributed.is_available():
    _protected.protect_torch(torch.distributed.distributed_c10d)

# Horovod's name for the module with the operations.
mpi_ops = sys.modules[f"{__name__}.mpi_ops"] = sys.modules[__name__]

_selected_in: weakref.ref[_session.Session] | None = None


def init(  # type: ignore[no-redef]  # the core's, plus the choice of the GPU
    comm: Any = None,
    process_sets: Sequence[ProcessSet] | str | None = None,
    *,
    settings: Mapping[str, object] | None = None,
) -> None:
    """Joins the job like distrun.init(), and selects this rank's own GPU (the first of them, if there are several).

    The selection happens when the script first uses CUDA, in the thread that does. Call torch.cuda.init() to do it at
    once, before another thread or torch.cuda.Stream() uses CUDA. If the script sets CUDA_VISIBLE_DEVICES between init()
    and that use, it has chosen itself and nothing is selected, unless it lists all GPUs (0,1,2,3).
    """
    global _selected_in
    basics.init(comm, process_sets, settings=settings)
    session = _session.current()
    # Once in each session, because the script may select another GPU later.
    if basics.size() == 1 or (_selected_in is not None and _selected_in() is session):
        return
    _selected_in = weakref.ref(session)
    # If the launcher does not say which GPUs this rank has, assume one GPU for each local rank.
    own = (_session.world().gpus or (basics.local_rank(),))[0]
    rank, visible = basics.rank(), os.environ.get("CUDA_VISIBLE_DEVICES")

    def select() -> None:
        count = torch.cuda.device_count()
        now = os.environ.get("CUDA_VISIBLE_DEVICES")
        chosen = now not in (visible, None) and count == len(now.split(","))
        # A list of all GPUs is no choice: scripts set it on all ranks.
        if count <= 1 or (chosen and now != ",".join(map(str, range(count)))):
            return
        if own < count:
            torch.cuda.set_device(own)
        else:
            warnings.warn(
                f"rank {rank} is number {own} on its host and sees {count} GPUs, so it uses the GPU that PyTorch "
                "selects. Start as many ranks on each host as it has GPUs.",
                stacklevel=2,
            )

    # _lazy_call is not public. No other way runs code before the first use without starting CUDA. The driver reads the
    # variable when it starts, and a process that has started it cannot fork workers that use GPUs.
    torch.cuda._lazy_call(select)
