"""Where the ranks of a group find each other's torch, as env:// and tcp:// say it.

The backend distrun meets in the job's own store. Other backends meet as torch has it, in a store that rank 0 opens at
MASTER_PORT, which any user of the network may read and write.

A program that nothing launched has no RANK and no MASTER_ADDR: it is a world of one, and needs neither.

torch ends rank 0's store with the group that came by it. A rank that is ahead of rank 0 in destroying that group and
making another would find the old store, and rank 0 wait for it in the new one; so the store stays, and each meeting
there has keys of its own.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections import Counter
from collections.abc import Iterator, MutableMapping
from typing import Any
from urllib.parse import parse_qs, urlparse
from uuid import uuid4

from distrun import _session, basics
from torch._C._distributed_c10d import HashStore, PrefixStore
from torch.distributed.rendezvous import _rendezvous_handlers

from ._store import DistrunStore

_Meeting = tuple[Any, int, int]
_env_of_torch, _tcp_of_torch = _rendezvous_handlers["env"], _rendezvous_handlers["tcp"]
# By the server, and the rank that came. The newest store is enough: within a process they share a server.
_met: Counter[tuple[bytes, int]] = Counter()
_kept: dict[bytes, Any] = {}
# How many groups have met in the job's store.
_meetings: MutableMapping[Any, int] = weakref.WeakKeyDictionary()
# The names of backends that distrun is, or stands for (--torch-backend distrun).
OURS = {"distrun"}


def _is_ours() -> bool:
    """Whether the group that torch is making has no other backend than this one. torch does not tell its handlers."""
    frame: Any = sys._getframe()
    while frame is not None:
        code = frame.f_code
        if code.co_name == "init_process_group" and code.co_filename.endswith("distributed_c10d.py"):
            asked = str(frame.f_locals.get("backend")).lower()
            return all(one.rpartition(":")[2] in OURS for one in asked.split(","))
        frame = frame.f_back
    return False


def _env(url: str, **arguments: Any) -> Iterator[_Meeting]:
    """The job's store, or torch's handler of env://; a store of this process where nothing speaks of other ranks."""
    query = urlparse(url).query
    if "RANK" in os.environ or "WORLD_SIZE" in os.environ or query:
        place = _place({"rank": os.environ.get("RANK"), "world_size": os.environ.get("WORLD_SIZE")}, query)
        yield from _here(place) or _lasting(_env_of_torch(url, **arguments))
        return
    basics.init()
    if _session.world().size > 1:
        yield from _env_of_torch(url, **arguments)  # names the variable that it misses
        return
    yield HashStore(), 0, 1


def _tcp(url: str, **arguments: Any) -> Iterator[_Meeting]:
    yield from _here(_place({}, urlparse(url).query)) or _lasting(_tcp_of_torch(url, **arguments))


def _place(given: dict[str, str | None], query: str) -> tuple[int, int] | None:
    """Rank and size; None where torch has something to say about them."""
    found = {**given, **{name: values[0] for name, values in parse_qs(query).items()}}
    try:
        return int(found["rank"] or ""), int(found["world_size"] or "")
    except (KeyError, ValueError):
        return None


def _here(place: tuple[int, int] | None) -> list[_Meeting]:
    """The meeting in the job's store, which needs no address; none where that is not the one to meet in."""
    if place is None or not _is_ours():
        return []
    basics.init()
    world = _session.world()
    if world.size == 1 or place != (world.rank, world.size):  # the latter is refused when the group is made
        return [(HashStore(), *place)]
    session = _session.current()
    number = _meetings[session] = _meetings.get(session, 0) + 1
    return [(DistrunStore(f"torch{number}/"), *place)]


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
