"""The facts about its threads that this process reports in a hang."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from distrun import _hooks, _where, errors


def frame(module: str, name: str = "f", back: Any = None, **values: object) -> Any:
    code = SimpleNamespace(co_name=name, co_filename=f"{module}.py")
    return SimpleNamespace(f_globals={"__name__": module}, f_code=code, f_back=back, f_locals=values, f_lineno=1)


def names(frames: list[FrameType]) -> list[str]:
    return [one.f_code.co_name for one in frames]


def test_distruns_own_frames_are_not_shown() -> None:
    program = frame("train", "main")
    call = frame("distrun.torch.ops", "allreduce", frame("__main__", "step", program))
    inner = frame("distrun._operations", "_wait_native", frame("distrun._operations", "wait", call))
    assert names(_where.shown(inner)) == ["step", "main"]
    joined = frame("threading", "join", frame("distrun._blocking", "outcome", call))
    assert names(_where.shown(joined)) == ["step", "main"]
    assert names(_where.shown(program)) == ["main"]
    assert _where.shown(None) == []


def test_a_deep_recursion_is_cut() -> None:
    deep = None
    for _ in range(1000):
        deep = frame("train", back=deep)
    assert len(_where.shown(deep)) == 64


@pytest.mark.parametrize(
    ("innermost", "expected"),
    [
        (frame("distrun._operations", "_wait_native", deadline=None), False),
        (frame("distrun._operations", "_wait_native", deadline=12.5), True),
        (frame("threading", "join", frame("distrun._blocking", "outcome")), False),
        (frame("train", "load", frame("distrun._operations", "_wait_native", deadline=None)), None),
        (frame("train", "load"), None),
        (frame("threading", "wait", frame("queue", "get", frame("train"))), None),
        (frame("distrunner", "load"), None),
        (None, None),
    ],
)
def test_whether_the_main_thread_waits(innermost: Any, expected: bool | None) -> None:
    assert _where.waits(innermost) is expected


def test_a_wait_in_a_framework_is_one_for_its_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distrun._session.frameworks", lambda: ("jax", "tensorflow"))
    monkeypatch.setattr(_where, "_waits_for_a_lock", lambda: True)
    assert _where.waits(frame("jax._src.array", "__array__")) is False
    assert _where.waits(frame("train", "step")) is False  # x.block_until_ready()
    assert _where.waits(frame("queue", "get")) is None
    assert _where.waits(frame("multiprocessing.connection", "poll")) is None
    monkeypatch.setattr(_where, "_waits_for_a_lock", lambda: False)
    assert _where.waits(frame("train", "read")) is None


def in_a_thread(body: Callable[[threading.Event], None]) -> Iterator[int]:
    inside = threading.Event()
    thread = threading.Thread(target=body, args=(inside,), daemon=True)
    thread.start()
    inside.wait(10)
    yield thread.ident or 0
    thread.join(10)


def test_the_exception_of_another_thread_is_seen_while_it_is_handled() -> None:
    def body(inside: threading.Event) -> None:
        try:
            raise ValueError("a bad sample\nwith a second line")
        except ValueError:
            inside.set()
            time.sleep(0.3)

    for thread in in_a_thread(body):
        raised = _where._exception_of(thread)
        assert raised is not None
        assert _hooks.name(type(raised), raised) == "ValueError: a bad sample"
        assert (_hooks.place(raised.__traceback__) or ("", 0))[0] == __file__
    assert _where._exception_of(threading.main_thread().ident or 0) is None


def raised_by(body: Callable[[], object]) -> BaseException:
    try:
        body()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def test_of_chained_exceptions_the_last_and_the_first_are_told() -> None:
    def three(hide: bool = False) -> None:
        try:
            try:
                {}["y"]
            except KeyError:
                middle = LookupError("in between")
                middle.__suppress_context__ = hide
                raise middle  # noqa: B904
        except LookupError as error:
            raise ValueError("x") from error

    three_reported = _where.reported_exceptions(raised_by(three))
    assert [_hooks.name(type(one), one) for one in three_reported] == ["ValueError: x", "KeyError: 'y'"]
    hidden = _where.reported_exceptions(raised_by(lambda: three(hide=True)))
    assert [type(one) for one in hidden] == [ValueError, LookupError]
    alone = ValueError("alone")
    assert _where.reported_exceptions(alone) == [alone]
    assert _where.reported_exceptions(None) == []
    circle = ValueError("circle")
    circle.__context__ = KeyError("other")
    circle.__context__.__context__ = circle
    assert len(_where.reported_exceptions(circle)) == 2


def test_a_generator_that_is_closed_tells_what_closed_it() -> None:
    closing = GeneratorExit()
    assert _where.reported_exceptions(closing) == []
    closing.__context__ = ValueError("bad")
    assert _where.reported_exceptions(closing) == [closing.__context__]


def test_the_end_of_an_iteration_or_of_the_job_is_no_cause() -> None:
    assert _where.reported_exceptions(StopIteration()) == []
    ended = errors.RankLost("rank 1 was lost")
    ended.usable = False
    assert _where.reported_exceptions(ended) == []
    ended.__context__ = ValueError("bad")
    assert _where.reported_exceptions(ended) == [ended.__context__]


def test_the_exception_of_an_excepthook_is_that_which_it_was_called_with(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ValueError("bad")
    monkeypatch.setattr(sys, "last_value", error, raising=False)
    monkeypatch.delattr(sys, "last_exc", raising=False)
    hook = frame("train", "hook", None, kind=ValueError, value=error, trace=None)
    assert _where._in_excepthook(frame("distrun._operations", "_wait_native", hook)) is error
    assert _where._in_excepthook(frame("train", "hook", None, arguments=(ValueError, error, None))) is error
    assert _where._in_excepthook(frame("__main__", "<module>", None, x=1)) is None  # a prompt after an error
    assert _where._in_excepthook(None) is None
    monkeypatch.delattr(sys, "last_value")
    assert _where._in_excepthook(hook) is None


def test_a_thread_that_waits_for_a_lock_is_seen_by_the_kernels_word() -> None:
    assert isinstance(_where._waits_for_a_lock(), bool)
    assert not _where._waits_for_a_lock()  # this thread is running
