"""Where the ranks of a group find each other's torch, as env:// and tcp:// say it.

A program that nothing launched has no RANK and no MASTER_ADDR: it is a world of one, and needs neither.

torch ends rank 0's store with the group that came by it. A rank that is ahead of rank 0 in destroying that group and
making another would find the old store, and rank 0 wait for it in the new one; so the store stays, and each meeting
there has keys of its own.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlparse
from uuid import uuid4

from distrun import _session, basics
from torch._C._distributed_c10d import HashStore, PrefixStore
from torch.distributed.rendezvous import _rendezvous_handlers

_Meeting = tuple[Any, int, int]
_env_of_torch, _tcp_of_torch = _rendezvous_handlers["env"], _rendezvous_handlers["tcp"]
# By the server, and the rank that came. The newest store is enough: within a process they share a server.
_met: Counter[tuple[bytes, int]] = Counter()
_kept: dict[bytes, Any] = {}


def _env(url: str, **arguments: Any) -> Iterator[_Meeting]:
    """torch's handler of env://, unless nothing says that there are other ranks."""
    if "RANK" in os.environ or "WORLD_SIZE" in os.environ or urlparse(url).query:
        yield from _lasting(_env_of_torch(url, **arguments))
        return
    basics.init()
    if _session.world().size > 1:
        yield from _env_of_torch(url, **arguments)  # names the variable that it misses
        return
    yield HashStore(), 0, 1


def _tcp(url: str, **arguments: Any) -> Iterator[_Meeting]:
    yield from _lasting(_tcp_of_torch(url, **arguments))


def _lasting(meetings: Iterator[_Meeting]) -> Iterator[_Meeting]:
    """The first meeting at a server has torch's own keys: others may come there who do not know of this module.

    A server goes by what its first caller names it: an address may be spelled in several ways, and one port can be
    that of several hosts.
    """
    for store, rank, size in meetings:
        server = store.compare_set("distrun: name of this server", "", uuid4().hex)
        number = _met[server, rank]
        _met[server, rank] += 1
        if rank == 0:
            _kept[server] = store
        yield (PrefixStore(f"again {number}", store) if number else store), rank, size


def install() -> None:
    """Puts the handlers in the place of torch's, which offers no other way."""
    _rendezvous_handlers.update(env=_env, tcp=_tcp)
