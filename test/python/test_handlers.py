"""Signal handlers that run in the middle of distrun's Python code, over a fake native library.

CPython runs a handler between two steps of the interrupted code, on the same thread. The tracer here does the same.
Each case runs many times, and the handler acts one step later each time.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from distrun import _blocking, _operations, _session, errors
from distrun._abi import Code
from distrun._operations import Handle, Op

OURS = (_operations.__file__, _session.__file__)
LIMIT = 20.0  # seconds for a call that must not hang


class Preempted(Exception):
    pass


class Impatient(errors.Timeout):
    """Raised by a wait inside the handler."""

    def __init__(self) -> None:
        super().__init__("not yet")


class Native:
    """The rules of the C API for handles and sessions, and no more. A forbidden use fails an assertion."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.live: set[int] = set()
        self.complete: set[int] = set()
        self.submitted: list[tuple[bytes, ...]] = []
        self.left = False
        self.closed = 0

    def distrun_init(self, _: Any, pointer: Any) -> int:
        pointer._obj.value = 1
        return Code.OK

    def distrun_get_world(self, *_: Any) -> int:
        return Code.OK

    def distrun_enqueue(self, _: int, ops: Any, count: int, handles: Any) -> int:
        assert not self.closed
        if self.left:
            return Code.SHUT_DOWN
        self.submitted.append(tuple(ops[index].name for index in range(count)))
        for index in range(count):
            handles[index] = len(self.submitted) * 100 + index
        self.live.update(handles)
        return Code.OK

    def distrun_poll(self, handle: int) -> int:
        assert handle in self.live and not self.closed
        return int(handle in self.complete)

    def distrun_wait(self, handle: int, timeout: float) -> int:
        return self.distrun_wait_all([handle], 1, timeout, None)

    def distrun_wait_all(self, handles: Any, count: int, timeout: float, _: None) -> int:
        assert all(handle in self.live for handle in handles) and not self.closed
        self.complete.update(handles)
        return Code.OK

    def distrun_get_error(self, handle: int, error: Any) -> int:
        assert handle in self.complete and not self.closed
        error._obj.code = Code.OK
        return Code.OK

    def distrun_release(self, handle: int) -> None:
        assert not self.closed
        with self.lock:
            self.live.remove(handle)

    def distrun_last_error(self, error: Any) -> None:
        error._obj.code, error._obj.message, error._obj.usable = Code.SHUT_DOWN, b"shut down", 1

    def distrun_shutdown(self, _: int) -> int:
        assert not self.closed
        self.left = True
        self.complete |= self.live
        return Code.OK

    def distrun_close(self, _: int) -> None:
        with self.lock:
            self.closed += 1
        assert self.closed == 1


class Job:
    """An open session over a Native."""

    def __init__(self) -> None:
        self.native = native = Native()
        for module in (_operations, _session, errors):
            module.library = lambda: native  # type: ignore[attr-defined]
        self.session = _session._current = _session.Session(1)

    def enqueue(self, *names: str, finish: Callable[[Any], Any] = lambda _: "result") -> Handle[Any]:
        return _operations.enqueue([Op(0, name, shape=(1,)) for name in names], None, finish)

    def is_over(self) -> bool:
        """The session was freed once, and nothing is left."""
        native = self.native
        return native.closed == 1 and not native.live and not self.session.in_flight and _session._current is None


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Job]]:
    """Makes a Job, which replaces the one before."""
    for module in (_operations, _session, errors):
        monkeypatch.setattr(module, "library", None)
    monkeypatch.setattr(_session, "_current", None)
    monkeypatch.setattr(_session, "_extensions", [])
    monkeypatch.setattr(_session, "_DRAIN_SECONDS", 60.0)
    yield Job


def in_time(function: Callable[[], None]) -> None:
    """Runs function(), which must not hang."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT)
    assert not thread.is_alive(), "it hangs"
    if failures:
        raise failures[0]


def at_step(step: int, handler: Callable[[], object], call: Callable[[], object]) -> bool:
    """Runs call(), with handler() before the step of distrun's code with this number. False if it has fewer steps."""
    seen = -1

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal seen
        if frame.f_code.co_filename not in OURS:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            seen += 1
            if seen == step:
                handler()
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return seen >= step


def at_each_step(case: Callable[[int], bool]) -> None:
    def run() -> None:
        case(-1)  # at no step, because CPython 3.12 traces opcodes only from the second run on
        step = 0
        while case(step):
            step += 1
        assert step > 50

    in_time(run)


@pytest.mark.parametrize("names", [("one",), ("one", "two")])
def test_shutdown_in_the_middle_of_a_wait(job: Callable[[], Job], names: tuple[str, ...]) -> None:
    def case(step: int) -> bool:
        ours = job()
        handle = ours.enqueue(*names)
        results: list[str] = []
        reached = at_step(step, _session.close_session, lambda: results.append(handle.wait()))
        _session.close_session()
        assert results == ["result"] and handle.wait() == "result" and ours.is_over(), step
        return reached

    at_each_step(case)


def test_shutdown_in_the_middle_of_a_poll(job: Callable[[], Job]) -> None:
    def case(step: int) -> bool:
        ours = job()
        handle = ours.enqueue("one")
        reached = at_step(step, _session.close_session, handle.poll)
        _session.close_session()
        assert handle.poll() and handle.wait() == "result" and ours.is_over(), step
        return reached

    at_each_step(case)


def test_shutdown_while_an_operation_is_handed_over(job: Callable[[], Job]) -> None:
    def case(step: int) -> bool:
        ours = job()
        ours.session.sweep_at = 0
        handles: list[Handle[Any]] = []

        def call() -> None:
            with contextlib.suppress(errors.NotInitialized):
                handles.append(ours.enqueue("one"))

        reached = at_step(step, _session.close_session, call)
        _session.close_session()
        assert all(handle.wait() == "result" for handle in handles), step
        assert handles or reached, "refused with nobody in between"
        assert ours.native.closed == 1 and not ours.native.live, step
        return reached

    at_each_step(case)


def test_shutdown_in_the_middle_of_shutdown(job: Callable[[], Job]) -> None:
    def case(step: int) -> bool:
        ours = job()
        handle = ours.enqueue("one")
        reached = at_step(step, _session.close_session, _session.close_session)
        assert handle.wait() == "result" and ours.is_over(), step
        assert not ours.session._to_free, step  # a later caller does not free it again
        return reached

    at_each_step(case)


@pytest.mark.parametrize("outer", ["wait", "poll", "resolve_if_complete"])
@pytest.mark.parametrize("inner", ["wait", "poll", "resolve_if_complete"])
def test_a_handler_that_uses_the_same_handle(job: Callable[[], Job], outer: str, inner: str) -> None:
    def case(step: int) -> bool:
        ours = job()
        handle = ours.enqueue("one")
        ours.native.complete.update(ours.native.live)
        reached = at_step(step, getattr(handle, inner), getattr(handle, outer))
        assert handle.wait() == "result" and not ours.native.live and not ours.session.in_flight, step
        assert not ours.session._callers, step
        return reached

    at_each_step(case)


def test_a_handler_that_hands_over_operations_of_its_own(job: Callable[[], Job]) -> None:
    names = ("one", "two", "three")

    def case(step: int) -> bool:
        ours = job()
        ours.enqueue(*names)  # by now this thread has an array to fill
        ours.native.submitted.clear()
        reached = at_step(step, lambda: ours.enqueue("of the handler").wait(), lambda: ours.enqueue(*names).wait())
        batches = ours.native.submitted
        assert batches.count((b"one", b"two", b"three")) == 1, (step, batches)
        assert len(batches) == 1 + batches.count((b"of the handler",)), (step, batches)
        return reached

    at_each_step(case)


class Interrupted:
    """Makes an output. The first time, a signal handler raises in the middle of it."""

    def __init__(self, exception: type[BaseException], times: int = 1) -> None:
        self.exception = exception
        self.times = times

    def __call__(self, _: Any) -> str:
        self.times -= 1
        if self.times >= 0:
            raise self.exception
        return "result"


@pytest.mark.parametrize("exception", [Preempted, KeyboardInterrupt, SystemExit, MemoryError, Impatient])
def test_what_a_handler_raises_is_not_the_outcome(job: Callable[[], Job], exception: type[BaseException]) -> None:
    ours = job()
    handle = ours.enqueue("one", finish=Interrupted(exception))
    with pytest.raises(exception):
        handle.wait()
    assert handle.wait() == "result" == handle.wait()
    assert not ours.native.live and not ours.session.in_flight


@pytest.mark.parametrize("exception", [Preempted, KeyboardInterrupt, SystemExit, Impatient])
@pytest.mark.parametrize("settles", ["sweep", "shutdown"])
def test_what_a_handler_raises_is_heard_where_nobody_waits(
    job: Callable[[], Job], exception: type[BaseException], settles: str
) -> None:
    ours = job()
    handle = ours.enqueue("one", finish=Interrupted(exception))
    ours.native.complete.update(ours.native.live)
    ours.session.sweep_at = 0
    with pytest.raises(exception):
        ours.enqueue("two") if settles == "sweep" else _session.close_session()
    assert handle.wait() == "result"
    assert _session.close_session() and ours.is_over()


def test_a_failure_of_the_operation_that_its_output_shows_is_kept(job: Callable[[], Job]) -> None:
    ours = job()
    handle = ours.enqueue("one", finish=Interrupted(Impatient, times=2))
    for _ in range(2):
        with pytest.raises(Impatient):
            handle.wait()
    assert not ours.native.live and not ours.session.in_flight


def test_forgotten_handles_are_looked_for_now_and_then(job: Callable[[], Job]) -> None:
    ours, kept = job(), list[int]()
    for _ in range(100):
        ours.enqueue("forgotten")
        ours.native.complete.update(ours.native.live)
        kept.append(len(ours.session.in_flight))
    assert max(kept) == _session.SWEEP_AT - 1


def test_memory_that_was_short_for_a_moment_is_nobodys_failure(job: Callable[[], Job]) -> None:
    ours = job()
    handle = ours.enqueue("one", finish=Interrupted(MemoryError))
    ours.native.complete.update(ours.native.live)
    ours.session.sweep_at = 0
    assert ours.enqueue("two").wait() == "result" == handle.wait()


def test_what_is_refused_keeps_no_tensors(job: Callable[[], Job]) -> None:
    ours = job()
    ours.session._closing = True
    with pytest.raises(errors.NotInitialized):
        ours.enqueue("one")
    assert not ours.session.in_flight and not ours.session._callers


def test_an_init_that_is_interrupted_at_its_end_leaves_no_session(
    job: Callable[[], Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = job()
    monkeypatch.setattr(_session, "_current", None)
    monkeypatch.setattr(_session, "_read_world", Interrupted(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        _session.open_session({})
    assert ours.native.closed == 1 and not _session.is_open()


def test_a_call_that_is_interrupted_while_its_thread_starts_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    began, go, gone = threading.Event(), threading.Event(), threading.Event()
    start = threading.Thread.start

    def function() -> int:
        began.set()
        assert go.wait(LIMIT)
        return 7

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        assert began.wait(LIMIT)
        raise RuntimeError("a signal handler's")

    def drop(value: int) -> None:
        assert value == 7
        gone.set()

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(RuntimeError, match="a signal handler's"):
        _blocking.call(function, drop)
    go.set()
    assert gone.wait(LIMIT)


def test_a_call_that_is_interrupted_before_its_thread_comes_to_it_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    go, calls, threads = threading.Event(), list[int](), list[threading.Thread]()
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        run = thread.run
        thread.run = lambda: run() if go.wait(LIMIT) else None  # type: ignore[method-assign]
        threads.append(thread)
        start(thread)
        raise RuntimeError("a signal handler's")

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(RuntimeError, match="a signal handler's"):
        _blocking.call(lambda: calls.append(1))
    go.set()
    threads[0].join(LIMIT)
    assert not threads[0].is_alive() and not calls


def test_a_handler_that_raises_while_the_thread_starts_is_not_taken_for_a_thread_that_cannot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = list[int]()

    def interrupted(_: threading.Thread) -> None:
        raise RuntimeError("a signal handler's")

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(RuntimeError, match="a signal handler's"):
        _blocking.call(lambda: calls.append(1))
    assert not calls


def test_a_call_is_made_where_no_thread_starts_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refused)
    assert _blocking.call(threading.get_ident) == threading.get_ident()


def test_an_output_that_cannot_be_made_stops_nobody_else(job: Callable[[], Job]) -> None:
    ours = job()
    handle = ours.enqueue("one", finish=Interrupted(MemoryError, times=1000))
    ours.native.complete.update(ours.native.live)
    ours.session.sweep_at = 0
    assert ours.enqueue("two").wait() == "result"
    assert _session.close_session() and ours.is_over()
    with pytest.raises(MemoryError):
        handle.wait()


def inside(session: _session.Session, until: threading.Event) -> threading.Thread:
    """A thread that stays inside a call until `until` is set."""
    entered = threading.Event()

    def call() -> None:
        with session.calling():
            entered.set()
            until.wait(LIMIT)

    thread = threading.Thread(target=call)
    thread.start()
    entered.wait(LIMIT)
    return thread


def test_an_interrupted_shutdown_can_be_repeated(job: Callable[[], Job]) -> None:
    ours = job()
    leave = threading.Event()
    thread = inside(ours.session, leave)

    def interrupt() -> None:
        while not ours.session._closing:
            time.sleep(0.001)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def handler(*_: object) -> None:
        raise Preempted

    before = signal.signal(signal.SIGUSR1, handler)
    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with pytest.raises(Preempted):
        _session.close_session()
    interrupter.join()
    signal.signal(signal.SIGUSR1, before)
    assert _session.is_open() and not ours.native.closed
    with ours.session.calling():
        pass
    leave.set()
    assert _session.close_session() and ours.is_over()
    thread.join()


def test_who_comes_out_too_late_frees_the_session(job: Callable[[], Job], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_session, "_DRAIN_SECONDS", 0.01)
    ours = job()
    leave = threading.Event()
    thread = inside(ours.session, leave)
    assert _session.close_session() and not ours.native.closed
    leave.set()
    thread.join()
    assert ours.is_over()


def test_shutdown_does_not_wait_for_a_handler_that_shuts_down(job: Callable[[], Job]) -> None:
    ours = job()
    with ours.session.calling():
        thread = threading.Thread(target=_session.close_session)
        thread.start()
        while not ours.session._closing:
            time.sleep(0.001)
        _session.close_session()  # as a signal handler calls it
        thread.join(LIMIT)
        assert not thread.is_alive() and not ours.native.closed
    assert ours.is_over()


def test_what_is_only_being_handed_over_is_not_complete(
    job: Callable[[], Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread sweeps the operations in flight. It reads a handle just before the C call writes into it."""
    ours = job()
    hand_over, enter = ours.native.distrun_enqueue, Handle._enter
    swept = []

    def enqueue(session: int, ops: Any, count: int, handles: Any) -> int:
        [handle] = ours.session.in_flight.values()
        assert isinstance(handle, Handle) and not handle.poll()

        def look(self: Handle[Any]) -> bool:
            entered = enter(self)
            if handles[0] is None:
                swept.append(hand_over(session, ops, count, handles))
            return entered

        monkeypatch.setattr(Handle, "_enter", look)
        handle.resolve_if_complete()
        monkeypatch.setattr(Handle, "_enter", enter)
        assert not handle._resolved and handle.keeps("memory")
        return Code.OK

    monkeypatch.setattr(ours.native, "distrun_enqueue", enqueue)
    finished: list[None] = []
    handle: Handle[Any] = _operations.enqueue([Op(0, "x", shape=(1,))], "memory", lambda _: finished.append(None))
    assert swept == [Code.OK] and not finished
    handle.wait()
    assert finished == [None]
    assert _session.close_session() and ours.is_over()


def test_threads_that_share_handles_while_one_shuts_down(job: Callable[[], Job]) -> None:
    ours = job()
    handles = [ours.enqueue(str(number)) for number in range(200)]
    start = threading.Barrier(5)
    results: list[object] = []

    def use() -> None:
        start.wait()
        for handle in handles:
            with contextlib.suppress(errors.NotInitialized):  # the shutdown has begun and has not reached this handle
                handle.poll()
                handle.resolve_if_complete()
                results.append(handle.wait())

    threads = [threading.Thread(target=use) for _ in range(4)]
    pause = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        start.wait()
        assert _session.close_session()
        for thread in threads:
            thread.join(LIMIT)
    finally:
        sys.setswitchinterval(pause)
    results += [handle.wait() for handle in handles]
    assert set(results) == {"result"} and ours.is_over()
