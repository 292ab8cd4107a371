"""Signals in a blocked allreduce. Rank 0 waits for rank 1, which submits only after the handler has run."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
from checks import marker, wait_for

import distrun.numpy as hvd

LIMIT = 3.0  # seconds from the signal to its handler; within 1 on a machine that is not overloaded


def signal_myself_soon(number: int, sent: list[float]) -> None:
    def send() -> None:
        sent.append(time.monotonic())
        os.kill(os.getpid(), number)

    threading.Timer(0.3, send).start()


def check_keyboard_interrupt() -> None:
    if hvd.rank() == 0:
        sent: list[float] = []
        # rank 1 waits for this operation, wherever the signal arrives
        handle = hvd.allreduce_async(np.ones(4), name="interrupted")
        try:
            signal_myself_soon(signal.SIGINT, sent)
            handle.wait()
        except KeyboardInterrupt:
            assert time.monotonic() - sent[0] < LIMIT
        else:
            raise AssertionError("no KeyboardInterrupt")
        marker("interrupted").touch()
    else:
        wait_for(marker("interrupted").exists, "the interrupt")
        hvd.allreduce(np.ones(4), name="interrupted")
    # The interrupted operation stayed in flight and is now complete. The job goes on.
    assert hvd.allreduce(np.ones(1), op=hvd.Sum).tolist() == [hvd.size()]


def check_interrupted_call() -> None:
    """A call that all ranks make. It is interrupted on rank 0 before the others make it, and still takes effect."""
    path = str(marker("timeline"))
    if hvd.rank() == 0:
        sent: list[float] = []
        try:
            signal_myself_soon(signal.SIGINT, sent)
            hvd.start_timeline(path)
        except KeyboardInterrupt:
            assert time.monotonic() - sent[0] < LIMIT
        else:
            raise AssertionError("no KeyboardInterrupt")
        marker("interrupted.call").touch()
    else:
        wait_for(marker("interrupted.call").exists, "the interrupt")
        hvd.start_timeline(path)
    hvd.allreduce(np.ones(1), name="recorded")
    hvd.stop_timeline()
    if hvd.rank() == 0:
        assert "recorded" in Path(path).read_text()


def check_handler_that_returns() -> None:
    if hvd.rank() == 0:
        sent: list[float] = []
        ran: list[float] = []

        def handler(*_: object) -> None:
            ran.append(time.monotonic())
            marker("handled").touch()

        signal.signal(signal.SIGTERM, handler)
        signal_myself_soon(signal.SIGTERM, sent)
    else:
        wait_for(marker("handled").exists, "the handler")
    assert hvd.allreduce(np.ones(1), op=hvd.Sum, name="handled").tolist() == [hvd.size()]
    if hvd.rank() == 0:
        assert len(ran) == 1 and ran[0] - sent[0] < LIMIT


def check_should_stop_after_sigterm() -> None:
    if hvd.rank() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    step = 0
    while not hvd.should_stop():
        step += 1
        assert step < 1_000_000, "nobody stopped"
        if step == 3 and hvd.rank() == hvd.size() - 1:
            os.kill(os.getpid(), signal.SIGTERM)
    assert step >= 3 and hvd.allgather_object(step) == [step] * hvd.size()


def check_shutdown_in_a_handler() -> None:
    """The interrupted operation gets its result, and the next session is not refused."""
    size, took = hvd.size(), []
    first = hvd.rank() == 0
    if first:

        def handler(*_: object) -> None:
            marker("shutting.down").touch()
            start = time.monotonic()
            hvd.shutdown()
            took.append(time.monotonic() - start)

        signal.signal(signal.SIGTERM, handler)
        signal_myself_soon(signal.SIGTERM, [])
    else:
        wait_for(marker("shutting.down").exists, "the handler")
    assert hvd.allreduce(np.ones(1), op=hvd.Sum, name="interrupted by shutdown").tolist() == [size]
    assert hvd.is_initialized() != first and (not first or took[0] < LIMIT), took
    hvd.shutdown()
    hvd.init()


if __name__ == "__main__":
    hvd.init()
    check_keyboard_interrupt()
    check_interrupted_call()
    check_handler_that_returns()
    check_should_stop_after_sigterm()
    check_shutdown_in_a_handler()
    hvd.shutdown()
    print("all checks passed", flush=True)
    sys.exit(0)
