"""Reduces for ever, or ARGV[1] steps. Prints its pid first and, if the job fails, the error that it gets.

Lines: `ready RANK PID`, `raised RANK TYPE ranks=[..] host=.. cause=.. seconds=..`, `done RANK`.
With FAULTS_WORKERS=1 each rank keeps a forked child alive, as a DataLoader would.
"""

from __future__ import annotations

import os
import sys
import time

import numpy as np

import distrun
import distrun.numpy as hvd


def main() -> int:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 30
    pause = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    hvd.init()
    rank = hvd.rank()
    if os.environ.get("FAULTS_WORKERS") == "1" and os.fork() == 0:
        time.sleep(3600)
    print(f"ready {rank} {os.getpid()}", flush=True)
    small = np.ones(1, np.float32)
    middle = np.ones(1 << 17, np.float32)  # some backends use another path for this size
    large = np.ones(1 << 20, np.float32)
    last = time.monotonic()
    try:
        for step in range(steps):
            last = time.monotonic()
            hvd.allreduce(small, name="small", op=hvd.Sum)
            if step % 8 == 0:
                hvd.allreduce(large, name="large", op=hvd.Sum)
            if step % 8 == 4:
                hvd.allreduce(middle, name="middle", op=hvd.Sum)
            time.sleep(pause)
        hvd.shutdown()
    except distrun.DistrunError as error:
        waited = time.monotonic() - last
        kind = type(error).__name__
        print(
            f"raised {rank} {kind} ranks={list(error.ranks)} host={error.host} "
            f"cause={error.cause} seconds={waited:.2f}",
            flush=True,
        )
        raise
    print(f"done {rank}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
