"""Makes and removes a process set of ranks 2 and up, for ever. Prints its pid first and its error at the end.

Lines: `ready RANK PID`, `raised RANK TYPE ranks=[..] host=.. cause=..`.
"""

from __future__ import annotations

import os
import sys

import numpy as np

import distrun
import distrun.numpy as hvd


def main() -> int:
    hvd.init()
    rank = hvd.rank()
    members = list(range(2, hvd.size()))
    hvd.allreduce(np.ones(1, np.float32), name="first")
    print(f"ready {rank} {os.getpid()}", flush=True)
    try:
        while True:
            group = hvd.add_process_set(members)
            hvd.remove_process_set(group)
    except distrun.DistrunError as error:
        kind = type(error).__name__
        print(f"raised {rank} {kind} ranks={list(error.ranks)} host={error.host} cause={error.cause}", flush=True)
        raise


if __name__ == "__main__":
    sys.exit(main())
