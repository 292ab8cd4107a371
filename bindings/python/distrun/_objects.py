"""broadcast_object and allgather_object: any encodable object, on top of byte tensors. All front ends share them."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from distrun import _operations, _session, codec
from distrun._abi import DType, Kind
from distrun._operations import Gathered, Handle, Op
from distrun.process_sets import ProcessSet, global_process_set, registered_id

_OK, _FAILED = 0, 1


def _mac(session: _session.Session, process_set: int, name: str, sender: int) -> Callable[[bytes], bytes]:
    """For pickles: objects travel as tensors, which nothing protects on their way between hosts."""
    return functools.partial(session.mac, f"object {process_set} {sender} {name}")


def _encode(obj: object, allow_pickle: bool, mac: Callable[[bytes], bytes]) -> tuple[int, bytearray, Exception | None]:
    """What to send. A failure is sent too: the others wait for this rank and raise the same."""
    try:
        return _OK, codec.encode(obj, allow_pickle=allow_pickle, mac=mac), None
    except Exception as error:  # pickling runs code of the user's classes
        return _FAILED, bytearray(f"{type(error).__name__}: {error}".encode()), error


def _raise_failure(rank: int, text: bytes, own: Exception | None) -> None:
    if own is not None:
        raise own
    raise TypeError(f"rank {rank} could not send its object: {text.decode(errors='replace')}")


def _name(name: str | None, number: int) -> str:
    return f"object.{name}" if name else f"object.noname.{number}"


def broadcast_buffer(name: str, data: Any, dtype: DType, count: int, root: int, process_set: int) -> None:
    """Blocks; `data` is a ctypes array of `count` elements, in place."""
    address = ctypes.addressof(data)
    operation = Op(
        kind=Kind.BROADCAST,
        name=name,
        dtype=dtype,
        shape=(count,),
        input=address,
        output=address,
        root=root,
        process_set=process_set,
    )
    _operations.enqueue([operation], data, lambda _: None).wait()


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    *,
    allow_pickle: bool = False,
) -> Any:
    """The object of rank `root_rank`, on every member: itself there, elsewhere equal ones. Collective.

    See codec for what can be sent.
    """
    members = registered_id(process_set)
    session = _session.current()
    name = _name(name, session.number("object", members))
    own: Exception | None = None
    header = (ctypes.c_int64 * 2)()
    data = bytearray()
    mac = _mac(session, members, name, root_rank)
    if session.world.rank == root_rank:
        status, data, own = _encode(obj, allow_pickle, mac)
        header[:] = [status, len(data)]
    broadcast_buffer(f"{name}.sz", header, DType.int64, 2, root_rank, members)
    status, length = header
    if session.world.rank != root_rank:
        data = bytearray(length)
    broadcast_buffer(f"{name}.t", (ctypes.c_uint8 * length).from_buffer(data), DType.uint8, length, root_rank, members)
    if status != _OK:
        _raise_failure(root_rank, bytes(data), own)
    return obj if session.world.rank == root_rank else codec.decode(data, allow_pickle=allow_pickle, mac=mac)


def _allgather(name: str, data: Any, dtype: DType, count: int, process_set: int) -> tuple[bytes, tuple[int, ...]]:
    operation = Op(
        kind=Kind.ALLGATHER,
        name=name,
        dtype=dtype,
        shape=(count,),
        input=ctypes.addressof(data),
        process_set=process_set,
    )

    def finish(handle: Handle[tuple[bytes, tuple[int, ...]]]) -> tuple[bytes, tuple[int, ...]]:
        result: Gathered = handle.gathered(0)
        return ctypes.string_at(result.data, result.bytes) if result.bytes else b"", result.first_dims

    return _operations.enqueue([operation], data, finish).wait()


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set, *, allow_pickle: bool = False
) -> list[Any]:
    """The objects of all members, in rank order, on every member. Collective. See codec for what can be sent.

    Who has joined has none: the list is shorter then.
    """
    members = registered_id(process_set)
    session = _session.current()
    name = _name(name, session.number("object", members))
    status, data, own = _encode(obj, allow_pickle, _mac(session, members, name, session.world.rank))
    states, present = _allgather(f"{name}.st", (ctypes.c_uint8 * 1)(status), DType.uint8, 1, members)
    gathered, lengths = _allgather(
        f"{name}.t", (ctypes.c_uint8 * len(data)).from_buffer(data), DType.uint8, len(data), members
    )
    # A rank that has joined sends nothing, not even a state.
    ranks = [rank for rank, count in zip(process_set.ranks or (), present, strict=True) if count]
    parts, start = [], 0
    for length in filter(None, lengths):
        parts.append(gathered[start : start + length])
        start += length
    for rank, state, part in zip(ranks, states, parts, strict=True):
        if state != _OK:
            _raise_failure(rank, part, own if rank == session.world.rank else None)
    return [
        codec.decode(part, allow_pickle=allow_pickle, mac=_mac(session, members, name, rank))
        for rank, part in zip(ranks, parts, strict=True)
    ]
