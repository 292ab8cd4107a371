"""The job that this process is part of: one session at a time, opened by init and closed by shutdown.

Threads: `current()` may be called from any thread. Every C call on a session is noted with its thread (`calling`), and
the native session is freed when no call is inside it. A caller first adds itself to the list and then checks whether
the session closes. The closing thread first sets the flag and then reads the list, so one of the two sees the other.
The list is changed and copied by single calls, which the interpreter runs one after the other, free-threaded too.

Signal handlers run between any two lines of this file, and may make any call of a program, also shutdown. The calls of
the interrupted thread continue only when the handler returns. So shutdown does not wait for them, and the last call
that leaves frees the session.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import dataclasses
import itertools
import multiprocessing
import os
import sys
import threading
import time
from _thread import allocate_lock
from collections.abc import Iterator, Mapping
from json import loads
from threading import get_ident
from typing import Any, Literal, Protocol, overload

from distrun import _abi, _arguments, _blocking, errors
from distrun._library import library

# How long shutdown waits for other threads to come back from calls that have nothing left to wait for.
_DRAIN_SECONDS = 10.0


@dataclasses.dataclass(frozen=True)
class World:
    """Where this process stands in the job."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    host: str
    job_id: str
    gpus: tuple[int, ...]  # this rank's own, numbered among those that it sees; empty: none, or not told


class InFlight(Protocol):
    """A handle, as far as a session uses it."""

    def settle_if_complete(self) -> None:
        """Lets go of tensors and native memory if every operation of the handle is complete."""
        ...


class Session:
    """Owns the native session. `in_flight` keeps handles, and by them tensors, alive until they are complete."""

    def __init__(self, pointer: int) -> None:
        self.pointer = pointer
        self.world = _read_world(pointer)
        self.in_flight: dict[int, InFlight] = {}
        self.sweep_at = 0  # so many handles in flight make enqueue look for forgotten ones, and say when next
        self.homogeneous = True
        self._counters: dict[tuple[str, int], Iterator[int]] = collections.defaultdict(itertools.count)
        self._callers: list[int] = []  # the thread of each call that is inside
        self._closers: list[int] = []  # the threads that are in shutdown
        self._closing = False
        self._failure: errors.DistrunError | None = None  # what leaving the job has said
        self._known = False  # the job had ended before, and the caller knows
        # Not None: closed. The thread that takes the pointer out of the list frees it.
        self._to_free: list[int] | None = None
        self._news = allocate_lock()  # held unless there are some for close, about _callers and _closers
        self._news.acquire()

    def number(self, operation: str, process_set: int) -> int:
        """The next number of an unnamed operation: equal on all ranks that issue them in the same order."""
        return next(self._counters[(operation, process_set)])

    def forget_numbers(self, process_set: int) -> None:
        """Operations start again at 0: the set is new, or its members, whose numbers differ by then, have joined."""
        for key in [key for key in list(self._counters) if key[1] == process_set]:
            del self._counters[key]
        for extension in _extensions:
            extension.forget_numbers(process_set)

    @contextlib.contextmanager
    def calling(self) -> Iterator[int]:
        """The native session, which stays valid inside the with statement."""
        self.enter()
        try:
            yield self.pointer
        finally:
            self.leave()

    def enter(self) -> None:
        """Like the start of `calling`, without its cost; `leave` must follow."""
        self._callers.append(get_ident())
        if self._closing:
            self.leave()
            raise _not_initialized("distrun has been shut down")

    def leave(self) -> None:
        """Ends what `enter` began."""
        self._callers.remove(get_ident())
        if self._closing:
            self._tell()
            self._free_if_last()

    def _tell(self) -> None:
        with contextlib.suppress(RuntimeError):  # told already
            self._news.release()

    def _free_if_last(self) -> None:
        if self._callers or not self._to_free:
            return
        try:
            pointer = self._to_free.pop()
        except IndexError:
            return  # another thread was faster
        library().distrun_close(pointer)
        self.in_flight.clear()

    def mac(self, purpose: str, data: bytes | bytearray) -> bytes:
        """What only this job's ranks can make of `data`; another one for each purpose."""
        made = ctypes.create_string_buffer(_abi.MAC_SIZE)
        memory = data if isinstance(data, bytes) else (ctypes.c_char * len(data)).from_buffer(data)
        with self.calling() as pointer:
            errors.check(library().distrun_mac(pointer, purpose.encode(), memory, len(data), made))
        return made.raw

    @contextlib.contextmanager
    def shutting_down(self) -> Iterator[None]:
        """For a thread that is going to `close`: its own calls cannot end before that."""
        self._closers.append(get_ident())
        try:
            self._tell()
            yield
        finally:
            self._closers.remove(get_ident())

    def close(self) -> None:
        """Leaves the job, completes every handle and frees the native session, or has it freed by the last call that is
        inside. Under `shutting_down`. A signal handler may call it in the middle of itself: that one does it all.

        What this rank has submitted and never completed is raised as Timeout; a job that has ended already is what the
        caller knows, unless it ended only now.
        """
        if self._failure is None:  # else it is of a shutdown that was interrupted after it
            self._known = errors.end_told()
        self._callers.append(get_ident())
        closing = self._closing
        try:
            if not closing:
                self._failure = self._failure or self._leave_job()
                for handle in list(self.in_flight.values()):
                    handle.settle_if_complete()
            self._closing = True
            self._drain()
            self._detach()
        finally:
            if self._to_free is None:
                self._closing = closing  # interrupted: to be closed again
            self.leave()
        error = self._failure
        left = (_abi.Code.RANK_LOST, _abi.Code.RANK_LEFT, _abi.Code.ABORTED)
        if error is None or error.code in left or (self._known and not error.usable):
            return
        raise error

    def _drain(self) -> None:
        """Waits until threads that are not in shutdown themselves have left; one that does not come frees later."""
        deadline = time.monotonic() + _DRAIN_SECONDS
        while any(thread not in self._closers for thread in self._callers.copy()):
            if not self._news.acquire(timeout=max(0.0, deadline - time.monotonic())):
                return

    def _detach(self) -> None:
        if self._to_free is None:
            # A thread that is still inside an extension would use freed memory: then the session is leaked on purpose.
            self._to_free = [self.pointer] if _detach_all() else []

    def _leave_job(self) -> errors.DistrunError | None:
        # Not while an exception ends the program: the others may wait for operations that it prevented.
        raised = sys.exc_info()[1]
        if raised is None or (isinstance(raised, SystemExit) and raised.code in (None, 0)):
            drain_all()
        while True:
            code = library().distrun_shutdown(self.pointer)
            if code == _abi.Code.OK:
                return None
            if code != _abi.Code.INTERRUPTED:
                break
        error = errors.last_error()
        # Nobody waits for what is still in flight: complete it, so that its memory can be let go. A job that has ended
        # already has done that, and leaving it is no failure of this rank's.
        if error.usable:
            cause = f"shutdown failed: {error}"
            library().distrun_abort_at(self.pointer, cause.encode(), None, 0, error.tensor.encode())
            errors.end_job(error)
        return error


def overlaps(world: World) -> bool:
    """True if it pays to hand operations over while the program computes on the CPU: their data comes over a network,
    or a core is free to move it. Otherwise each byte that moves, and each switch to the thread that moves it, takes
    its time from the program.
    """
    cores = min(len(os.sched_getaffinity(0)), (os.cpu_count() or 1) // world.local_size)
    return world.size > world.local_size or cores > 1


def _read_world(pointer: int) -> World:
    raw = _abi.WorldStruct(struct_size=ctypes.sizeof(_abi.WorldStruct))
    errors.check(library().distrun_get_world(pointer, ctypes.byref(raw)))
    return World(
        rank=raw.rank,
        size=raw.size,
        local_rank=raw.local_rank,
        local_size=raw.local_size,
        cross_rank=raw.cross_rank,
        cross_size=raw.cross_size,
        host=(raw.host or b"").decode(errors="replace"),
        job_id=(raw.job_id or b"").decode(errors="replace"),
        gpus=tuple(raw.gpus[: raw.num_gpus]),
    )


_lock = threading.RLock()  # init and shutdown, one at a time
_current: Session | None = None
_forked_from: str | None = None  # in a child made by fork after init: whom it was forked from


class Extension:
    """A front end's part in opening and closing: TensorFlow's ops and JAX's handler use the native session."""

    packages: tuple[str, ...] = ()  # of the framework, in whose calls a program may wait for operations

    def attach(self, session: int) -> None:
        """The native session, just opened. An exception makes init fail with it."""

    def detach(self) -> bool:
        """Returns when the library no longer uses the session, which is freed next; everything is complete then.

        False: a thread is still inside, as this one is in a signal handler that ran in an operation.
        """
        return True

    def drain(self) -> None:
        """Returns when the operations of all that the program has dispatched are complete, or have failed."""

    def forget_numbers(self, process_set: int) -> None:
        """The extension's own numbers of unnamed operations start again at 0, as Session.forget_numbers says."""

    def error_of(self, failure: BaseException) -> errors.DistrunError | None:
        """The distrun exception that an exception of the framework stands for, as compiled programs raise; or None."""
        del failure
        return None


_extensions: list[Extension] = []


def frameworks() -> tuple[str, ...]:
    """The packages in whose calls a program may wait for operations that it did not submit itself."""
    return tuple(package for extension in _extensions for package in extension.packages)


def _detach_all() -> bool:
    """Every extension lets go of the session, also where one of them cannot."""
    drained = [extension.detach() for extension in _extensions]
    return all(drained)


def drain_all() -> None:
    """Before join, shutdown and the end of a process set, after which this rank submits nothing more: a framework may
    not have got to it yet."""
    for extension in _extensions:
        extension.drain()


def error_of(failure: BaseException) -> errors.DistrunError | None:
    """`failure`, if it is a distrun exception, or the one that it stands for; or None."""
    if isinstance(failure, errors.DistrunError):
        return failure
    for extension in _extensions:
        if error := extension.error_of(failure):
            return error
    return None


def extend(extension: Extension) -> None:
    """Attaches `extension` to the open session, if there is one, and to every later one."""
    with _lock:
        if extension in _extensions:
            return
        if _current is not None:
            extension.attach(_current.pointer)
        _extensions.append(extension)


# A DataLoader's worker that is started anew knows nothing of its parent's session, and runs a program without a guard.
_FOR_A_CHILD = (
    "If its parent is a rank, as a DataLoader worker's is, pass it what it is to know (hvd.rank()), or have it forked "
    '(DataLoader(..., multiprocessing_context="fork")).'
)


def _is_child() -> bool:
    # While the child imports the program's file, it has no parent yet.
    importing = getattr(multiprocessing.current_process(), "_inheriting", False)
    return importing or multiprocessing.parent_process() is not None


def _not_initialized(what: str) -> errors.NotInitialized:
    if _is_child():
        return errors.NotInitialized(
            f"{what} in this process, which multiprocessing has started. {_FOR_A_CHILD} Else use hvd.init() first."
        )
    return errors.NotInitialized(f"{what}; use hvd.init() first.")


def _refused(error: errors.DistrunError) -> errors.DistrunError:
    """What init() raises: the runtime cannot see that it is the program's own child that asks to be the rank."""
    if _is_child() and error.code in (_abi.Code.INVALID_ARGUMENT, _abi.Code.PROTOCOL):
        error.args = (
            "hvd.init() was refused in this process, which multiprocessing has started. Put the program under "
            f'`if __name__ == "__main__":`, or each child runs it too. {_FOR_A_CHILD} The reason was: {error}',
        )
    return error


def _after_fork_in_child() -> None:
    global _forked_from
    if _current is not None and _forked_from is None:
        _forked_from = f"rank {_current.world.rank} (pid {os.getppid()})"


os.register_at_fork(after_in_child=_after_fork_in_child)


def forked() -> bool:
    """True in a child that was forked from an initialised process."""
    return _forked_from is not None


def refuse_in_fork() -> None:
    """Raises NotInitialized in a child that was forked from an initialised process."""
    if _forked_from is not None:
        raise errors.NotInitialized(
            f"this process was forked from {_forked_from} after distrun was initialised, and the connections belong to "
            "the parent; communicate in the parent."
        )


def current() -> Session:
    """The open session; raises NotInitialized without one and in a forked child."""
    if _forked_from is not None:
        refuse_in_fork()
    session = _current
    if session is None:
        raise _not_initialized("distrun has not been initialized")
    return session


def world() -> World:
    """Like current().world, but answers in a forked child too: a DataLoader worker may ask for its rank."""
    session = _current
    if session is None:
        raise _not_initialized("distrun has not been initialized")
    return session.world


def is_open() -> bool:
    """True between init and shutdown, in the process that called init."""
    return _current is not None and _forked_from is None


def open_session(settings: Mapping[str, object] | None) -> bool:
    """Joins the job; False if that was done before. Blocks until all ranks have come or start_timeout is over."""
    global _current
    refuse_in_fork()
    texts = _arguments.settings(settings)
    with _lock:
        if _current is not None:
            return False
        options = _abi.OptionsStruct(struct_size=ctypes.sizeof(_abi.OptionsStruct), num_settings=len(texts))
        options.settings = (ctypes.c_char_p * max(1, len(texts)))(*texts)

        def join() -> int:
            made = ctypes.c_void_p()
            if library().distrun_init(ctypes.byref(options), ctypes.byref(made)) != _abi.Code.OK:
                raise _refused(errors.last_error())
            assert made.value is not None
            return made.value

        pointer = _blocking.call(join, drop=library().distrun_close)
        try:
            session = Session(pointer)
            for extension in _extensions:
                extension.attach(session.pointer)
        except BaseException:
            if _detach_all():
                library().distrun_close(pointer)
            raise
        _current = session
        errors.set_own_rank(_current.world.rank)
        return True


def close_session() -> bool:
    """Leaves the job; False if there was none."""
    global _current
    if _forked_from is not None:
        return False
    session = _current
    if session is None:
        return False
    with session.shutting_down(), _lock:
        if _current is not session:
            return False
        # An interrupted close leaves the session as it was, to be closed again.
        try:
            session.close()
        except errors.DistrunError:
            if session._to_free is not None and _current is session:
                _current = None
            raise
        if _current is session:
            _current = None
        return True


def abort(cause: str, file: str = "", line: int = 0, tensor: str = "") -> None:
    """Tells the other ranks that this one ends because of `cause`, and the launcher where in the program, and by which
    tensor; "": not known, or none. Without a session, nothing happens."""
    session = _current
    if session is None or _forked_from is not None:
        return
    with session.calling() as pointer:
        texts = [text.encode(errors="replace") for text in (cause, file, tensor)]
        library().distrun_abort_at(pointer, texts[0], texts[1], line, texts[2])


@overload
def query(what: str, *, json: Literal[False] = False) -> str: ...
@overload
def query(what: str, *, json: Literal[True]) -> Any: ...
def query(what: str, *, json: bool = False) -> Any:
    """An answer of the runtime: "settings", "backends", "control" or "why". A text for people; with `json` the same
    facts as fields, for "backends" and "why"."""
    if not isinstance(what, str):
        raise errors.InvalidArgument(f"query takes the name of a question, not {what!r}")
    if json and what not in ("backends", "why"):
        raise errors.InvalidArgument(f'query("{what}") has no JSON; "backends" and "why" have')
    text = _ask(f"{what}.json" if json else what)
    return loads(text) if json else text


def _ask(what: str) -> str:
    native = library()
    with contextlib.ExitStack() as stack:
        pointer = stack.enter_context(_current.calling()) if is_open() and _current is not None else None
        needed = native.distrun_query(pointer, what.encode(), None, 0)
        if needed < 0:
            raise errors.last_error()
        buffer = ctypes.create_string_buffer(needed + 1)
        native.distrun_query(pointer, what.encode(), buffer, len(buffer))
    return buffer.value.decode(errors="replace")
