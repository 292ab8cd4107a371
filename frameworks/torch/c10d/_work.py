"""Work and Future: how a caller of c10d waits for an operation, and gets its error.

Future.set_exception stores the exception as a plain value, which C++ (DDP's reducer) takes for tensors. So distrun's
future is the `then` of another one, whose callback raises. That reaches C++ and Python alike.
"""

from __future__ import annotations

import collections
import contextlib
import queue
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
from distrun import errors
from torch.futures import Future

# Any: torch's stubs describe works made in C++.
_Work: Any = dist.Work

# Seconds for which a caller runs an operation itself. A caller that waits this long is ahead of its peers, and loses
# nothing. One that is further ahead can use its time for other work.
_MOMENT = 2e-3

# Works dropped without a wait: how many are kept, and the largest one in bytes.
_DROPPED, _SMALL = 16, 1024


class InFlight(Protocol):
    """A Handle, or several works."""

    def poll(self) -> bool:
        """Returns True once it has ended."""
        ...

    def wait(self, timeout: float | None = None) -> object:
        """Waits. Raises Timeout after `timeout` seconds, or the operation's error."""
        ...


class Together:
    """Several works as one."""

    def __init__(self, works: Sequence[DistrunWork]) -> None:
        self._works = works

    def poll(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def wait(self, timeout: float | None = None) -> None:
        limit = None if timeout is None else timedelta(seconds=max(timeout, 1e-6))  # in c10d, 0 means the group's limit
        for work in self._works:
            work.wait(limit)


class DistrunWork(_Work):
    """One call of a collective in flight. Several threads may wait, poll or ask for the future at the same time.

    wait() runs the operation on the caller's thread. Another thread runs only after someone has asked for a future.
    """

    def __init__(
        self, handle: InFlight, what: str, result: list[torch.Tensor], limit: float, watch: Watch | ThreadPerFuture
    ) -> None:
        super().__init__()
        self._handle = handle
        self._what = what
        self._result = result
        self._limit = limit
        self._deadline = time.monotonic() + limit
        self._watch = watch
        self._lock = threading.Lock()
        self._future: Future[list[torch.Tensor]] | None = None
        self._expired: errors.Timeout | None = None
        self._asked = False
        self._seen_ended = False  # a caller has waited for it, or has found it complete

    def __del__(self) -> None:
        # C++ may still hold it, and would then call the base class's methods, which wait forever. DDP's reducer drops
        # the work in Python, and asks in backward how many ranks have data (join, divide_by_initial_world_size=False).
        if not self._asked and sum(tensor.nbytes for tensor in self._result) <= _SMALL:
            self._watch.keep(self)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Waits until the outputs are complete, and returns True. Raises a DistrunError that names the cause and the
        ranks.

        Raises Timeout after `timeout` from now; without it, after the group's timeout from the call. The operation is
        then still in flight, its tensors stay in use, and the ranks no longer agree on the next operation.
        """
        self._asked = True
        if self._expired is not None:
            raise self._expired
        own = timeout is not None and timeout > timedelta(0)
        left = timeout.total_seconds() if own and timeout is not None else max(0.0, self._deadline - time.monotonic())
        end = time.monotonic() + left
        try:
            self._handle.wait(left)
        except errors.Timeout as error:
            if self._handle.poll() or time.monotonic() < end:  # it is a signal handler's own
                raise
            expired = errors.Timeout(
                f"{self._what} was not complete within a timeout of {left if own else self._limit:g} seconds. Some "
                "ranks have not called it, or one is slow: see distrun's warnings on standard error.",
                ranks=error.ranks,
            )
            if not own:
                self._expired = expired
            raise expired from None
        self._seen_ended = True
        return True

    def ends_within(self, seconds: float) -> bool:
        """Returns True if it ends within this time, with success or not."""
        self._failure(seconds)
        return self._handle.poll()

    def _failure(self, seconds: float) -> Exception | None:
        """Returns the exception that wait() would raise, after copying results to the outputs.

        None if it has succeeded, or has not ended within `seconds`. 0 is for works that have ended.
        """
        end = time.monotonic() + seconds
        try:
            self._handle.wait(seconds)
        except Exception as first:
            if isinstance(first, errors.Timeout) and seconds > 0.0 and time.monotonic() >= end:
                return None
            # The operation's error comes again. A signal handler's does not, and must be raised to this caller.
            ended = self._handle.poll()
            try:
                self._handle.wait(0.0)
            except Exception as again:
                if ended or not isinstance(again, errors.Timeout):
                    return again
            raise
        return None

    def is_on_cpu(self) -> bool:
        """Returns True if all outputs are known to be on the CPU."""
        return bool(self._result) and all(tensor.device.type == "cpu" for tensor in self._result)

    def synchronize(self) -> None:
        """Does the same as wait()."""
        self.wait()

    def is_completed(self) -> bool:
        """Returns True once it has ended, with success or not. The outputs are then complete. Never blocks."""
        if self._expired is not None:
            return True
        if not self._handle.poll():
            return False
        self._failure(0.0)
        self._seen_ended = True
        return True

    def is_success(self) -> bool:
        """Returns True once it has succeeded."""
        return self.is_completed() and self.exception() is None

    def ended_well(self) -> bool:
        """Like is_success(), but does not count as asking for the result."""
        return self._expired is None and self._handle.poll() and self._failure(0.0) is None

    def exception(self) -> BaseException | None:
        """Returns the exception that wait() would raise; None if it is in flight or has succeeded."""
        self._asked = True
        return (self._expired or self._failure(0.0)) if self.is_completed() else None

    def result(self) -> list[torch.Tensor]:
        """Waits, and returns the outputs."""
        self.wait()
        return self._result

    def get_future(self) -> Future[list[torch.Tensor]]:
        """Returns a future with the outputs. A thread of the group completes it and runs callbacks. Raises like
        wait()."""
        self._asked = True
        with self._lock:
            if self._future is None:
                # After a wait for the work, DDP's reducer takes the value without waiting (join,
                # divide_by_initial_world_size=False).
                self._future = _completed(self) if self._seen_ended else self._watch.future(self)
            return self._future


class Watch:
    """Completes the futures of one group, in the order of the requests.

    A group's operations end in the order of their calls, unless the group is broken. The thread starts with the first
    future that has to wait, and ends with `close`.

    `overlaps`: see _session.overlaps. Without it, a caller that asks for a future of CPU tensors first runs the
    operation itself for a short time. That caller is DDP's reducer, which has no other work for its core.
    """

    def __init__(self, overlaps: bool = True) -> None:
        self._overlaps = overlaps
        self._unended = 0  # requests in the thread's queue
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[tuple[DistrunWork, Future[None]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._dropped: collections.deque[DistrunWork] = collections.deque(maxlen=_DROPPED)

    def keep(self, work: DistrunWork) -> None:
        """Keeps a dropped work until several more have been dropped."""
        self._dropped.append(work)

    def future(self, work: DistrunWork) -> Future[list[torch.Tensor]]:
        """Returns the future of `work`."""
        ended: Future[None] = Future()
        outcome = ended.then(lambda _: work.result())
        if threading.current_thread() is self._thread:
            # A callback asks for it, and may wait for it; this thread alone could complete it (PowerSGD does so).
            _complete(work, ended)
            return outcome
        if self._drives(work):
            ended.set_result(None)
            return outcome
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, args=(self._queue,), name="distrun-c10d", daemon=True)
                thread.start()  # may fail: then the next request tries again
                self._thread = thread
            self._queue.put((work, ended))
            self._unended += 1
        return outcome

    def _drives(self, work: DistrunWork) -> bool:
        """Runs `work` for a short time on the caller's thread, if that pays off. True if `work` has ended."""
        with self._lock:
            if self._overlaps or self._unended > 0:
                return False
        return work.is_on_cpu() and work.ends_within(_MOMENT)

    def close(self) -> None:
        """Makes the thread end after it has completed its queue. Does not wait for it."""
        self._dropped.clear()
        with self._lock:
            self._thread = None
            self._queue.put(None)
            self._queue = queue.SimpleQueue()

    def _run(self, waiting: queue.SimpleQueue[tuple[DistrunWork, Future[None]] | None]) -> None:
        while (asked := waiting.get()) is not None:
            _complete(*asked)
            del asked  # drops this thread's references to the tensors
            with self._lock:
                self._unended -= 1


class ThreadPerFuture:
    """Completes every future on a separate thread, for works that end in any order."""

    def keep(self, work: DistrunWork) -> None:
        """Does nothing: only the caller has the works of messages."""

    def future(self, work: DistrunWork) -> Future[list[torch.Tensor]]:
        """Returns the future of `work`."""
        ended: Future[None] = Future()
        threading.Thread(target=_complete, args=(work, ended), name="distrun-c10d", daemon=True).start()
        return ended.then(lambda _: work.result())


def _completed(work: DistrunWork) -> Future[list[torch.Tensor]]:
    """Returns the future of a work that has ended."""
    ended: Future[None] = Future()
    ended.set_result(None)
    return ended.then(lambda _: work.result())


def _complete(work: DistrunWork, ended: Future[None]) -> None:
    with contextlib.suppress(Exception):  # it is raised again when the future's value is made
        work.wait()
    ended.set_result(None)
