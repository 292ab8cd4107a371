"""broadcast_object and allgather_object: any encodable object, on top of byte tensors. All front ends share them."""

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
_WORDS = struct.Struct(f"<qq{MAC_SIZE}s")  # what is broadcast before an object: its status, length and MAC


def _mac(session: _session.Session, process_set: int, name: str, sender: int) -> _Mac:
    """Objects are sent as tensors, and nothing protects tensors between hosts."""
    return functools.partial(session.mac, f"object {process_set} {sender} {name}")


def _changed(name: str, sender: int) -> codec.CodecError:
    return codec.CodecError(
        f"'{name}' is not the object that rank {sender} has sent: it was changed on its way, so it is not decoded. "
        "Somebody on the network does that, or a fault."
    )


def _encode(obj: object, allow_pickle: bool, mac: _Mac | None) -> tuple[int, bytearray, Exception | None]:
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
    return f"object.{name}" if _arguments.name(name) else f"object.noname.{number}"


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
    """The object of rank `root_rank`, on every member: itself there, elsewhere equal ones. Collective.

    See codec for what can be sent.
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
        status, data, own = _encode(obj, allow_pickle, mac=None)  # all of it has one
        words = _WORDS.pack(status, len(data), of_data(data))
        header[:] = words + of_words(words)
    _broadcast_bytes(f"{name}.sz", header, root_rank, members)
    words, proof = bytes(header[: _WORDS.size]), bytes(header[_WORDS.size :])
    if not is_root and not hmac.compare_digest(of_words(words), proof):
        # The others wait for this rank, which cannot know how much comes: without a byte it tells them.
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
    """ctypes.string_at takes an int for the size: above 2 GiB it fails, and above 4 it gives something else."""
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
    """The objects of all members, in rank order, on every member. Collective. See codec for what can be sent.

    Ranks that have joined send none: the list is shorter then.
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
