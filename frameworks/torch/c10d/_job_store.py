"""The job's store: keys and values that all ranks share, over the launcher's authenticated connections.

It is for few and small values: keys below 1 KiB, values of at most 1 MiB, 256 MiB in total.
"""

from __future__ import annotations

import ctypes
import time
from typing import Any

from distrun import _abi, _session, errors
from distrun._library import library

MAX_VALUE = 1 << 20
# A wait returns at this interval, for Python's signal handlers and for a session that another thread closes.
_SLICE_SECONDS = 0.5


class JobStore:
    """The store of the session that is open now. Thread-safe.

    After the session every call raises NotInitialized. A wait for other ranks ends with RankLost or RankLeft if one of
    them is gone.
    """

    def __init__(self) -> None:
        self._session = _session.current()

    def set(self, key: str, value: bytes) -> None:
        """Sets the key to this value."""
        with self._session.calling() as pointer:
            errors.check(library().distrun_store_set(pointer, _text(key), value, len(value)))

    def get(self, key: str, timeout: float) -> bytes | None:
        """Returns the value as soon as some rank has set it; None after `timeout` seconds."""
        name, deadline = _text(key), time.monotonic() + timeout
        while True:
            left = min(max(0.0, deadline - time.monotonic()), _SLICE_SECONDS)
            buffer, size = _place()
            with self._session.calling() as pointer:
                code = library().distrun_store_get(pointer, name, left, buffer, MAX_VALUE, ctypes.byref(size))
                if code != _abi.Code.TIMEOUT:
                    errors.check(code)
                    return bytes(memoryview(buffer)[: size.value])
            if time.monotonic() >= deadline:
                return None

    def add(self, key: str, delta: int) -> int:
        """Adds to the key and returns the sum. A missing key counts as 0. The value is the sum in decimal digits."""
        total = ctypes.c_int64()
        with self._session.calling() as pointer:
            errors.check(library().distrun_store_add(pointer, _text(key), delta, ctypes.byref(total)))
        return total.value

    def swap(self, key: str, expected: bytes | None, wanted: bytes | None) -> bytes | None:
        """Returns the key's old value (None: no value). If that equals `expected`, sets the key to `wanted`."""
        buffer, size = _place()
        given = expected, len(expected or b""), wanted, len(wanted or b"")
        with self._session.calling() as pointer:
            errors.check(
                library().distrun_store_swap(pointer, _text(key), *given, buffer, MAX_VALUE, ctypes.byref(size))
            )
        return None if size.value < 0 else bytes(memoryview(buffer)[: size.value])

    def count(self, prefix: str) -> int:
        """Returns how many keys begin with `prefix`."""
        found = ctypes.c_int64()
        with self._session.calling() as pointer:
            errors.check(library().distrun_store_count(pointer, _text(prefix), ctypes.byref(found)))
        return found.value


def _place() -> tuple[Any, ctypes.c_int64]:
    return (ctypes.c_char * MAX_VALUE)(), ctypes.c_int64()


def _text(key: str) -> bytes:
    if "\0" in key:  # C reads a string up to the first NUL
        raise ValueError(f"a key of the store must not contain a NUL character: {key!r:.60}.")
    return key.encode()
