"""distrun for NumPy: `import distrun.numpy as hvd`. The functions are those of distrun.torch, for arrays."""

from __future__ import annotations

from distrun import _horovod, basics
from distrun._objects import allgather_object, broadcast_object
from distrun._operations import Handle
from distrun.basics import *  # noqa: F403

from .compression import Compression
from .functions import broadcast_parameters
from .ops import *  # noqa: F403

__all__ = [
    *basics.__all__,
    *_horovod.NAMES,
    "Compression",
    "Handle",
    "allgather_object",
    "broadcast_object",
    "broadcast_parameters",
]
