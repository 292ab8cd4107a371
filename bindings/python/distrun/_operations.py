"""Operations in flight. One C call submits many tensors, and one Handle represents all of them.

Memory: a Handle owns references to its tensors until no thread and no device can touch them any more. While it is in
flight the session owns the Handle too. So a caller who drops it, or is interrupted, frees nothing too early.

Signals: a signal handler may run between any two lines of this file. It may wait for the same handle, submit other
operations or shut down. So this file holds only a reentrant lock while it makes an output. An exception of a signal
handler is not the operation's outcome; the handle then stays unchanged.
"""

from __future__ import annotations

import ctypes
import threading
import time
from _thread import RLock
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

from distrun import _abi, _arguments, _session, errors
from distrun._abi import ReduceOp
from distrun._library import library

R = TypeVar("R")

# If a signal arrives after Python's last check and before the C wait, Python notices it only when the wait ends.
# So the main thread, which runs the handlers, ends each C wait after this time.
_LOOK_SECONDS = 0.5
_OK = int(_abi.Code.OK)
_INTERRUPTED = int(_abi.Code.INTERRUPTED)
_TIMEOUT = int(_abi.Code.TIMEOUT)
_OP_SIZE = ctypes.sizeof(_abi.OpStruct)
_RESULT_SIZE = ctypes.sizeof(_abi.ResultStruct)


class Op(NamedTuple):
    """One operation of a batch. Its pointers must stay valid until the handle is complete; `keep` in enqueue() owns
    them."""

    kind: int
    name: str
    dtype: int = 0
    shape: tuple[int, ...] = ()
    input: int = 0
    output: int = 0
    reduce: ReduceOp = ReduceOp.SUM
    root: int = 0
    prescale: float = 1.0
    postscale: float = 1.0
    process_set: int = 0
    group: int = -1
    device_type: int = 0
    device_index: int = 0
    stream: int = 0
    splits: tuple[int, ...] = ()


class Gathered(NamedTuple):
    """The result of an allgather or alltoall. `data` points to the runtime's memory, valid only inside `finish`.

    For a join, only first_dims has a meaning: the rank that joined last.
    """

    shape: tuple[int, ...]
    data: int
    bytes: int
    first_dims: tuple[int, ...]


@lru_cache(maxsize=4096)
def _shape_array(shape: tuple[int, ...]) -> tuple[ctypes.Array[ctypes.c_int64], int]:
    array = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    return array, ctypes.addressof(array)


def fill(struct: _abi.OpStruct, op: Op) -> object:
    """Writes `op` into the C struct, and returns the memory that the struct points to.

    A caller that uses the struct later keeps that memory alive too.
    """
    # Unchecked, ctypes would keep the lowest 32 bits of the root, and C the part of the name before a NUL.
    root = op.root if type(op.root) is int else _arguments.root_rank(op.root)
    if not -1 << 31 <= root < 1 << 31:
        raise ValueError(f"the root of '{op.name}' must be a rank of the job, not {root}.")
    if "\0" in op.name:
        raise ValueError(f"the name of an operation must not contain a NUL character: {op.name!r}.")
    shape, struct.shape = _shape_array(op.shape)
    splits, struct.splits = _shape_array(op.splits) if op.splits else (None, None)
    struct.struct_size = _OP_SIZE
    struct.kind = op.kind
    struct.name = op.name.encode()
    struct.dtype = op.dtype
    struct.reduce = op.reduce.native
    struct.device_type = op.device_type
    struct.device_index = op.device_index
    struct.ndim = len(op.shape)
    struct.root = root
    struct.input = op.input
    struct.output = op.output
    struct.prescale = op.prescale
    struct.postscale = op.postscale
    struct.process_set = op.process_set
    struct.group = op.group
    struct.stream = op.stream
    struct.num_splits = len(op.splits)
    return shape, splits


class _Scratch(threading.local):
    """An array of C structs that this thread reuses for each call. The runtime copies its contents."""

    def __init__(self) -> None:
        self.ops: ctypes.Array[_abi.OpStruct] | None = None
        self.submitted = False

    def take(self, count: int) -> ctypes.Array[_abi.OpStruct]:
        """Takes the array for the caller, who puts it back into `ops`. A signal handler in between gets a new array."""
        ops, self.ops = self.ops, None
        return ops if ops is not None and len(ops) >= count else (_abi.OpStruct * (2 * count))()


_scratch = _Scratch()


def this_thread_submitted() -> bool:
    """True if the calling thread has ever submitted an operation. Other ranks may then wait for its next one."""
    return _scratch.submitted


class Handle(Generic[R]):
    """One or more operations in flight that were submitted together. `enqueue` makes it, and `wait` finishes it.

    Any thread may call its methods, and several at once. A resolved handle has its outcome, and has released its
    tensors.
    """

    __slots__ = (
        "_count",
        "_failure",
        "_finish",
        "_handles",
        "_inside",
        "_keep",
        "_lock",
        "_ops",
        "_resolved",
        "_session",
        "_value",
    )

    def __init__(
        self,
        session: _session.Session,
        handles: ctypes.Array[ctypes.c_void_p],
        keep: object,
        finish: Callable[[Handle[R]], R],
        ops: Sequence[Op] = (),
    ) -> None:
        self._session = session
        self._handles: ctypes.Array[ctypes.c_void_p] | None = handles
        self._count = len(handles)
        self._keep = keep
        self._ops = ops  # for the names in errors
        self._finish: Callable[[Handle[R]], R] | None = finish
        self._lock = RLock()  # held by the thread that resolves the handle
        self._inside: list[None] = []  # one for each call that uses the native handles
        self._resolved = False
        self._failure: Exception | None = None
        self._value: R | None = None

    def poll(self) -> bool:
        """Returns True once the operation is complete, whether it succeeded or failed. Never blocks."""
        if not self._resolved and self._enter():
            try:
                handles, native = self._handles, library()
                assert handles is not None
                return all(native.distrun_poll(handles[i]) for i in range(self._count))
            finally:
                self._leave()
        # If the handle is being submitted at this moment, it has no native handles yet, so it is not complete.
        return self._resolved

    def wait(self, timeout: float | None = None) -> R:
        """Waits for the operation and returns its output, or raises its exception.

        After `timeout` seconds it raises Timeout; the operation stays in flight, and wait() may be called again. None
        waits without a limit. Signal handlers run during the wait. Several threads may wait at once.
        """
        timeout = _arguments.seconds("timeout", timeout)
        if not self._resolved and self._enter():
            try:
                failed = self._wait_native(timeout)
                try:
                    self._resolve(failed)
                except errors.DistrunError:  # if it comes again, it is the operation's; else a signal handler's
                    self._resolve(failed, kept=errors.DistrunError)
                    if self._failure is None:
                        raise
            finally:
                self._leave()
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        return self._value  # type: ignore[return-value]

    def gathered(self, index: int) -> Gathered:
        """Returns the runtime's result for the operation at `index` of the batch. Call it only inside `finish`."""
        raw = _abi.ResultStruct(struct_size=_RESULT_SIZE)
        assert self._handles is not None
        errors.check(library().distrun_get_result(self._handles[index], ctypes.byref(raw)))
        return Gathered(
            tuple(raw.shape[: raw.ndim]) if raw.ndim else (),
            raw.data or 0,
            raw.bytes,
            tuple(raw.first_dims[: raw.num_members]) if raw.num_members else (),
        )

    def __reduce_ex__(self, _: Any) -> str:
        """Raises TypeError: a copy could not wait for the operation."""
        raise TypeError(
            "a handle cannot be copied or pickled, because it belongs to an operation in flight. Wait for it with "
            "synchronize(handle) or handle.wait(), and copy the result."
        )

    def guard(self, check: Callable[[], errors.DistrunError | None]) -> None:
        """Adds a check that runs when the operation is complete. Call this before anyone waits for the handle.

        If `check` returns an error, that is the outcome, unless making the output fails. After it has returned None
        once, it is not called again, because making the output may write to tensors.
        """
        finish = self._finish
        passed: list[None] = []

        def guarded(handle: Handle[R]) -> R:
            assert finish is not None
            error = None if passed else check()
            if error is None:
                passed.append(None)
            value = finish(handle)
            if error is not None:
                raise error
            return value

        if finish is not None:  # else another thread has resolved it
            self._finish = guarded

    def keeps(self, what: object) -> bool:
        """True if `what` is the object that owns the handle's memory, and the handle is not resolved."""
        return self._keep is what

    def resolve_if_complete(self) -> None:
        """Releases the tensors and the native memory if the operation is complete. For handles without a waiting
        caller."""
        try:
            if self.poll() and not self._resolved and self._enter():
                try:
                    self._resolve_unasked()
                finally:
                    self._leave()
        except errors.NotInitialized:
            pass  # the shutdown was first, and releases them

    def _wait_native(self, timeout: float | None) -> bool:
        """Returns when every operation is complete, since only then is their memory free. True if one may have
        failed."""
        deadline = None if timeout is None else time.monotonic() + timeout
        look = _LOOK_SECONDS if threading.current_thread() is threading.main_thread() else -1.0
        handles, native = self._handles, library()
        assert handles is not None
        waiting = handles[0] if self._count == 1 else None
        while True:
            left = look if deadline is None else max(0.0, deadline - time.monotonic())
            if look >= 0:
                left = min(left, look)
            if waiting is not None:
                code = native.distrun_wait(waiting, left)
            else:
                code = native.distrun_wait_all(handles, self._count, left, None)
            if code == _OK and (waiting is None or self._count == 1):
                return False
            missing = next((handle for handle in handles if not native.distrun_poll(handle)), None)
            if missing is None:
                return True
            if code not in (_INTERRUPTED, _TIMEOUT):
                waiting = missing  # one of several failed: wait for the others one by one
            if deadline is not None and time.monotonic() >= deadline:
                raise self._too_late(handles, timeout)

    def _too_late(self, handles: ctypes.Array[ctypes.c_void_p], timeout: float | None) -> errors.Timeout:
        native, ops = library(), self._ops
        late = [op.name for op, handle in zip(ops, handles, strict=False) if not native.distrun_poll(handle)]
        who = f"'{late[0]}' is" if late else "the operation is"
        if len(late) > 1:
            who = f"'{late[0]}' and {len(late) - 1} more of the same call are"
        return errors.Timeout(
            f"{who} not complete after {timeout:g} seconds and still in flight.",
            tensor=late[0] if late else "",
        )

    def _enter(self) -> bool:
        """Keeps the native handles alive until `_leave`.

        Returns False if they are released, because all are resolved, or if the operation is still being submitted.
        """
        _session.refuse_in_fork()
        handles = self._handles
        if self._resolved or not handles or handles[0] is None:
            return False
        try:
            self._session.enter()
        except errors.NotInitialized:
            if self._resolved:  # the shutdown has resolved it
                return False
            raise
        # Enter, then check. The resolving thread sets _resolved, then looks for callers: one of the two sees the other.
        self._inside.append(None)
        if self._resolved:
            self._leave()
            return False
        return True

    def _leave(self) -> None:
        try:
            self._inside.pop()
            # If several threads leave last at the same time, the pop succeeds in one of them.
            if self._resolved and not self._inside and self._session.in_flight.pop(id(self), None) is not None:
                self._release()
        finally:
            self._session.leave()

    def _resolve(self, failed: bool, kept: type[Exception] | tuple[()] = ()) -> None:
        """Takes the outcome and makes the output. All native handles are complete.

        An exception outside `kept` leaves the handle unchanged. It may be a signal handler's, or a MemoryError for the
        output; the next wait may succeed.
        """
        with self._lock:
            finish = self._finish
            if self._resolved or finish is None:
                return
            value: R | None = None
            failure: Exception | None = None
            try:
                failure = self._first_error() if failed else None
                if failure is None:
                    value = finish(self)
            except kept as error:
                failure = error
            if not self._resolved:  # else a signal handler has waited for it in between
                self._value, self._failure = value, failure
                self._resolved = True
            self._keep = self._finish = None
            self._ops = ()

    def _resolve_unasked(self) -> None:
        # If another thread has the lock, it resolves the handle. It may be in a signal handler that waits for this
        # thread.
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._resolve(failed=True)
        except Exception as error:
            # Try again. The operation's exception comes again, and is kept for the waiting caller. A signal handler's
            # does not, and is raised here. A MemoryError is dropped if the second try found memory.
            self._resolve(failed=True, kept=Exception)
            if self._failure is None and not isinstance(error, MemoryError):
                raise
        finally:
            self._lock.release()

    def _first_error(self) -> errors.DistrunError | None:
        for handle in self._handles or ():
            error = errors.handle_error(handle or 0)
            if error is not None:
                return error
        return None

    def _release(self) -> None:
        native, handles = library(), self._handles
        self._handles = None
        for handle in handles or ():
            native.distrun_release(handle)


def checked(handle: object) -> Handle[Any]:
    """Returns `handle` if it is a Handle, as every ..._async call returns; TypeError otherwise."""
    if not isinstance(handle, Handle):
        raise TypeError(f"poll and synchronize take a handle that an ..._async call returned, not {handle!r}.")
    return handle


def enqueue(ops: Sequence[Op], keep: object, finish: Callable[[Handle[R]], R]) -> Handle[R]:
    """Submits all of `ops` or none, and returns their handle.

    `keep` owns the operations' memory. `finish` makes the output after all have succeeded.
    """
    if not ops:
        return _nothing_to_do(finish)
    array = _scratch.take(len(ops))
    try:
        shapes = [fill(struct, op) for struct, op in zip(array, ops, strict=False)]
        handle = enqueue_array(array, len(ops), keep, finish, ops)
        del shapes  # the runtime has copied them
        return handle
    finally:
        _scratch.ops = array


def _nothing_to_do(finish: Callable[[Handle[R]], R]) -> Handle[R]:
    """Returns the handle of an empty group. It is complete at once, without the other ranks."""
    handle: Handle[R] = Handle(_session.current(), (ctypes.c_void_p * 0)(), None, finish)
    handle._resolve(failed=False)
    return handle


def enqueue_array(
    array: ctypes.Array[_abi.OpStruct],
    count: int,
    keep: object,
    finish: Callable[[Handle[R]], R],
    ops: Sequence[Op] = (),
) -> Handle[R]:
    """Like `enqueue`, for C structs that the caller reuses in every step. `ops` are the operations in them."""
    session = _session.current()
    handles = (ctypes.c_void_p * count)()
    handle: Handle[R] = Handle(session, handles, keep, finish, ops)
    session.enter()
    try:
        # Register the handle first: a signal handler that raises right after the C call must not free the tensors.
        session.in_flight[id(handle)] = handle
        code = library().distrun_enqueue(session.pointer, array, count, handles)
        if code != _OK:
            raise errors.last_error()
    except BaseException:
        if handles[0] is None:
            session.in_flight.pop(id(handle), None)
        raise
    finally:
        session.leave()
    _scratch.submitted = True
    if len(session.in_flight) >= session.sweep_at:
        _sweep(session)
    return handle


def handed_over(keep: object) -> Handle[Any] | None:
    """Returns the unresolved handle of the operations submitted with this same `keep` object; None if there is none.

    For a caller that lost the handle to an exception, for instance of a signal handler. That handler may have shut
    down.
    """
    session = _session._current
    flying = [] if session is None else list(session.in_flight.values())
    return next((one for one in flying if isinstance(one, Handle) and one.keeps(keep)), None)


def _sweep(session: _session.Session) -> None:
    """Settles the complete handles without a waiting caller. The cost per operation stays constant."""
    for handle in list(session.in_flight.values()):
        handle.resolve_if_complete()
    session.sweep_at = max(_session.SWEEP_AT, 2 * len(session.in_flight))
