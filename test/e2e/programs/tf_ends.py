"""TensorFlow programs when another rank ends, at a signal, and at their own end. The first argument selects the
case."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import tensorflow as tf

import distrun.tensorflow as hvd

HOW = sys.argv[1]


def step(x):  # type: ignore[no-untyped-def]
    return hvd.allreduce(x * 2.0, op=hvd.Sum, name="the.gradient")


def killed(run) -> None:  # type: ignore[no-untyped-def]
    """Rank 1 dies in the middle of a step. The others get the error and print the time."""
    x = tf.ones([4])
    for _ in range(3):
        run(x)
    hvd.barrier()
    if hvd.rank() == 1:
        print(f"dies {time.monotonic()}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        run(x)
    except Exception as failure:
        ours = hvd.distrun_error(failure)
        assert isinstance(ours, hvd.RankLost) and ours.ranks == (1,) and not ours.usable, failure
        assert "rank 1" in str(failure)
        print(f"told {time.monotonic()} {type(failure).__name__}", flush=True)


def lacks(wrap) -> None:  # type: ignore[no-untyped-def]
    """Rank 0 has one variable less, and ends. The others' error names the variable and the rank."""
    names = ["a", "b"] if hvd.rank() == 0 else ["a", "b", "odd"]
    variables = [tf.Variable(float(hvd.rank()), name=name) for name in names]
    try:
        wrap(lambda: hvd.broadcast_(variables, 0))()
    except Exception as failure:
        ours = hvd.distrun_error(failure)
        assert isinstance(ours, hvd.RankLeft) and ours.ranks == (0,) and not ours.usable, failure
        assert ours.tensor == "broadcast.variable.odd", ours.tensor
        assert "rank 0" in str(failure) and "variable.odd" in str(failure), failure
        print(f"told {type(failure).__name__}", flush=True)


class Stopped(Exception):
    """The exception of this program's handler of SIGUSR1."""


def stop(*_: object) -> None:
    raise Stopped


def interrupted() -> None:
    """A handler that returns runs at once, and the operation goes on. A handler that raises ends the wait at once."""
    handled = Path(sys.argv[2])
    signal.signal(signal.SIGUSR2, lambda *_: handled.touch())
    signal.signal(signal.SIGUSR1, stop)
    hvd.barrier()
    if hvd.rank() == 1:
        while not handled.exists():
            time.sleep(0.02)
        hvd.allreduce(tf.ones([2]), name="late")
        hvd.broadcast_object("go", 0)
        for name in ("left.alone", "left.too"):
            assert hvd.allreduce(tf.ones([2]), name=name)[0] == 1.0
        return
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR2)).start()
    assert hvd.allreduce(tf.ones([2]), op=hvd.Average, name="late")[0] == 1.0
    for number, kind in ((signal.SIGUSR1, Stopped), (signal.SIGINT, KeyboardInterrupt)):
        started = time.monotonic()
        try:
            threading.Timer(0.3, os.kill, (os.getpid(), number)).start()
            hvd.allreduce(tf.ones([2]), name="left.alone" if kind is Stopped else "left.too")
        except kind:
            assert time.monotonic() - started < 5.0  # within 1 on a machine that is not overloaded
        else:
            raise AssertionError(f"{kind} was not raised")
    hvd.broadcast_object("go", 0)


def left_in_handler() -> None:
    """A handler calls shutdown during an operation that the other rank never submits."""
    left = Path(sys.argv[2])

    def leave(*_: object) -> None:
        try:
            hvd.shutdown()
        except hvd.Timeout as failure:
            assert "never.made" in str(failure), failure
            left.touch()

    signal.signal(signal.SIGUSR1, leave)
    hvd.barrier()
    if hvd.rank() == 1:
        until = time.monotonic() + 60.0
        while not left.exists() and time.monotonic() < until:
            time.sleep(0.02)
        os._exit(0)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    try:
        hvd.allreduce(tf.ones([2]), name="never.made")
    except Exception as failure:
        print(f"left {type(failure).__name__}", flush=True)
    assert not hvd.is_initialized()


def main() -> None:
    hvd.init()
    if HOW == "eager":
        killed(step)
    elif HOW == "graph":
        killed(tf.function(step))
    elif HOW.startswith("lacks"):
        lacks(tf.function if "graph" in HOW else lambda function: function)
    elif HOW == "interrupted":
        interrupted()
        print("all checks passed", flush=True)
    elif HOW == "left":
        left_in_handler()
    elif HOW == "stuck":
        # Ctrl-C at the launcher must end this wait.
        print("stuck", flush=True)
        if hvd.rank() == 0:
            tf.function(step)(tf.ones([2]))
        time.sleep(100)
    elif HOW == "in flight":
        # Another thread waits in a graph while the program ends.
        if hvd.rank() == 0:
            graph = tf.function(step)
            threading.Thread(target=lambda: graph(tf.ones([2])), daemon=True).start()
            time.sleep(1.0)
        print("ends", flush=True)


main()
