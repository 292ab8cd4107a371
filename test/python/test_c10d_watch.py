"""When a future of c10d completes, and on which thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from distrun import _session, errors
from distrun.torch.c10d import _work
from distrun.torch.c10d._work import DistrunWork, Together, Watch

TENSORS = [torch.ones(2)]


class Operation:
    """An operation in flight until `end` is called."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self.failure: Exception | None = None
        self.waited_on: list[threading.Thread] = []

    def end(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self._ended.set()

    def poll(self) -> bool:
        return self._ended.is_set()

    def wait(self, timeout: float | None = None) -> None:
        self.waited_on.append(threading.current_thread())
        if not self._ended.wait(timeout):
            raise errors.Timeout("not yet")
        if self.failure is not None:
            raise self.failure


@contextmanager
def watch(overlaps: bool) -> Iterator[Watch]:
    made = Watch(overlaps)
    yield made
    made.close()


def work_of(operation: Operation, on: Watch, tensors: list[torch.Tensor] = TENSORS) -> DistrunWork:
    return DistrunWork(operation, "allreduce", tensors, 60.0, on)


def world(size: int, local_size: int) -> _session.World:
    return _session.World(0, size, 0, local_size, 0, size // local_size, "h", "job", ())


def test_what_ends_soon_is_driven_by_who_asks() -> None:
    with watch(overlaps=False) as ours:
        operation = Operation()
        operation.end()
        future = work_of(operation, ours).get_future()
        assert future.done()
        assert future.value() == TENSORS
        assert set(operation.waited_on) == {threading.current_thread()}


def test_what_does_not_is_left_to_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_work, "_MOMENT", 0.01)
    with watch(overlaps=False) as ours:
        first, second = Operation(), Operation()
        asked = work_of(first, ours).get_future()
        assert not asked.done()
        # Futures complete in the order of the calls. This one must not complete before the first.
        second.end()
        later = work_of(second, ours).get_future()
        assert second.waited_on == []
        first.end()
        assert later.wait() == TENSORS
        assert asked.done()
        assert first.waited_on[0] is threading.current_thread()
        assert {thread.name for thread in first.waited_on[1:2] + second.waited_on[:1]} == {"distrun-c10d"}


@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.parametrize("call", ["wait", "is_completed"])
def test_what_a_caller_has_seen_end_has_its_value_at_once(
    monkeypatch: pytest.MonkeyPatch, overlaps: bool, call: str
) -> None:
    monkeypatch.setattr(_work, "_MOMENT", 0.01)
    with watch(overlaps) as ours:
        first, second = Operation(), Operation()
        work_of(first, ours).get_future()  # the watching thread waits for this one
        second.end()
        work = work_of(second, ours)
        assert getattr(work, call)()
        assert work.get_future().value() == TENSORS
        first.end()


@pytest.mark.parametrize("overlaps", [False, True])
def test_a_failure_is_raised(overlaps: bool) -> None:
    with watch(overlaps) as ours:
        operation = Operation()
        operation.end(errors.RankLost("rank 1 is gone"))
        with pytest.raises(RuntimeError, match="rank 1 is gone"):
            work_of(operation, ours).get_future().wait()


class Preempted(Operation):
    """A complete operation. A signal handler raises in its first wait."""

    def __init__(self, exception: Exception) -> None:
        super().__init__()
        self.end()
        self.exception: Exception | None = exception

    def wait(self, timeout: float | None = None) -> None:
        exception, self.exception = self.exception, None
        if exception is not None:
            raise exception
        super().wait(timeout)


@pytest.mark.parametrize("exception", [KeyError, errors.Mismatch, errors.Timeout])
@pytest.mark.parametrize("call", ["is_completed", "is_success", "exception", "get_future"])
def test_what_a_handler_raises_is_heard_and_is_not_the_outcome(
    monkeypatch: pytest.MonkeyPatch, call: str, exception: type[Exception]
) -> None:
    monkeypatch.setattr(_work, "_MOMENT", 60.0)
    with watch(overlaps=False) as ours:
        work = work_of(Preempted(exception("a signal handler's")), ours)
        with pytest.raises(exception, match="a signal handler's"):
            getattr(work, call)()
        assert work.is_success() and work.exception() is None and work.wait()


@pytest.mark.parametrize("exception", [KeyError, errors.Mismatch, errors.Timeout])
def test_what_a_handler_raises_is_heard_while_the_operation_is_in_flight(exception: type[Exception]) -> None:
    class InFlight(Preempted):
        def poll(self) -> bool:
            return False

    with watch(overlaps=False) as ours, pytest.raises(exception, match="a signal handler's"):
        work_of(InFlight(exception("a signal handler's")), ours).ends_within(60.0)


def test_of_several_works_one_that_failed_is_not_a_handlers() -> None:
    with watch(overlaps=False) as ours:
        failed, in_flight = Operation(), Operation()
        failed.end(errors.RankLost("rank 1 is gone"))
        together = Together([work_of(failed, ours), work_of(in_flight, ours)])
        work = DistrunWork(together, "batch", TENSORS, 60.0, ours)
        assert not work.ends_within(60.0) and not work.is_completed()
        in_flight.end()
        assert isinstance(work.exception(), errors.RankLost)


def test_what_a_handler_raises_while_several_works_are_in_flight_is_heard_at_once() -> None:
    class InFlight(Preempted):
        def poll(self) -> bool:
            return False

        def wait(self, timeout: float | None = None) -> None:
            super().wait(timeout)
            assert timeout is not None and timeout < 1.0
            raise errors.Timeout("not yet")

    with watch(overlaps=False) as ours:
        inner = work_of(InFlight(KeyError("a signal handler's")), ours)
        work = DistrunWork(Together([inner]), "batch", TENSORS, 60.0, ours)
        with pytest.raises(KeyError, match="a signal handler's"):
            work.ends_within(60.0)


def test_a_handlers_own_timeout_is_not_the_works() -> None:
    class Slow(Preempted):
        def poll(self) -> bool:
            return bool(self.waited_on)

    with watch(overlaps=False) as ours:
        work = work_of(Slow(errors.Timeout("a signal handler's")), ours)
        with pytest.raises(errors.Timeout, match="a signal handler's"):
            work.wait()
        assert work.wait() and work.is_success()


def test_what_made_no_output_is_the_outcome_whatever_it_is() -> None:
    with watch(overlaps=False) as ours:
        operation = Operation()
        operation.end(ValueError("no room"))
        work = work_of(operation, ours)
        assert work.is_completed() and not work.is_success()
        assert isinstance(work.exception(), ValueError)
        with pytest.raises(ValueError, match="no room"):
            work.wait()


def test_a_thread_that_cannot_start_stops_no_later_future(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with watch(overlaps=True) as ours:
        operation = Operation()
        operation.end()
        with monkeypatch.context() as without, pytest.raises(RuntimeError, match="can't start new thread"):
            without.setattr(threading.Thread, "start", refused)
            work_of(operation, ours).get_future()
        future = work_of(operation, ours).get_future()
        ended = threading.Event()
        future.add_done_callback(lambda _: ended.set())
        assert ended.wait(20.0) and future.value() == TENSORS


def test_nobody_waits_where_it_overlaps() -> None:
    with watch(overlaps=True) as ours:
        operation = Operation()
        operation.end()
        assert work_of(operation, ours).get_future().wait() == TENSORS
        assert threading.current_thread() not in operation.waited_on[:1]


def test_nobody_waits_for_a_device() -> None:
    with watch(overlaps=False) as ours:
        operation = Operation()
        operation.end()
        elsewhere: list[Any] = [torch.ones(2, device="meta")]
        work_of(operation, ours, elsewhere).get_future().wait()
        assert threading.current_thread() not in operation.waited_on[:1]


@pytest.mark.parametrize(
    ("size", "local_size", "cores", "pinned_to", "expected"),
    [(2, 2, 2, 2, False), (2, 2, 4, 4, True), (4, 4, 8, 1, False), (2, 1, 1, 1, True), (8, 8, 2, 2, False)],
)
def test_when_it_pays_to_overlap(
    monkeypatch: pytest.MonkeyPatch, size: int, local_size: int, cores: int, pinned_to: int, expected: bool
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(pinned_to)))
    assert _session.overlaps(world(size, local_size)) is expected
