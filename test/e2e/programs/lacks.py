"""`lacks.py WHEN threads GROUP | files MORE`: rank 1 cannot have another thread, or MORE descriptors at most.

WHEN is `init`, or `set`: before a process set is made. It lives on, so that its end tells the others nothing.
"""

from __future__ import annotations

import os
import resource
import sys
import time

import numpy as np

import distrun as hvd

when, what, how = sys.argv[1:4]
rank = int(os.environ["DISTRUN_RANK"])


def limit() -> None:
    if rank != 1:
        return
    if what == "threads":
        with open(f"{how}/cgroup.procs", "w") as procs:
            procs.write(str(os.getpid()))
    else:
        files = len(os.listdir("/proc/self/fd")) - 1 + int(how)
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))


if when == "init":
    limit()
begin = time.monotonic()
try:
    hvd.init()
    if when == "set":
        hvd.barrier()
        limit()
        begin = time.monotonic()
        hvd.add_process_set([0, 1, 2])
    hvd.allreduce(np.ones(4), name="x")
    print(f"went {rank}", flush=True)
except Exception as error:
    seconds = time.monotonic() - begin
    print(f"refused {rank} {seconds:.1f} {type(error).__name__}: {' '.join(str(error).split())}", flush=True)
if rank == 1:
    time.sleep(float(os.environ.get("LIVES", "30")))
