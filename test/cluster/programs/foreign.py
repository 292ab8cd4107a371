"""Reduces for ever. After a few steps rank ARGV[1] acts like a library that closes a descriptor twice. It writes 777
bytes into a socket that it does not own, here the ARGV[2]th TCP socket of this process.

Lines: `ready RANK PID`, `wrote into LOCAL to REMOTE`, `none` (there are fewer), `raised RANK ...` as in loop.py.
"""

from __future__ import annotations

import os
import socket
import sys
import time

import numpy as np

import distrun
import distrun.numpy as hvd


def sockets() -> list[socket.socket]:
    """The TCP sockets of distrun. This process has no others."""
    found = []
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        try:
            one = socket.socket(fileno=os.dup(int(name)))
            if one.family in (socket.AF_INET, socket.AF_INET6) and one.getpeername():
                found.append(one)
        except OSError:
            continue
    return found


def write(index: int) -> None:
    others = sockets()
    if index >= len(others):
        print("none", flush=True)
        os._exit(0)
    print(f"wrote into {others[index].getsockname()} to {others[index].getpeername()}", flush=True)
    others[index].send(b"x" * 777)


def main() -> int:
    writer, index = int(sys.argv[1]), int(sys.argv[2])
    hvd.init()
    rank = hvd.rank()
    print(f"ready {rank} {os.getpid()}", flush=True)
    value = np.ones(1000, np.float32)
    try:
        for step in range(1 << 30):
            hvd.allreduce(value, name="value", op=hvd.Sum)
            if step == 5 and rank == writer:
                write(index)
            time.sleep(0.01)
    except distrun.DistrunError as error:
        kind = type(error).__name__
        print(f"raised {rank} {kind} ranks={list(error.ranks)} host={error.host} cause={error.cause}", flush=True)
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main())
