"""Rank 1 writes foreign bytes into its tensor connections, like a library that closes a descriptor twice."""

from __future__ import annotations

import os
import sys
import time

import numpy as np

import distrun.numpy as hvd


def sockets() -> set[int]:
    """The descriptors of this process that are TCP sockets."""
    with open("/proc/self/net/tcp") as table:
        inodes = {line.split()[9] for line in list(table)[1:]}
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if target.startswith("socket:[") and target[8:-1] in inodes:
            found.add(int(name))
    return found


hvd.init()
before = sockets()
ours = hvd.add_process_set([0, 1])  # opens new connections for the set
if hvd.rank() == 2:
    hvd.shutdown()  # waits for the other ranks
    sys.exit()
hvd.allreduce(np.ones(1000, np.float32), name="before", process_set=ours)
if hvd.rank() == 1:
    for descriptor in sockets() - before:
        os.write(descriptor, b"foreign bytes " * 40)
    time.sleep(float(sys.argv[1]))
hvd.allreduce(np.ones(100000, np.float32), name="after", process_set=ours)
print("went on", flush=True)
