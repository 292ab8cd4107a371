"""`lacks.py FOLDER WHEN threads GROUP | files MORE`: rank 1 cannot have another thread, or MORE descriptors at most.

WHEN is `init`, or `set`: before a process set is made. It lives on until the others are done, which make files in
FOLDER, so that its end tells them nothing.
"""

from __future__ import annotations

import os
import resource
import sys
import time

import numpy as np

import distrun.numpy as hvd

folder, when, what, how = sys.argv[1:5]
rank = int(os.environ["DISTRUN_RANK"])


def there(other: int) -> bool:
    """Without a descriptor of its own, which this rank cannot have."""
    return os.path.exists(f"{folder}/{other}")


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
    while sum(there(other) for other in (0, 2)) < 2 and time.monotonic() - begin < 60:
        time.sleep(0.1)
else:
    open(f"{folder}/{rank}", "w").close()
