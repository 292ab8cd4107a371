"""A program that nothing launched has no RANK and no MASTER_ADDR: it is a world of one, and needs neither."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlparse

from distrun import _session, basics
from torch._C._distributed_c10d import HashStore
from torch.distributed.rendezvous import _rendezvous_handlers

_Meeting = tuple[Any, int, int]
_of_torch = _rendezvous_handlers["env"]


def _env(url: str, **arguments: Any) -> Iterator[_Meeting]:
    """torch's handler of env://, unless nothing says that there are other ranks."""
    if "RANK" in os.environ or "WORLD_SIZE" in os.environ or urlparse(url).query:
        yield from _of_torch(url, **arguments)
        return
    basics.init()
    if _session.world().size > 1:
        yield from _of_torch(url, **arguments)  # names the variable that it misses
        return
    yield HashStore(), 0, 1


def install() -> None:
    """Puts the handler in the place of torch's, which offers no other way."""
    _rendezvous_handlers["env"] = _env
