"""The rendezvous of env:// and tcp://, through which the ranks of a group find each other in torch.

The backend distrun uses the job's own store. Other backends use torch's: a store that rank 0 opens at MASTER_PORT,
which any user of the network may read and write.

A program without a launcher has no RANK and no MASTER_ADDR. It is a job of one rank, and needs neither.

torch closes rank 0's store together with the group that used it. Suppose another rank destroys that group and makes a
new one before rank 0 does: it would find the old store, while rank 0 waits in the new one. So this module keeps the
store, and gives each rendezvous its own keys.
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
# For each server and rank, the number of rendezvous. The newest store is enough, as stores of a process share a server.
_met: Counter[tuple[bytes, int]] = Counter()
_kept: dict[bytes, Any] = {}
# The number of groups that have met in the job's store.
_meetings: MutableMapping[Any, int] = weakref.WeakKeyDictionary()
# The names of the backends that distrun provides, or replaces (--torch-backend distrun).
OURS = {"distrun"}


def _is_ours() -> bool:
    """True if distrun is the only backend of the group that torch is making. torch does not tell its handlers."""
    frame: Any = sys._getframe()
    while frame is not None:
        code = frame.f_code
        if code.co_name == "init_process_group" and code.co_filename.endswith("distributed_c10d.py"):
            asked = str(frame.f_locals.get("backend")).lower()
            return all(one.rpartition(":")[2] in OURS for one in asked.split(","))
        frame = frame.f_back
    return False


def _env(url: str, **arguments: Any) -> Iterator[_Meeting]:
    """Yields the job's store or the result of torch's env:// handler; without other ranks, a store of this process."""
    query = urlparse(url).query
    if "RANK" in os.environ or "WORLD_SIZE" in os.environ or query:
        place = _place({"rank": os.environ.get("RANK"), "world_size": os.environ.get("WORLD_SIZE")}, query)
        yield from _here(place) or _lasting(_env_of_torch(url, **arguments))
        return
    basics.init()
    if _session.world().size > 1:
        yield from _env_of_torch(url, **arguments)  # its error names the missing variable
        return
    yield HashStore(), 0, 1


def _tcp(url: str, **arguments: Any) -> Iterator[_Meeting]:
    yield from _here(_place({}, urlparse(url).query)) or _lasting(_tcp_of_torch(url, **arguments))


def _place(given: dict[str, str | None], query: str) -> tuple[int, int] | None:
    """Returns rank and size; None if one is missing or wrong, which torch reports."""
    found = {**given, **{name: values[0] for name, values in parse_qs(query).items()}}
    try:
        return int(found["rank"] or ""), int(found["world_size"] or "")
    except (KeyError, ValueError):
        return None


def _here(place: tuple[int, int] | None) -> list[_Meeting]:
    """Returns a rendezvous in the job's store, which needs no address; none if that store is not the right one."""
    if place is None or not _is_ours():
        return []
    basics.init()
    world = _session.world()
    if world.size == 1 or place != (world.rank, world.size):  # other ranks or sizes are refused when the group is made
        return [(HashStore(), *place)]
    session = _session.current()
    number = _meetings[session] = _meetings.get(session, 0) + 1
    return [(DistrunStore(f"torch{number}/"), *place)]


def _lasting(meetings: Iterator[_Meeting]) -> Iterator[_Meeting]:
    """Wraps rendezvous at a server. The first one has torch's own keys, because processes without this module may join.

    The first caller gives a server its name. An address would not do: it has several spellings, and several hosts may
    use one port.
    """
    for store, rank, size in meetings:
        server = store.compare_set("distrun: name of this server", "", uuid4().hex)
        number = _met[server, rank]
        _met[server, rank] += 1
        if rank == 0:
            _kept[server] = store
        yield (PrefixStore(f"again {number}", store) if number else store), rank, size


def install() -> None:
    """Replaces torch's handlers. torch has no public way."""
    _rendezvous_handlers.update(env=_env, tcp=_tcp)
