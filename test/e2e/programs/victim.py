"""A short job in which rank ARGV[2] kills itself ARGV[1] seconds after its start, wherever it is then."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

delay, victim = float(sys.argv[1]), int(sys.argv[2])
if int(os.environ["RANK"]) == victim:
    threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)).start()

import numpy as np  # noqa: E402

import distrun  # noqa: E402
import distrun.numpy as hvd  # noqa: E402


def main() -> None:
    rank = int(os.environ["RANK"])
    begin = time.monotonic()
    try:
        for _ in range(1000):
            hvd.init()
            for _ in range(20):
                begin = time.monotonic()
                hvd.allreduce(np.ones(1000, np.float32), name="x")
            begin = time.monotonic()
            hvd.shutdown()
    except distrun.DistrunError as error:
        kind = type(error).__name__
        waited = time.monotonic() - begin
        print(
            f"raised {rank} {kind} ranks={list(error.ranks)} host={error.host} "
            f"cause={error.cause} seconds={waited:.2f}",
            flush=True,
        )
        raise


main()
