"""torch's Store over the job's: torch opens no port for it, and to read or write it takes the job's key."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from ._job_store import MAX_VALUE, JobStore

# C++ finds a store's methods by its Python object, so that has to live as long as C++ may ask. They are small.
_alive: list[Any] = []


class DistrunStore(Store):
    """A torch.distributed.Store whose keys are those of the job's store that begin with `prefix`.

    Its limits are the job's store's: a key and the prefixes of its groups below 1 KiB, a value of at most 1 MiB. A wait
    ends with DistStoreError after the store's timeout, with RankLost or RankLeft where a rank is gone.
    """

    timeout: timedelta  # torch's own

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._job, self._prefix = JobStore(), prefix
        _alive.append(self)

    # One key

    def set(self, key: str, value: str | bytes) -> None:
        """Gives the key this value."""
        self._job.set(self._prefix + key, _checked(key, value))

    def get(self, key: str) -> bytes:
        """The value; waits for it, at most the store's timeout."""
        return self._wait(key, time.monotonic() + self.timeout.total_seconds())

    def add(self, key: str, amount: int) -> int:
        """The sum; a key that is not there counts as 0."""
        return self._job.add(self._prefix + key, amount)

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        """As TCPStore: "" is expected of a key that is not there. Returns what it has then, or what was expected."""
        expected, desired = _checked(key, expected_value), _checked(key, desired_value)
        before = self._swap(key, expected or None, desired)
        if before == expected == b"":
            before = self._swap(key, b"", desired)
        if before == (expected or None) or before == expected:
            return desired
        return expected if before is None else before

    def append(self, key: str, value: str | bytes) -> None:
        """Puts the value behind the one that is there."""
        more, before = _checked(key, value), self._swap(key, None, None)
        while True:
            found = self._swap(key, before, _checked(key, (before or b"") + more))
            if found == before:
                return
            before = found

    def delete_key(self, key: str) -> bool:
        """Whether the key was there; it is not any more."""
        before = self._swap(key, None, None)
        while before is not None:
            found = self._swap(key, before, None)
            if found == before:
                return True
            before = found
        return False

    # Several

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys are there."""
        return all(self._swap(key, None, None) is not None for key in keys)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Until all keys are there."""
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout).total_seconds()
        for key in keys:
            self._wait(key, deadline)

    def num_keys(self) -> int:
        """How many keys this store has."""
        return self._job.count(self._prefix)

    def has_extended_api(self) -> bool:
        """True: append, multi_get and multi_set are there."""
        return True

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values; waits for them."""
        deadline = time.monotonic() + self.timeout.total_seconds()
        return [self._wait(key, deadline) for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Gives each key its value."""
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def clone(self) -> DistrunStore:
        """Another one with the same keys."""
        made = DistrunStore(self._prefix)
        made.set_timeout(self.timeout)
        return made

    deleteKey, getNumKeys = delete_key, num_keys  # as C++ calls them

    def _swap(self, key: str, expected: bytes | None, wanted: bytes | None) -> bytes | None:
        return self._job.swap(self._prefix + key, expected, wanted)

    def _wait(self, key: str, deadline: float) -> bytes:
        found = self._job.get(self._prefix + key, max(0.0, deadline - time.monotonic()))
        if found is None:
            raise dist.DistStoreError(
                f"the store waited for the key {key!r}, and no rank has set it in time: another rank has not come so "
                "far, or makes other groups. Give init_process_group(timeout=...) more where that is too short."
            )
        return found


def _checked(key: str, value: str | bytes) -> bytes:
    given = value.encode() if isinstance(value, str) else bytes(value)
    if len(given) > MAX_VALUE:
        raise ValueError(
            f"the store keeps values of at most 1 MiB, and that of {key!r} has {len(given)} bytes: send what is large "
            "with broadcast_object_list or as a tensor, or pass a store of your own, init_process_group(store=...)."
        )
    return given
