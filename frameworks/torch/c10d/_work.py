"""Work and Future: how a caller of c10d waits for an operation, and how its failure reaches him.

Future.set_exception leaves the exception behind as a plain value, which C++ (DDP's reducer) takes for tensors. So a
future of ours is the `then` of another one, whose callback raises: that arrives in C++ and Python alike.
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

# Any: torch's stubs are for works made in C++.
_Work: Any = dist.Work

# Seconds. Who waits so long for a peer is ahead of it, and loses nothing; one that is further ahead can use the time.
_MOMENT = 2e-3

# Of works that were dropped unasked: how many are kept, and of how many bytes at most.
_DROPPED, _SMALL = 16, 1024


class InFlight(Protocol):
    """A Handle, or several works."""

    def poll(self) -> bool:
        """True once it has ended."""
        ...

    def wait(self, timeout: float | None = None) -> object:
        """Raises Timeout after `timeout` seconds, or what went wrong."""
        ...


class Together:
    """Several works as one."""

    def __init__(self, works: Sequence[DistrunWork]) -> None:
        self._works = works

    def poll(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def wait(self, timeout: float | None = None) -> None:
        limit = None if timeout is None else timedelta(seconds=max(timeout, 1e-6))  # 0 is c10d's word for the group's
        for work in self._works:
            work.wait(limit)


class DistrunWork(_Work):
    """One call of a collective in flight. Any thread may wait, poll or ask for the future, several at once.

    Nothing runs beside the caller until someone asks for a future: wait() drives the operation itself.
    """

    def __init__(
        self, handle: InFlight, what: str, result: list[torch.Tensor], limit: float, watch: Watch | EachAlone
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
        self._seen_ended = False  # a caller has waited for it, or found it complete

    def __del__(self) -> None:
        # C++ may have it still, and would find the methods of its own, which wait for ever: DDP's reducer, which has
        # dropped it here, asks in backward how many ranks have data (join, divide_by_initial_world_size=False).
        if not self._asked and sum(tensor.nbytes for tensor in self._result) <= _SMALL:
            self._watch.keep(self)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """True when the outputs are there. Raises a DistrunError that names what went wrong, the ranks among it.

        Timeout after `timeout` from now, or by itself after the group's timeout from the call; the operation is then
        still in flight and its tensors stay in use, and the ranks no longer agree what comes next.
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
            if self._handle.poll() or time.monotonic() < end:  # a signal handler's own
                raise
            expired = errors.Timeout(
                f"{self._what} was not complete within a timeout of {left if own else self._limit:g} seconds: not all "
                "ranks that it takes have called it, or one is slow. distrun's warnings on standard error name them.",
                ranks=error.ranks,
            )
            if not own:
                self._expired = expired
            raise expired from None
        self._seen_ended = True
        return True

    def ends_within(self, seconds: float) -> bool:
        """True if it has ended by then, well or not."""
        self._failure(seconds)
        return self._handle.poll()

    def _failure(self, seconds: float) -> Exception | None:
        """What wait() would raise; what goes into the outputs by a copy is there then. None if it has ended well, or
        not within `seconds`: 0 is for what has ended."""
        end = time.monotonic() + seconds
        try:
            self._handle.wait(seconds)
        except Exception as first:
            if isinstance(first, errors.Timeout) and seconds > 0.0 and time.monotonic() >= end:
                return None
            # The operation's comes again. A signal handler's does not, and whoever is here is the one to hear of it.
            ended = self._handle.poll()
            try:
                self._handle.wait(0.0)
            except Exception as again:
                if ended or not isinstance(again, errors.Timeout):
                    return again
            raise
        return None

    def is_on_cpu(self) -> bool:
        """True if its outputs are known to be there."""
        return bool(self._result) and all(tensor.device.type == "cpu" for tensor in self._result)

    def synchronize(self) -> None:
        """Like wait()."""
        self.wait()

    def is_completed(self) -> bool:
        """True once it has ended, well or not; the outputs are there then. Waits for nobody."""
        if self._expired is not None:
            return True
        if not self._handle.poll():
            return False
        self._failure(0.0)
        self._seen_ended = True
        return True

    def is_success(self) -> bool:
        """True once it has ended well."""
        return self.is_completed() and self.exception() is None

    def ended_well(self) -> bool:
        """Like is_success(), which counts as asking."""
        return self._expired is None and self._handle.poll() and self._failure(0.0) is None

    def exception(self) -> BaseException | None:
        """What wait() would raise; None if it is in flight or has ended well."""
        self._asked = True
        return (self._expired or self._failure(0.0)) if self.is_completed() else None

    def result(self) -> list[torch.Tensor]:
        """The outputs, after wait()."""
        self.wait()
        return self._result

    def get_future(self) -> Future[list[torch.Tensor]]:
        """A future with the outputs, completed on a thread of the group's; callbacks run there. Raises like wait()."""
        self._asked = True
        with self._lock:
            if self._future is None:
                # DDP's reducer takes the value without waiting where it has waited for the work (join,
                # divide_by_initial_world_size=False).
                self._future = _completed(self) if self._seen_ended else self._watch.future(self)
            return self._future


class Watch:
    """Completes the futures of one group, in the order in which they were asked for: a group's operations end in the
    order of their calls, or it is broken. Its thread starts with the first future that has to wait and ends with
    `close`.

    `overlaps`: see _session.overlaps. Without, whoever asks for a future of tensors on the CPU first drives the
    operation himself for a moment: DDP's reducer, who asks, has nothing better to do with its core.
    """

    def __init__(self, overlaps: bool = True) -> None:
        self._overlaps = overlaps
        self._unended = 0  # in the thread's queue
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[tuple[DistrunWork, Future[None]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._dropped: collections.deque[DistrunWork] = collections.deque(maxlen=_DROPPED)

    def keep(self, work: DistrunWork) -> None:
        """Until some more were dropped like it."""
        self._dropped.append(work)

    def future(self, work: DistrunWork) -> Future[list[torch.Tensor]]:
        """The future of `work`."""
        ended: Future[None] = Future()
        outcome = ended.then(lambda _: work.result())
        if threading.current_thread() is self._thread:
            # A callback asks, and may wait for what nobody else would complete (PowerSGD's does).
            _complete(work, ended)
            return outcome
        if self._drives(work):
            ended.set_result(None)
            return outcome
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, args=(self._queue,), name="distrun-c10d", daemon=True)
                thread.start()  # may be refused: then the next one who asks tries again
                self._thread = thread
            self._queue.put((work, ended))
            self._unended += 1
        return outcome

    def _drives(self, work: DistrunWork) -> bool:
        """True if `work` has ended."""
        with self._lock:
            if self._overlaps or self._unended > 0:
                return False
        return work.is_on_cpu() and work.ends_within(_MOMENT)

    def close(self) -> None:
        """The thread ends when it has completed what it has. Does not wait for it."""
        self._dropped.clear()
        with self._lock:
            self._thread = None
            self._queue.put(None)
            self._queue = queue.SimpleQueue()

    def _run(self, waiting: queue.SimpleQueue[tuple[DistrunWork, Future[None]] | None]) -> None:
        while (asked := waiting.get()) is not None:
            _complete(*asked)
            del asked  # the tensors are the caller's alone again
            with self._lock:
                self._unended -= 1


class EachAlone:
    """Completes every future on a thread of its own: of works that end in any order."""

    def keep(self, work: DistrunWork) -> None:
        """Not at all: of messages nobody but their caller has works."""

    def future(self, work: DistrunWork) -> Future[list[torch.Tensor]]:
        """The future of `work`."""
        ended: Future[None] = Future()
        threading.Thread(target=_complete, args=(work, ended), name="distrun-c10d", daemon=True).start()
        return ended.then(lambda _: work.result())


def _completed(work: DistrunWork) -> Future[list[torch.Tensor]]:
    """The future of a work that has ended."""
    ended: Future[None] = Future()
    ended.set_result(None)
    return ended.then(lambda _: work.result())


def _complete(work: DistrunWork, ended: Future[None]) -> None:
    with contextlib.suppress(Exception):  # it is raised again where the future's value is made
        work.wait()
    ended.set_result(None)
