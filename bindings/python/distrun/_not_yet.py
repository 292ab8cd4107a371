"""Horovod's operations that this release does not have: present by name, and clear when called."""

from __future__ import annotations

from typing import Any, NoReturn

_INSTEAD = {
    "alltoall": "use allgather and take your part",
    "alltoall_async": "use allgather_async and take your part",
    "reducescatter": "use allreduce and take your part",
    "reducescatter_async": "use allreduce_async and take your part",
    "grouped_reducescatter": "use grouped_allreduce and take your part",
    "grouped_reducescatter_async": "use grouped_allreduce_async and take your part",
    "join": "give every rank the same number of batches, for example with DistributedSampler(drop_last=True)",
    "SyncBatchNorm": "use GroupNorm or LayerNorm, or batches large enough on each rank",
}


def refuse(name: str) -> NoReturn:
    """Raises NotImplementedError for `name` with what to do instead."""
    raise NotImplementedError(f"{name} is not in this release of distrun; {_INSTEAD[name]}.")


def alltoall(*_: Any, **__: Any) -> NoReturn:
    """Not in this release."""
    refuse("alltoall")


def alltoall_async(*_: Any, **__: Any) -> NoReturn:
    """Not in this release."""
    refuse("alltoall_async")


def reducescatter(*_: Any, **__: Any) -> NoReturn:
    """Not in this release."""
    refuse("reducescatter")


def reducescatter_async(*_: Any, **__: Any) -> NoReturn:
    """Not in this release."""
    refuse("reducescatter_async")


def grouped_reducescatter(*_: Any, **__: Any) -> NoReturn:
    """Not in this release."""
    refuse("grouped_reducescatter")


def grouped_reducescatter_async(*_: Any, **__: Any) -> NoReturn:
    """Not in this release."""
    refuse("grouped_reducescatter_async")


def join(*_: Any, **__: Any) -> NoReturn:
    """Not in this release."""
    refuse("join")


class SyncBatchNorm:
    """Not in this release."""

    def __init__(self, *_: Any, **__: Any) -> None:
        refuse("SyncBatchNorm")
