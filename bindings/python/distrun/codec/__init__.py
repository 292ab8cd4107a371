"""Encodes objects as bytes without pickle. Decoding makes only data, so a peer's bytes can never run code.

Types: None, bool, int, float, complex, str, bytes, list, tuple, dict, OrderedDict, Counter, set, frozenset, NumPy
arrays, scalars and dtypes, and the types that a front end registers (tensors). Other types are refused with their
place in the object, unless both the sender and the receiver allow pickle. A `mac` is a function of the pickle's bytes,
the same on both sides. With it, bytes that were changed on the way are refused before they can run.

Layout: two magic bytes, then one value. A value is a tag byte and its contents. Lengths and counts are 8 bytes, little
endian. They are checked against the remaining bytes before anything is allocated.
"""

from __future__ import annotations

import collections
import hmac
import importlib
import pickle
import struct
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

_MAGIC = b"d\x01"
_MAX_DEPTH = 100
_Mac = Callable[[bytes], bytes]
_LENGTH = struct.Struct("<Q")
_FLOAT = struct.Struct("<d")
_COMPLEX = struct.Struct("<dd")


class CodecError(ValueError):
    """The bytes were not made by `encode`, or were changed."""


class Extension(NamedTuple):
    """How the values of one library are encoded: as a small plain description and one run of bytes.

    encode returns None for a value that it does not support. decode raises CodecError for a description that encode
    does not make.
    """

    encode: Callable[[Any], tuple[object, Any] | None]
    decode: Callable[[Any, memoryview], object]


_extensions: dict[str, Extension] = {}
_LAZY = dict.fromkeys(("numpy", "ml_dtypes"), "distrun.codec._numpy")  # imported when such a value or such bytes appear


def register(package: str, extension: Extension) -> None:
    """Registers the encoding of values whose type is defined in `package` (the first part of the module's name)."""
    _extensions[package] = extension


def encode(value: object, *, allow_pickle: bool = False, mac: _Mac | None = None) -> bytearray:
    """Returns the bytes for `value`. TypeError, with the place, for a part that cannot be encoded."""
    out = bytearray(_MAGIC)
    try:
        _encode(out, value, "object", 0)
    except TypeError:
        if not allow_pickle:
            raise
        pickled = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
        out[len(_MAGIC) :] = b"P"
        _put_bytes(out, mac(pickled) if mac is not None else b"")
        _put_bytes(out, pickled)
    return out


def decode(data: Any, *, allow_pickle: bool = False, mac: _Mac | None = None) -> Any:
    """Returns the value in `data` (any object with the buffer protocol). CodecError if the bytes are malformed."""
    view = memoryview(data).cast("B")
    if bytes(view[: len(_MAGIC)]) != _MAGIC:
        raise CodecError("these bytes are not an encoded object: the first two are wrong.")
    reader = _Reader(view, len(_MAGIC), allow_pickle, mac)
    value = reader.value(0)
    if reader.left():
        raise CodecError(f"{reader.left()} bytes follow the encoded object.")
    return value


def _put_bytes(out: bytearray, data: Any) -> None:
    view = memoryview(data).cast("B")
    out += _LENGTH.pack(view.nbytes)
    out += view


def _encode_int(out: bytearray, value: int) -> None:
    out += b"i"
    _put_bytes(out, value.to_bytes((value.bit_length() + 8) // 8, "little", signed=True))


def _encode_items(out: bytearray, tag: bytes, items: Iterable[tuple[str, object]], count: int, depth: int) -> None:
    out += tag
    out += _LENGTH.pack(count)
    for place, item in items:
        _encode(out, item, place, depth + 1)


def _dict_items(value: dict[Any, Any], place: str) -> Iterable[tuple[str, object]]:
    for key, item in value.items():
        yield f"a key of {place}", key
        yield f"{place}[{key!r:.60}]", item


def _encode(out: bytearray, value: Any, place: str, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise TypeError(f"{place} is nested deeper than {_MAX_DEPTH} containers, or contains itself.")
    kind = type(value)
    if value is None:
        out += b"N"
    elif kind is bool:
        out += b"T" if value else b"F"
    elif kind is int:
        _encode_int(out, value)
    elif kind is float:
        out += b"f" + _FLOAT.pack(value)
    elif kind is complex:
        out += b"c" + _COMPLEX.pack(value.real, value.imag)
    elif kind is str:
        out += b"s"
        _put_bytes(out, value.encode("utf-8", "surrogatepass"))
    elif kind in (bytes, bytearray):
        out += b"b"
        _put_bytes(out, value)
    elif kind in _SEQUENCE_TAGS:
        items = ((f"{place}[{i}]", item) for i, item in enumerate(value))
        _encode_items(out, _SEQUENCE_TAGS[kind], items, len(value), depth)
    elif kind in _DICT_TAGS:
        _encode_items(out, _DICT_TAGS[kind], _dict_items(value, place), len(value), depth)
    else:
        _encode_extension(out, value, place, depth)


def _encode_extension(out: bytearray, value: object, place: str, depth: int) -> None:
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    extension = _find(package)
    encoded = extension.encode(value) if extension is not None else None
    if encoded is None:
        dtype = getattr(value, "dtype", None) if extension is not None else None
        what = f"{kind.__module__}.{kind.__qualname__}" + (f" of dtype {dtype}" if dtype is not None else "")
        raise TypeError(
            f"{place} is a {what}, which cannot be sent without pickle. Convert it to plain data (numbers, text, "
            "lists, dicts, arrays, tensors), or pass allow_pickle=True on all ranks."
        )
    description, payload = encoded
    out += b"X"
    _put_bytes(out, package.encode())
    _encode(out, description, place, depth + 1)
    _put_bytes(out, payload)


def _find(package: str) -> Extension | None:
    if package in _LAZY and package not in _extensions:
        importlib.import_module(_LAZY[package])
    return _extensions.get(package)


_SEQUENCE_TAGS: dict[type, bytes] = {list: b"l", tuple: b"t", set: b"S", frozenset: b"Z"}
_DICT_TAGS: dict[type, bytes] = {dict: b"d", collections.OrderedDict: b"D", collections.Counter: b"C"}
_SEQUENCES: dict[str, Callable[[list[Any]], object]] = {"l": list, "t": tuple, "S": set, "Z": frozenset}
_DICTS: dict[str, Callable[[Any], object]] = {
    "d": dict,
    "D": collections.OrderedDict,
    "C": lambda items: collections.Counter(dict(items)),
}
_CONSTANTS = {"N": None, "T": True, "F": False}


class _Reader:
    def __init__(self, view: memoryview, position: int, allow_pickle: bool, mac: _Mac | None) -> None:
        self._view = view
        self._position = position
        self._allow_pickle = allow_pickle
        self._mac = mac

    def left(self) -> int:
        return len(self._view) - self._position

    def value(self, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise CodecError(f"the encoded object is nested deeper than {_MAX_DEPTH} containers.")
        tag = chr(self._take(1)[0])
        if tag in _CONSTANTS:
            return _CONSTANTS[tag]
        if tag in _SEQUENCES:
            return self._build(_SEQUENCES[tag], [self.value(depth + 1) for _ in range(self._count(1))])
        if tag in _DICTS:
            return self._build(
                _DICTS[tag], [(self.value(depth + 1), self.value(depth + 1)) for _ in range(self._count(2))]
            )
        if tag == "X":
            return self._extension(depth)
        if tag == "P":
            return self._pickled()
        return self._scalar(tag)

    def _scalar(self, tag: str) -> object:
        if tag == "i":
            return int.from_bytes(self._bytes(), "little", signed=True)
        if tag == "f":
            return _FLOAT.unpack(self._take(_FLOAT.size))[0]
        if tag == "c":
            return complex(*_COMPLEX.unpack(self._take(_COMPLEX.size)))
        if tag == "s":
            try:
                return str(self._bytes(), "utf-8", "surrogatepass")
            except UnicodeDecodeError as error:
                raise CodecError(f"a text in the encoded object is not UTF-8: {error}.") from None
        if tag == "b":
            return bytes(self._bytes())
        raise CodecError(f"unknown tag {tag!r} in the encoded object; do all ranks run the same version of distrun?")

    def _extension(self, depth: int) -> object:
        package = bytes(self._bytes()).decode("ascii", "replace")
        description = self.value(depth + 1)
        payload = self._bytes()
        extension = _find(package)
        if extension is None:
            raise CodecError(
                f"the object has a value of {package[:40]!r}: import distrun.{package[:40]} on this rank too."
            )
        return extension.decode(description, payload)

    def _pickled(self) -> object:
        proof, data = self._bytes(), bytes(self._bytes())
        if not self._allow_pickle:
            raise CodecError(
                "the object was sent with pickle, which can run code. If you trust the sender, pass "
                "allow_pickle=True on this rank too."
            )
        if self._mac is not None and not hmac.compare_digest(self._mac(data), proof):
            raise CodecError(
                "a pickled object was changed on its way, so it is not decoded. The cause is a fault of the network, "
                "or somebody who changes its data."
            )
        return pickle.loads(data)

    def _build(self, make: Callable[[Any], object], items: list[Any]) -> object:
        try:
            return make(items)
        except TypeError as error:
            raise CodecError(f"a key or member in the encoded object cannot be hashed: {error}.") from None

    def _take(self, count: int) -> memoryview:
        if count > self.left():
            raise CodecError(f"the encoded object is cut short: it needs {count} more bytes and has {self.left()}.")
        start = self._position
        self._position += count
        return self._view[start : self._position]

    def _bytes(self) -> memoryview:
        return self._take(_LENGTH.unpack(self._take(_LENGTH.size))[0])

    def _count(self, least_bytes: int) -> int:
        count: int = _LENGTH.unpack(self._take(_LENGTH.size))[0]
        if count * least_bytes > self.left():
            raise CodecError(
                f"the encoded object is cut short: it should have {count} more items and has {self.left()} bytes."
            )
        return count
