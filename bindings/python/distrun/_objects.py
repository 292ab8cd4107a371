"""broadcast_object and allgather_object for all front ends. They send any encodable object as byte tensors."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hmac
import struct
from collections.abc import Callable
from typing import Any

from distrun import _arguments, _operations, _session, codec, errors
from distrun._abi import MAC_SIZE, DType, Kind
from distrun._operations import Gathered, Handle, Op
from distrun.process_sets import ProcessSet, global_process_set, registered_id

_OK, _FAILED = 0, 1

_Mac = Callable[[bytes | bytearray], bytes]
_WORDS = struct.Struct(f"<qq{MAC_SIZE}s")  # the header broadcast before an object: status, length and MAC


def _mac(session: _session.Session, process_set: int, name: str, sender: int) -> _Mac:
    """Returns the MAC function for an object of `sender`. Objects are sent as tensors, which have no other
    protection."""
    return functools.partial(session.mac, f"object {process_set} {sender} {name}")


def _changed(name: str, sender: int) -> codec.CodecError:
    return codec.CodecError(
        f"the object '{name}' from rank {sender} was changed on its way, so it is not decoded. The cause is a fault "
        "of the network, or somebody who changes its data."
    )


def _encode(obj: object, allow_pickle: bool, mac: _Mac | None) -> tuple[int, bytearray, Exception | None]:
    """Returns the status, the bytes to send and the error. An error is sent too, since the others wait and raise it
    too."""
    try:
        return _OK, codec.encode(obj, allow_pickle=allow_pickle, mac=mac), None
    except Exception as error:  # pickling runs code of the user's classes
        return _FAILED, bytearray(f"{type(error).__name__}: {error}".encode()), error


def _raise_failure(rank: int, text: bytes, own: Exception | None) -> None:
    if own is not None:
        raise own
    raise TypeError(f"rank {rank} could not send its object: {text.decode(errors='replace')}")


def _name(name: str | None, number: int) -> str:
    return f"object.{name}" if _arguments.name(name) else f"object.noname.{number}"


def broadcast_buffer(name: str, data: Any, dtype: DType, count: int, root: int, process_set: int) -> None:
    """Broadcasts `data`, a ctypes array of `count` elements, in place. Blocks."""
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


def _broadcast_bytes(name: str, data: bytearray, root: int, process_set: int) -> None:
    memory = (ctypes.c_uint8 * len(data)).from_buffer(data)
    broadcast_buffer(name, memory, DType.uint8, len(data), root, process_set)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    *,
    allow_pickle: bool = False,
) -> Any:
    """Returns the object of rank `root_rank` on every member. Collective; blocks.

    The root gets `obj` itself, the others an equal copy. `root_rank` is a world rank. distrun.codec lists the types
    that can be sent; `allow_pickle` permits others, and must be set on all ranks. If the object cannot be sent, the
    root raises its exception, and the others TypeError. CodecError if the object was changed on the network.
    """
    members, root_rank = registered_id(process_set), _arguments.root_rank(root_rank)
    session = _session.current()
    name = _name(name, session.number("object", members))
    is_root = session.world.rank == root_rank
    of_words, of_data = (_mac(session, members, f"{name}.{part}", root_rank) for part in ("sz", "t"))
    header = bytearray(_WORDS.size + MAC_SIZE)
    data = bytearray()
    own: Exception | None = None
    if is_root:
        status, data, own = _encode(obj, allow_pickle, mac=None)  # no MAC here: of_data covers all bytes
        words = _WORDS.pack(status, len(data), of_data(data))
        header[:] = words + of_words(words)
    _broadcast_bytes(f"{name}.sz", header, root_rank, members)
    words, proof = bytes(header[: _WORDS.size]), bytes(header[_WORDS.size :])
    if not is_root and not hmac.compare_digest(of_words(words), proof):
        # The others wait for this rank, which cannot know the length. Its empty tensor makes the broadcast fail for
        # them.
        with contextlib.suppress(errors.DistrunError):
            _broadcast_bytes(f"{name}.t", data, root_rank, members)
        raise _changed(name, root_rank)
    status, length, proof = _WORDS.unpack(words)
    if not is_root:
        data = bytearray(length)
    _broadcast_bytes(f"{name}.t", data, root_rank, members)
    if not is_root and not hmac.compare_digest(of_data(data), proof):
        raise _changed(name, root_rank)
    if status != _OK:
        _raise_failure(root_rank, bytes(data), own)
    return obj if is_root else codec.decode(data, allow_pickle=allow_pickle)


def _bytes_at(address: int | None, size: int) -> bytes:
    """Copies memory. ctypes.string_at takes a C int as size: it fails above 2 GiB, and returns other data above 4
    GiB."""
    return (ctypes.c_char * size).from_address(address).raw if address and size else b""


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
        return _bytes_at(result.data, result.bytes), result.first_dims

    return _operations.enqueue([operation], data, finish).wait()


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set, *, allow_pickle: bool = False
) -> list[Any]:
    """Returns the objects of all members, in rank order, on every member. Collective; blocks.

    Ranks that have joined send none, so the list is shorter then. distrun.codec lists the types that can be sent;
    `allow_pickle` permits others, and must be set on all ranks. If an object cannot be sent, its rank raises the
    exception, and the others TypeError. CodecError if an object was changed on the network.
    """
    members = registered_id(process_set)
    session = _session.current()
    name = _name(name, session.number("object", members))
    status, data, own = _encode(obj, allow_pickle, _mac(session, members, name, session.world.rank))
    states, present = _allgather(f"{name}.st", (ctypes.c_uint8 * 1)(status), DType.uint8, 1, members)
    gathered, lengths = _allgather(
        f"{name}.t", (ctypes.c_uint8 * len(data)).from_buffer(data), DType.uint8, len(data), members
    )
    # A rank that has joined contributes no row, not even its state.
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
