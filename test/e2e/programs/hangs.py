"""Ranks wait for each other, in the way that the first argument names. Rank 1 differs from the others."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np

import distrun.numpy as hvd

SECONDS = float(os.environ.get("SECONDS", "6"))
ONE = np.ones(1, np.float32)


def ready() -> None:
    print(f"ready {hvd.rank()} {os.getpid()}", flush=True)


def wait_for(name: str) -> None:
    hvd.allreduce(ONE, name=name)


def crosswise() -> None:
    """Two operations. Only a part of the ranks submits each of them."""
    wait_for("a" if hvd.rank() == 1 else "b")


def kinds() -> None:
    """Each rank waits in another kind of operation."""
    ways: list[Callable[[], object]] = [
        lambda: hvd.allreduce_async(ONE, name="a").wait() if hasattr(hvd, "allreduce_async") else wait_for("a"),
        lambda: hvd.add_process_set([0, 1]),
        lambda: hvd.broadcast(ONE, root_rank=0, name="c"),
        hvd.barrier,
    ]
    ways[hvd.rank() % len(ways)]()


def in_a_set() -> None:
    """Ranks 0 and 1 wait in a process set that they share, rank 2 in the global one."""
    pair = hvd.add_process_set([0, 1])
    if hvd.rank() == 2:
        wait_for("all")
    else:
        hvd.allreduce(ONE, name=f"only {hvd.rank()}", process_set=pair)


def evaluates() -> None:
    """Rank 1 sleeps, like a rank that loads from a slow disk, and then goes on."""
    if hvd.rank() == 1:
        time.sleep(SECONDS)
    wait_for("x")
    print(f"went on {hvd.rank()}", flush=True)


def computes() -> None:
    """Rank 1 waits while another thread of it computes the tensor."""

    def work() -> None:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            pass
        wait_for("computed")

    if hvd.rank() == 1:
        threading.Thread(target=work).start()
        wait_for("y")
    else:
        wait_for("computed")
        wait_for("y")
    print(f"went on {hvd.rank()}", flush=True)


def limited() -> None:
    """Rank 1 waits with a time limit, and then submits the operation of the others."""
    if hvd.rank() == 1:
        handle = hvd.allreduce_async(ONE, name="mine")
        try:
            handle.wait(SECONDS)
        except hvd.Timeout:
            wait_for("x")
        handle.wait()
    else:
        wait_for("x")
        wait_for("mine")
    print(f"went on {hvd.rank()}", flush=True)


class Logger:
    def __enter__(self) -> Logger:
        return self

    def __exit__(self, *_: object) -> None:
        wait_for("exit")


def fails() -> None:
    raise ValueError("a bad sample on rank 1")


def reads() -> Iterator[int]:
    """A generator that calls an operation when it is closed."""
    try:
        yield 1
    finally:
        wait_for("closes a file")


def both_ways() -> None:
    """Rank 1 raises an exception and waits for all in its clean-up. The others wait for rank 1 in their step."""
    if hvd.rank() != 1:
        wait_for("step")
        return
    try:
        fails()
    finally:
        hvd.barrier()


def unwinds() -> None:
    """Rank 1 raises an exception and calls an operation while it unwinds. The others wait in another operation."""
    way = sys.argv[2]
    if hvd.rank() != 1:
        wait_for("step")
    elif way == "with":
        with Logger():
            fails()
    elif way == "finally":
        try:
            fails()
        finally:
            hvd.barrier()
    elif way == "except":
        try:
            fails()
        except ValueError:
            hvd.allgather(ONE, name="in except")
    elif way == "chained":
        try:
            try:
                {}["y"]
            except KeyError as error:
                raise ValueError("a bad sample on rank 1") from error
        finally:
            hvd.barrier()
    elif way == "closed":
        rows = reads()
        next(rows)
        try:
            fails()
        except ValueError:
            rows.close()
    elif way == "excepthook":
        sys.excepthook = lambda *_: wait_for("in a hook")
        fails()
    else:

        @contextlib.contextmanager
        def logged() -> Iterator[None]:
            try:
                yield
            finally:
                wait_for("in a generator")

        with logged():
            fails()


def holds_the_lock() -> None:
    """C code that does not release Python's GIL."""
    if hvd.rank() == 1:
        ctypes.PyDLL(None).sleep(int(SECONDS))
    wait_for("x")
    print(f"went on {hvd.rank()}", flush=True)


def has_handlers() -> None:
    """A program with its own handlers for every signal, and with faulthandler."""
    import faulthandler
    import signal

    seen: list[int] = []
    for number in sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}):
        signal.signal(number, lambda number, _: seen.append(number))
    faulthandler.enable()
    evaluates()
    print(f"signals {hvd.rank()} {seen}", flush=True)


def late() -> None:
    """Rank 1 calls init() late."""
    rank = int(os.environ["RANK"])
    print(f"ready {rank} {os.getpid()}", flush=True)
    if rank == 1:
        time.sleep(SECONDS)
    hvd.init()


if sys.argv[1] == "late":
    late()
else:
    hvd.init()
    ready()
    {name: way for name, way in globals().items() if callable(way)}[sys.argv[1]]()
