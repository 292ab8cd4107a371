"""distrun: communication between the ranks of a distributed training job.

This package is the core that all front ends share. Training scripts import a front end: `import distrun.torch as hvd`,
or `import distrun.numpy as hvd`. This package imports no framework.
"""

from __future__ import annotations

from distrun import _hooks, basics
from distrun._objects import allgather_object, broadcast_object
from distrun._operations import Handle
from distrun.basics import *  # noqa: F403

_hooks.shorten_tracebacks()

__all__ = [*basics.__all__, "Handle", "allgather_object", "broadcast_object"]


def __getattr__(name: str) -> str:
    if name == "__version__":
        return basics.native_version()
    hint = ": start the ranks with `distrun -np N python program.py`" if name == "run" else ""
    raise AttributeError(f"module 'distrun' has no attribute {name!r}{hint}")
