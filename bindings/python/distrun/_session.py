"""The job that this process is part of. A process has one session at a time; init opens it, and shutdown closes it.

Threads: any thread may call `current()`. Every C call on a session is listed with its thread (`calling`). The native
session is freed when no call is inside. A caller first adds itself to the list, and then checks whether the session
closes. The closing thread first sets the flag, and then reads the list. So one of the two sees the other. The list is
changed and copied by single calls, which are atomic in the interpreter, with the GIL and without.

Signals: a signal handler may run between any two lines of this file, and may make any call, also shutdown. The calls
of the interrupted thread continue only after the handler. So shutdown does not wait for them, and the last call that
leaves frees the session.
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

# How long shutdown waits for other threads to leave their calls, which have nothing left to wait for.
_DRAIN_SECONDS = 10.0
# With this many handles in flight, the complete ones without a waiting caller are resolved. Never with fewer: memory is
# free then, and the ranks would not refuse the same operations.
SWEEP_AT = 32


@dataclasses.dataclass(frozen=True)
class World:
    """This process's place in the job."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    host: str
    job_id: str
    gpus: tuple[int, ...]  # this rank's GPUs, as indices among the visible ones; empty: none, or not known


class InFlight(Protocol):
    """The part of a handle that a session uses."""

    def resolve_if_complete(self) -> None:
        """Releases tensors and native memory if every operation of the handle is complete."""
        ...


class Session:
    """Owns the native session. `in_flight` keeps handles, and thus their tensors, alive until they are complete."""

    def __init__(self, pointer: int) -> None:
        self.pointer = pointer
        self.world = _read_world(pointer)
        self.in_flight: dict[int, InFlight] = {}
        self.sweep_at = SWEEP_AT  # with this many handles in flight, enqueue sweeps, and sets the next limit
        self.homogeneous = True
        self._counters: dict[tuple[str, int], Iterator[int]] = collections.defaultdict(itertools.count)
        self._callers: list[int] = []  # the thread of each call that is inside
        self._closers: list[int] = []  # the threads that are in shutdown
        self._closing = False
        self._failure: errors.DistrunError | None = None  # the error of leaving the job
        self._known = False  # the job had ended before, and the caller knows it
        # None until closed. The thread that pops the pointer from the list frees it.
        self._to_free: list[int] | None = None
        self._news = allocate_lock()  # released when _callers or _closers change, to wake close()
        self._news.acquire()

    def number(self, operation: str, process_set: int) -> int:
        """Returns the next number of an unnamed operation. Ranks that issue them in the same order get the same
        numbers."""
        return next(self._counters[(operation, process_set)])

    def forget_numbers(self, process_set: int) -> None:
        """Restarts the numbers of unnamed operations at 0: the set is new, or its members have joined.

        After a join the members' numbers differ.
        """
        for key in [key for key in list(self._counters) if key[1] == process_set]:
            del self._counters[key]
        for extension in _extensions:
            extension.forget_numbers(process_set)

    @contextlib.contextmanager
    def calling(self) -> Iterator[int]:
        """Yields the native session, which stays valid inside the with statement."""
        self.enter()
        try:
            yield self.pointer
        finally:
            self.leave()

    def enter(self) -> None:
        """Does what the start of `calling` does, but faster. `leave` must follow."""
        self._callers.append(get_ident())
        if self._closing:
            self.leave()
            raise _not_initialized("distrun has been shut down")

    def leave(self) -> None:
        """Ends what `enter` began. Frees the session if it closes and this is the last call."""
        self._callers.remove(get_ident())
        if self._closing:
            self._report()
            self._free_if_last()

    def _report(self) -> None:
        with contextlib.suppress(RuntimeError):  # it is released already
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
        """Returns the MAC of `data`, which only this job's ranks can compute. Each `purpose` gives another one."""
        made = ctypes.create_string_buffer(_abi.MAC_SIZE)
        memory = data if isinstance(data, bytes) else (ctypes.c_char * len(data)).from_buffer(data)
        with self.calling() as pointer:
            errors.check(library().distrun_mac(pointer, purpose.encode(), memory, len(data), made))
        return made.raw

    @contextlib.contextmanager
    def shutting_down(self) -> Iterator[None]:
        """Marks this thread as one that will `close`. Its other calls cannot end before that."""
        self._closers.append(get_ident())
        try:
            self._report()
            yield
        finally:
            self._closers.remove(get_ident())

    def close(self) -> None:
        """Leaves the job, completes every handle and frees the native session.

        If calls are still inside, the last of them frees the session. Call this under `shutting_down`. A signal handler
        may call close in the middle of close; the inner call then does everything.

        Raises the error of leaving, for instance Timeout if an operation of this rank never completed. It raises
        nothing if another rank was lost, has left or aborted, or if the job had ended before and the caller knows that.
        """
        if self._failure is None:  # else it is from an earlier shutdown, which was interrupted afterwards
            self._known = errors.end_known()
        self._callers.append(get_ident())
        closing = self._closing
        try:
            if not closing:
                self._failure = self._failure or self._leave_job()
                for handle in list(self.in_flight.values()):
                    handle.resolve_if_complete()
            self._closing = True
            self._drain()
            self._detach()
        finally:
            if self._to_free is None:
                self._closing = closing  # interrupted: close() must run again
            self.leave()
        error = self._failure
        left = (_abi.Code.RANK_LOST, _abi.Code.RANK_LEFT, _abi.Code.ABORTED)
        if error is None or error.code in left or (self._known and not error.usable):
            return
        raise error

    def _drain(self) -> None:
        """Waits until the threads that are not in shutdown have left. A thread that stays longer frees the session
        later."""
        deadline = time.monotonic() + _DRAIN_SECONDS
        while any(thread not in self._closers for thread in self._callers.copy()):
            if not self._news.acquire(timeout=max(0.0, deadline - time.monotonic())):
                return

    def _detach(self) -> None:
        if self._to_free is None:
            # A thread inside an extension would use freed memory, so the session is leaked on purpose.
            self._to_free = [self.pointer] if _detach_all() else []

    def _leave_job(self) -> errors.DistrunError | None:
        # Do not drain while an exception ends the program: the other ranks may wait for operations that it prevented.
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
        # Nothing waits for the operations still in flight. Abort completes them, so that their memory can be released.
        # If the job had ended before, that is done, and leaving it is no failure of this rank.
        if error.usable:
            cause = f"shutdown failed: {error}"
            library().distrun_abort_at(self.pointer, cause.encode(), None, 0, error.tensor.encode())
            errors.end_job(error)
        return error


def overlaps(world: World) -> bool:
    """True if submitting operations early pays off, while the program computes on the CPU.

    It does if the data crosses a network, or if a core is free to move it. Otherwise each byte moved, and each switch
    to the thread that moves it, takes time from the program.
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
_forked_from: str | None = None  # in a child forked after init: a text that names the parent


class Extension:
    """A front end's part of opening and closing a session. TensorFlow's ops and JAX's handler use the native
    session."""

    packages: tuple[str, ...] = ()  # the framework's packages; inside their calls a program may wait for operations

    def attach(self, session: int) -> None:
        """Gets the native session right after it was opened. If this raises, init raises the same."""

    def detach(self) -> bool:
        """Returns when the library no longer uses the session, which is freed next. All operations are complete by
        then.

        Returns False if a thread is still inside, for instance this one, in a signal handler that ran during an
        operation.
        """
        return True

    def drain(self) -> None:
        """Returns when the operations of everything the program has dispatched are complete, or have failed."""

    def forget_numbers(self, process_set: int) -> None:
        """Restarts the extension's own numbers of unnamed operations at 0; see Session.forget_numbers."""

    def error_of(self, failure: BaseException) -> errors.DistrunError | None:
        """Returns the distrun exception that a framework's exception stands for, as in compiled programs; or None."""
        del failure
        return None


_extensions: list[Extension] = []


def frameworks() -> tuple[str, ...]:
    """Returns the packages in whose calls a program may wait for operations that it did not submit itself."""
    return tuple(package for extension in _extensions for package in extension.packages)


def _detach_all() -> bool:
    """Detaches every extension from the session, even after one of them has failed to."""
    drained = [extension.detach() for extension in _extensions]
    return all(drained)


def drain_all() -> None:
    """Waits for operations that a framework has dispatched but not submitted yet.

    Called before join, shutdown and the removal of a process set, because this rank submits nothing afterwards.
    """
    for extension in _extensions:
        extension.drain()


def error_of(failure: BaseException) -> errors.DistrunError | None:
    """Returns `failure` if it is a distrun exception, or the one that it stands for; else None."""
    if isinstance(failure, errors.DistrunError):
        return failure
    for extension in _extensions:
        if error := extension.error_of(failure):
            return error
    return None


def extend(extension: Extension) -> None:
    """Attaches `extension` to the open session, if any, and to every later one."""
    with _lock:
        if extension in _extensions:
            return
        if _current is not None:
            extension.attach(_current.pointer)
        _extensions.append(extension)


# A spawned DataLoader worker has no session, and imports the program, which may call init without a __main__ guard.
_FOR_A_CHILD = (
    "If a rank has started it (a DataLoader worker), pass it the values that it needs, such as hvd.rank(), or fork "
    'it: DataLoader(..., multiprocessing_context="fork").'
)


def _is_child() -> bool:
    # While a spawned child imports the program's file, parent_process() is still None.
    importing = getattr(multiprocessing.current_process(), "_inheriting", False)
    return importing or multiprocessing.parent_process() is not None


def _not_initialized(what: str) -> errors.NotInitialized:
    if _is_child():
        return errors.NotInitialized(
            f"{what} in this process, which multiprocessing has started. {_FOR_A_CHILD} Otherwise call hvd.init() "
            "first."
        )
    return errors.NotInitialized(f"{what}; use hvd.init() first.")


def _refused(error: errors.DistrunError) -> errors.DistrunError:
    """Returns the error that init() raises. The runtime cannot see that a child process of the rank calls init."""
    if _is_child() and error.code in (_abi.Code.INVALID_ARGUMENT, _abi.Code.PROTOCOL):
        error.args = (
            "hvd.init() failed in this process, which multiprocessing has started. Put the program under `if "
            f'__name__ == "__main__":`, or each child runs it too. {_FOR_A_CHILD} The reason was: {error}',
        )
    return error


def _after_fork_in_child() -> None:
    global _forked_from
    if _current is not None and _forked_from is None:
        _forked_from = f"rank {_current.world.rank} (pid {os.getppid()})"


os.register_at_fork(after_in_child=_after_fork_in_child)


def forked() -> bool:
    """True in a child that was forked from an initialized process."""
    return _forked_from is not None


def refuse_in_fork() -> None:
    """Raises NotInitialized in a child that was forked from an initialized process."""
    if _forked_from is not None:
        raise errors.NotInitialized(
            f"this process was forked from {_forked_from} after hvd.init(), so it cannot use the connections of its "
            "parent. Communicate in the parent."
        )


def current() -> Session:
    """Returns the open session. Raises NotInitialized without one, and in a forked child."""
    if _forked_from is not None:
        refuse_in_fork()
    session = _current
    if session is None:
        raise _not_initialized("distrun has not been initialized")
    return session


def world() -> World:
    """Returns current().world. Works in a forked child too, because a DataLoader worker may ask for its rank."""
    session = _current
    if session is None:
        raise _not_initialized("distrun has not been initialized")
    return session.world


def is_open() -> bool:
    """True between init and shutdown, in the process that called init."""
    return _current is not None and _forked_from is None


def open_session(settings: Mapping[str, object] | None) -> bool:
    """Joins the job. Returns False if this process has joined already.

    Blocks until all ranks have joined, or start_timeout is over.
    """
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
    """Leaves the job. Returns False if no session was open."""
    global _current
    if _forked_from is not None:
        return False
    session = _current
    if session is None:
        return False
    with session.shutting_down(), _lock:
        if _current is not session:
            return False
        # An interrupted close leaves the session open, so that it can be closed again.
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
    """Ends the job because of `cause`: the other ranks and the launcher get it.

    The launcher also gets the place in the program and the tensor; "" means unknown, or none. Without a session this
    does nothing.
    """
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
    """Returns an answer of the runtime about "settings", "backends", "control" or "why" (the choice of the backend).

    The answer is a text for people. With `json`, "backends" and "why" return the same facts as parsed JSON. Raises
    InvalidArgument for other questions.
    """
    if not isinstance(what, str):
        raise errors.InvalidArgument(f"query takes the name of a question as text, not {what!r}")
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
