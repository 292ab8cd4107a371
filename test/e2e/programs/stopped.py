"""`stopped.py PHASE VICTIM`: the victim stops itself in that phase; for `sessions` the test stops it at any moment."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import numpy as np

import distrun
import distrun.numpy as hvd

PHASE, VICTIM = sys.argv[1], int(sys.argv[2])
RANK = int(os.environ["RANK"])


def stop_here() -> None:
    if RANK == VICTIM:
        os.kill(os.getpid(), signal.SIGSTOP)


def reduce() -> None:
    hvd.allreduce(np.ones(50_000, np.float32), name="x")


def sessions() -> None:
    """init, a few operations and shutdown, again and again."""
    for turn in range(1000):
        hvd.init()
        if turn == 0:
            print(f"ready {RANK} {os.getpid()}", flush=True)
        for _ in range(20):
            reduce()
        hvd.shutdown()


def subset() -> None:
    """Ranks 1 and 2 work in a process set of their own, while rank 0, which coordinates, is busy elsewhere."""
    workers = hvd.add_process_set([1, 2])
    if RANK == 0:
        time.sleep(60)  # the job ends long before
        return
    threading.Timer(0.2, stop_here).start()
    while True:
        hvd.allreduce(np.ones(5_000_000, np.float32), name="in the subset", process_set=workers)


def main() -> None:
    if PHASE == "sessions":
        return sessions()
    if PHASE == "init":
        stop_here()
    hvd.init()
    reduce()
    if PHASE == "idle":
        stop_here()
        time.sleep(0.5)
        reduce()
    if PHASE == "subset":
        subset()
    if PHASE == "should_stop":
        stop_here()
        time.sleep(0.2)
        hvd.should_stop(request=True)
    if PHASE == "shutdown":
        stop_here()
    hvd.shutdown()


try:
    main()
except distrun.DistrunError as error:
    kind = type(error).__name__
    print(
        f"raised {RANK} {kind} ranks={list(error.ranks)} host={error.host} cause={error.cause} {error}",
        flush=True,
    )
    raise
