"""Objects, process sets, mismatches, timeline and queries, on two or more ranks."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from checks import raises, run

import distrun.numpy as hvd
from distrun import _operations


@dataclasses.dataclass
class Custom:
    value: int


def check_broadcast_object() -> None:
    sent = {"rank": hvd.rank(), "list": [1, (2.5, None)], "array": np.arange(3), "text": "x" * 100_000}
    for root in range(hvd.size()):
        received = hvd.broadcast_object(sent if hvd.rank() == root else None, root_rank=root)
        assert received["rank"] == root and received["array"].tolist() == [0, 1, 2] and len(received["text"]) == 100_000
        assert (received is sent) == (hvd.rank() == root)


def check_allgather_object() -> None:
    assert hvd.allgather_object({hvd.rank(): "x" * hvd.rank()}) == [{rank: "x" * rank} for rank in range(hvd.size())]


def check_objects_that_cannot_travel_fail_on_every_rank() -> None:
    sent = Custom(1) if hvd.rank() == 0 else None
    with raises(TypeError, "Custom", "allow_pickle"):
        hvd.broadcast_object(sent, root_rank=0)
    with raises(TypeError, "Custom"):
        hvd.allgather_object(Custom(1) if hvd.rank() == 1 else 1)
    assert hvd.broadcast_object(sent, root_rank=0, allow_pickle=True) == Custom(1)


@contextmanager
def meddling(part: str, change: Callable[[bytes], bytes], *, sent: bool = False) -> Iterator[None]:
    """Changes operations of rank 1 whose names end in `part`: it receives other bytes, or with `sent` it sends other
    bytes."""
    seen = _operations.enqueue

    def meddle(operations: list[_operations.Op], keep: Any, *rest: Any) -> Any:
        if not operations[0].name.endswith(part):
            return seen(operations, keep, *rest)
        if sent:
            keep[:] = change(bytes(keep))
        handle = seen(operations, keep, *rest)
        if not sent:
            handle.wait()
            keep[:] = change(bytes(keep))
        return handle

    if hvd.rank() == 1:
        _operations.enqueue = meddle
    try:
        yield
    finally:
        _operations.enqueue = seen


def check_objects_are_those_that_were_sent() -> None:
    """Rank 1 receives other bytes than rank 0 sent. They are neither decoded nor run."""
    sets = [hvd.global_process_set] + ([hvd.add_process_set([0, 1])] if hvd.size() > 2 else [])
    for process_set in filter(hvd.ProcessSet.included, sets):
        for value, allow_pickle in (("Custom", False), (Custom(1), True)):
            sent = value if hvd.rank() == 0 else None
            arguments = {"name": "meddled", "process_set": process_set, "allow_pickle": allow_pickle}
            with meddling(".t", lambda data: data.replace(b"Custom", b"Cuddly")):
                if hvd.rank() == 1:
                    with raises(ValueError, "object.meddled", "rank 0", "changed on its way"):
                        hvd.broadcast_object(sent, **arguments)
                else:
                    assert hvd.broadcast_object(sent, **arguments) == value
    for process_set in sets[1:]:
        hvd.remove_process_set(process_set)


def check_what_is_said_of_an_object_is_what_was_sent() -> None:
    """A changed status, length or MAC is refused before it is used. No rank waits for another."""

    def refused(change: Callable[[bytes], bytes]) -> None:
        kind, text = (ValueError, "changed on its way") if hvd.rank() == 1 else (hvd.Mismatch, "rank 1")
        with meddling(".sz", change), raises(kind, "object.said", text):
            hvd.broadcast_object([1, 2], name="said")
        assert hvd.broadcast_object([hvd.rank()], name="said") == [0]

    for length in (0, 3, 1 << 40, 1 << 62, -1):
        refused(lambda said, length=length: said[:8] + length.to_bytes(8, "little", signed=True) + said[16:])
    for place in (0, 16, 48, 79):  # the status, the MAC of the data, the MAC of this message
        refused(lambda said, place=place: said[:place] + bytes([said[place] ^ 1]) + said[place + 1 :])


def check_pickles_are_those_of_this_job() -> None:
    """Rank 1 sends bytes that do not match its MAC and would be another object. Nothing of them runs."""
    with (
        meddling(".t", lambda data: data.replace(b"Custom", b"Cuddly"), sent=True),
        raises(ValueError, "changed on its way"),
    ):
        hvd.allgather_object(Custom(hvd.rank()), allow_pickle=True)
    assert hvd.allgather_object(Custom(hvd.rank()), allow_pickle=True) == [Custom(rank) for rank in range(hvd.size())]


def check_process_sets() -> None:
    differing = [rank for rank in range(hvd.size()) if rank % 2]
    process_set = hvd.add_process_set(differing)
    assert process_set.ranks == differing and process_set.size() == len(differing) and process_set.process_set_id
    with raises(ValueError, "same ranks"):
        hvd.add_process_set(differing)
    with raises(ValueError, "outside"):
        hvd.add_process_set([hvd.size()])
    if process_set.included():
        assert process_set.rank() == differing.index(hvd.rank())
        total = hvd.allreduce(np.array([hvd.rank()]), op=hvd.Sum, process_set=process_set)
        assert total.tolist() == [sum(differing)]
        assert hvd.allgather(np.array([hvd.rank()]), process_set=process_set).tolist() == differing
        assert hvd.broadcast(np.array([hvd.rank()]), differing[-1], process_set=process_set).tolist() == differing[-1:]
        assert hvd.allgather_object(hvd.rank(), process_set=process_set) == differing
        average = hvd.allreduce(np.array([float(hvd.rank())]), process_set=process_set)
        np.testing.assert_allclose(average, np.mean(differing))
        hvd.barrier(process_set=process_set)
    else:
        with raises(ValueError, "not part of"):
            process_set.rank()
        with raises(hvd.DistrunError):
            hvd.allreduce(np.array([1]), process_set=process_set)
    assert hvd.remove_process_set(process_set)
    assert process_set.process_set_id is None and not hvd.remove_process_set(process_set)
    with raises(ValueError, "not registered"):
        hvd.allreduce(np.array([1]), process_set=process_set)
    assert not hvd.remove_process_set(hvd.global_process_set)
    again = hvd.add_process_set(hvd.ProcessSet([0]))
    if hvd.rank() == 0:
        assert hvd.allreduce(np.array([4]), process_set=again).tolist() == [4]
    hvd.remove_process_set(again)


def check_process_sets_of_members_alone() -> None:
    mine = [rank for rank in range(hvd.size()) if rank % 2 == hvd.rank() % 2]
    other = [rank for rank in range(hvd.size()) if rank not in mine]
    with raises(ValueError, "not part of", "members_only"):
        hvd.add_process_set(other, members_only=True)
    sets = [hvd.add_process_set(mine, members_only=True) for _ in range(2)]
    assert sets[0].process_set_id != sets[1].process_set_id
    everybodys = hvd.allgather_object([one.process_set_id for one in sets])
    assert len({number for numbers in everybodys for number in numbers}) == 2 * min(2, hvd.size())
    for one in sets:
        assert hvd.allreduce(np.array([hvd.rank()]), op=hvd.Sum, process_set=one).tolist() == [sum(mine)]
    # A set that all ranks know is made or refused on all ranks alike.
    known = hvd.add_process_set([0])
    assert hvd.remove_process_set(known)
    for one in sets:
        assert hvd.remove_process_set(one)
    if hvd.size() == 3:
        with raises(hvd.Mismatch, "by its members alone", "same order"):
            hvd.add_process_set([0, 1], members_only=hvd.rank() == 0)
        hvd.remove_process_set(hvd.add_process_set([0, 1]))


def expect_mismatch(name: str, array: np.ndarray, *texts: str, **arguments: object) -> None:
    """The call fails on every rank with the name of the tensor. The next call works."""
    with raises(hvd.Mismatch, name, *texts) as caught:
        hvd.allreduce(array, name=name, **arguments)
    error = caught[0]
    assert isinstance(error, hvd.DistrunError)
    assert name in error.tensor and error.usable and error.ranks, (error.tensor, error.usable, error.ranks)
    assert hvd.allreduce(np.array([1]), op=hvd.Sum, name=name).tolist() == [hvd.size()]


def check_mismatches() -> None:
    last = hvd.rank() == hvd.size() - 1
    expect_mismatch("dtype", np.zeros(3, np.float64 if last else np.float32), "float64", "float32")
    expect_mismatch("shape", np.zeros((2, 3) if last else (3, 2)), "(2, 3)", "(3, 2)")
    expect_mismatch("op", np.zeros(3), op=hvd.Max if last else hvd.Sum)
    expect_mismatch("scale", np.zeros(3), prescale_factor=2.0 if last else 1.0)
    with raises(hvd.Mismatch, "root"):
        hvd.broadcast(np.zeros(3), root_rank=0 if last else 1, name="root")
    with raises(hvd.Mismatch, "gather"):
        hvd.allgather(np.zeros((2, 3) if last else (2, 4)), name="gather")
    assert hvd.allreduce(np.array([1.0])).tolist() == [1.0]


def check_duplicate_name() -> None:
    hold = hvd.rank() == 0
    handle = hvd.allreduce_async(np.array([1]), op=hvd.Sum, name="held") if hold else None
    if handle is not None:  # the others have not submitted it, so it is in flight
        with raises(hvd.DuplicateName, "held"):
            hvd.allreduce_async(np.array([1]), op=hvd.Sum, name="held")
    hvd.barrier()
    if handle is None:
        handle = hvd.allreduce_async(np.array([1]), op=hvd.Sum, name="held")
    assert handle.wait().tolist() == [hvd.size()]


def check_wait_with_a_time_limit() -> None:
    if hvd.rank() == 0:
        handle = hvd.allreduce_async(np.array([1]), op=hvd.Sum, name="late")
        assert not handle.poll()
        with raises(hvd.Timeout, "'allreduce.late' is not complete after 0.05 seconds") as caught:
            handle.wait(timeout=0.05)
        assert getattr(caught[0], "tensor", "") == "allreduce.late"
        both = hvd.grouped_allreduce_async([np.array([1])] * 2, op=hvd.Sum, name="both")
        with raises(hvd.Timeout, "'allreduce.both_1of2' and 1 more of the same call are not complete"):
            both.wait(timeout=np.float32(0.05))
        for wrong, kind in ((float("nan"), ValueError), ("1", TypeError)):
            with raises(kind, "timeout must be ", f"not {wrong!r}"):
                handle.wait(timeout=wrong)
    hvd.barrier()
    if hvd.rank() != 0:
        handle = hvd.allreduce_async(np.array([1]), op=hvd.Sum, name="late")
        both = hvd.grouped_allreduce_async([np.array([1])] * 2, op=hvd.Sum, name="both")
    assert handle.wait(timeout=60).tolist() == [hvd.size()]
    assert [one.tolist() for one in both.wait(timeout=60)] == [[hvd.size()]] * 2


def check_timeline() -> None:
    folder = hvd.broadcast_object(tempfile.mkdtemp() if hvd.rank() == 0 else None)
    path = Path(folder) / "trace.json"
    hvd.start_timeline(str(path))
    for step in range(3):
        hvd.allreduce(np.zeros(10), name=f"traced{step}")
    hvd.stop_timeline()
    hvd.barrier()
    if hvd.rank() == 0:
        events = json.loads(path.read_text())
        assert "traced1" in json.dumps(events)
        path.unlink()
        path.parent.rmdir()


def check_queries() -> None:
    assert hvd.size() == hvd.local_size() and hvd.rank() == hvd.local_rank() and hvd.cross_size() == 1
    assert hvd.is_homogeneous() and hvd.is_initialized()
    assert "cpu" in hvd.query("why") and "self" in hvd.query("backends")
    world = [choice for choice in hvd.query("why", json=True) if choice["process_set"] == 0]
    assert [choice["device"] for choice in world] == ["cpu"] and world[0]["backend"] != "nccl"
    assert hvd.shm_enabled() or hvd.tcp_enabled() or hvd.size() == 1
    assert not hvd.nccl_enabled() and hvd.rocm_built() is False


def check_should_stop() -> None:
    assert not hvd.should_stop()
    calls = 1
    while not hvd.should_stop(request=hvd.rank() == hvd.size() - 1):
        calls += 1
    assert hvd.allgather_object(calls) == [calls] * hvd.size()
    assert hvd.should_stop()


if __name__ == "__main__":
    run(globals())
