"""`lacks.py FOLDER RANK WHEN threads MORE GROUP | files MORE`: RANK can have at most MORE more threads, or descriptors.

WHEN is `init`, or `set` for the time before a process set is made. GROUP is a cgroup that can limit processes. The
other ranks create a file in FOLDER when they are done. RANK lives until then, so that they do not learn of it from its
end.
"""

from __future__ import annotations

import os
import resource
import sys
import time

import numpy as np

import distrun.numpy as hvd

folder, number, when, what, more, *group = sys.argv[1:]
limited = int(number)
rank = int(os.environ["DISTRUN_RANK"])


def limit() -> None:
    if rank != limited:
        return
    if what == "threads":
        with open(f"{group[0]}/pids.max", "w") as most:
            most.write(str(len(os.listdir("/proc/self/task")) + int(more)))
        with open(f"{group[0]}/cgroup.procs", "w") as procs:
            procs.write(str(os.getpid()))
    else:
        files = len(os.listdir("/proc/self/fd")) - 1 + int(more)
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
        hvd.add_process_set([0, 1])
    hvd.allreduce(np.ones(4), name="x")
    print(f"went {rank}", flush=True)
except Exception as error:
    seconds = time.monotonic() - begin
    print(f"refused {rank} {seconds:.1f} {type(error).__name__}: {' '.join(str(error).split())}", flush=True)
if rank != limited:
    open(f"{folder}/{rank}", "w").close()
others = {0, 1, 2} - {rank}
# os.path.exists needs no descriptor. This rank can have no more.
while rank == limited and time.monotonic() - begin < 60:
    if all(os.path.exists(f"{folder}/{other}") for other in others):
        break
    time.sleep(0.1)
