"""`phases.py PHASE VICTIM SIGNAL`: the victim sends itself STOP or KILL in that phase. In the phase `sessions` the test
sends it, at any moment. SEEN is a folder of the test where the ranks leave marks for each other.

Lines: `ready RANK PID`, `raised RANK TYPE ranks=[..] host=.. cause=.. seconds=..`, `left RANK waited=.. seconds=..`.
The seconds count from the victim's signal if it sent it itself, else from the moment when the rank began to wait.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

import distrun
import distrun.numpy as hvd

PHASE, VICTIM, SIGNAL = sys.argv[1], int(sys.argv[2]), signal.Signals[f"SIG{sys.argv[3]}"]
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
SEEN = Path(os.environ["SEEN"]) if "SEEN" in os.environ else None
waiting_since = time.monotonic()


def strike() -> None:
    if RANK == VICTIM:
        if SEEN is not None:
            (SEEN / "struck").write_text(str(time.monotonic()))
        os.kill(os.getpid(), SIGNAL)


def seconds_since_then() -> float:
    struck = SEEN / "struck" if SEEN is not None else None
    since = float(struck.read_text()) if struck is not None and struck.exists() else waiting_since
    return time.monotonic() - since


def begin() -> None:
    """Called before a call that may wait for other ranks."""
    global waiting_since
    waiting_since = time.monotonic()


def strike_when_others_wait() -> None:
    """The victim sends the signal a moment after all others have come here. They go on to the call where
    they wait."""
    assert SEEN is not None
    (SEEN / str(RANK)).touch()
    if RANK != VICTIM:
        return
    deadline = time.monotonic() + 60
    while len(list(SEEN.iterdir())) < SIZE:
        assert time.monotonic() < deadline, "the others do not come"
        time.sleep(0.01)
    time.sleep(0.5)
    strike()


def reduce() -> None:
    begin()
    hvd.allreduce(np.ones(50_000, np.float32), name="x")


def sessions() -> None:
    """Runs init, a few operations and shutdown again and again."""
    for turn in range(1000):
        begin()
        hvd.init()
        if turn == 0:
            print(f"ready {RANK} {os.getpid()}", flush=True)
        for _ in range(20):
            reduce()
        begin()
        hvd.shutdown()


def subset() -> None:
    """Ranks 1 and 2 work in their own process set, while rank 0, which coordinates, is busy."""
    workers = hvd.add_process_set([1, 2])
    if RANK == 0:
        time.sleep(60)  # the job ends long before this
        return
    threading.Timer(0.2, strike).start()
    while True:
        hvd.allreduce(np.ones(5_000_000, np.float32), name="in the subset", process_set=workers)


def main() -> None:
    if PHASE == "sessions":
        return sessions()
    begin()
    if PHASE == "init":
        strike_when_others_wait()
    hvd.init()
    reduce()
    if PHASE == "idle":
        strike()
        time.sleep(0.5)
        reduce()
    if PHASE == "subset":
        subset()
    if PHASE == "should_stop":
        strike()
        time.sleep(0.2)
        hvd.should_stop(request=True)
    begin()
    if PHASE == "shutdown":
        strike_when_others_wait()
    hvd.shutdown()
    print(f"left {RANK} waited={time.monotonic() - waiting_since:.2f} seconds={seconds_since_then():.2f}", flush=True)


try:
    main()
except distrun.DistrunError as error:
    kind = type(error).__name__
    print(
        f"raised {RANK} {kind} ranks={list(error.ranks)} host={error.host} cause={error.cause} "
        f"seconds={seconds_since_then():.2f} {error}",
        flush=True,
    )
    raise
