"""torch's Store on the job's store. torch opens no port for it, and only holders of the job's key can access it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from ._job_store import MAX_VALUE, JobStore

# C++ calls a store's methods through its Python object, so that must live as long as C++ may call. They are small.
_alive: list[Any] = []


class DistrunStore(Store):
    """A torch.distributed.Store whose keys are the job's keys that begin with `prefix`.

    The limits are those of the job's store: a key with the prefixes of its groups below 1 KiB, a value of at most 1
    MiB. A wait ends with DistStoreError after the store's timeout, and with RankLost or RankLeft if a rank is gone.
    """

    timeout: timedelta  # an attribute of torch's class

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._job, self._prefix = JobStore(), prefix
        _alive.append(self)

    # Single keys

    def set(self, key: str, value: str | bytes) -> None:
        """Sets the key to this value."""
        self._job.set(self._prefix + key, _checked(key, value))

    def get(self, key: str) -> bytes:
        """Returns the value. Waits for it, at most the store's timeout."""
        return self._wait(key, time.monotonic() + self.timeout.total_seconds())

    def add(self, key: str, amount: int) -> int:
        """Adds to the key and returns the sum. A missing key counts as 0."""
        return self._job.add(self._prefix + key, amount)

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        """Sets the key if its value is the expected one; "" also stands for a missing key, as in TCPStore.

        Returns the key's value afterwards; if the key is still missing, the expected value.
        """
        expected, desired = _checked(key, expected_value), _checked(key, desired_value)
        before = self._swap(key, expected or None, desired)
        if before == expected == b"":
            before = self._swap(key, b"", desired)
        if before == (expected or None) or before == expected:
            return desired
        return expected if before is None else before

    def append(self, key: str, value: str | bytes) -> None:
        """Appends to the key's value."""
        more, before = _checked(key, value), self._swap(key, None, None)
        while True:
            found = self._swap(key, before, _checked(key, (before or b"") + more))
            if found == before:
                return
            before = found

    def delete_key(self, key: str) -> bool:
        """Deletes the key. Returns whether it existed."""
        before = self._swap(key, None, None)
        while before is not None:
            found = self._swap(key, before, None)
            if found == before:
                return True
            before = found
        return False

    # Several keys

    def check(self, keys: Sequence[str]) -> bool:
        """Returns whether all keys exist."""
        return all(self._swap(key, None, None) is not None for key in keys)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Waits until all keys exist."""
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout).total_seconds()
        for key in keys:
            self._wait(key, deadline)

    def num_keys(self) -> int:
        """Returns the number of keys of this store."""
        return self._job.count(self._prefix)

    def has_extended_api(self) -> bool:
        """Returns True: append, multi_get and multi_set exist."""
        return True

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """Returns the values. Waits for them, at most the store's timeout in total."""
        deadline = time.monotonic() + self.timeout.total_seconds()
        return [self._wait(key, deadline) for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Sets each key to its value."""
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def clone(self) -> DistrunStore:
        """Returns another store with the same keys."""
        made = DistrunStore(self._prefix)
        made.set_timeout(self.timeout)
        return made

    deleteKey, getNumKeys = delete_key, num_keys  # C++'s names

    def _swap(self, key: str, expected: bytes | None, wanted: bytes | None) -> bytes | None:
        return self._job.swap(self._prefix + key, expected, wanted)

    def _wait(self, key: str, deadline: float) -> bytes:
        found = self._job.get(self._prefix + key, max(0.0, deadline - time.monotonic()))
        if found is None:
            raise dist.DistStoreError(
                f"no rank has set the key {key!r} in the store in time. Another rank is late, or creates other "
                "groups. If it needs more time, pass init_process_group(timeout=...)."
            )
        return found


def _checked(key: str, value: str | bytes) -> bytes:
    given = value.encode() if isinstance(value, str) else bytes(value)
    if len(given) > MAX_VALUE:
        raise ValueError(
            f"the value of {key!r} has {len(given)} bytes, but the store takes at most 1 MiB. Send it with "
            "broadcast_object_list or as a tensor, or pass your own store: init_process_group(store=...)."
        )
    return given
