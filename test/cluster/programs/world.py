"""Prints this rank's world and a sum over it, in two sessions. Or fails as the first argument says, mostly on rank
3."""

from __future__ import annotations

import mmap
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

import distrun
import distrun.numpy as hvd


def own_rank() -> str:
    for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"):
        if name in os.environ:
            return os.environ[name]
    return "0"


def total(name: str) -> float:
    return float(hvd.allreduce(np.float32(hvd.rank()).reshape(1), op=hvd.Sum, name=name)[0])


def fail(how: str) -> None:
    lost = 0 if how == "kill-first" else 3
    hvd.init()
    try:
        total("before")
        if hvd.rank() == lost and how == "raise":
            raise ValueError("a bug in the program")
        if hvd.rank() == lost:
            os.kill(os.getpid(), signal.SIGKILL)
        total("after")
    except distrun.RankLost as error:
        print(f"lost {error.ranks}: {error.cause}", flush=True)
        raise SystemExit(3) from None


def absent(rank: str) -> None:
    """One rank does not use distrun."""
    if own_rank() == rank:
        return
    try:
        hvd.init(settings={"start_timeout": 3})
    except distrun.DistrunError as error:
        print(error, flush=True)
        raise SystemExit(4) from None


# Lets the process $0 run for a millisecond at a time.
SLOWLY = "for i in $(seq 60); do kill -STOP $0; sleep 0.05; kill -CONT $0; sleep 0.001; done"


def refused() -> None:
    """All ranks get the reason, including a slow one."""
    if own_rank() == "3":
        words = ["/bin/sh", "-c", SLOWLY, str(os.getpid())]
        subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        hvd.init(settings={"backend": "foo"})
    except distrun.DistrunError as error:
        print(f"heard {type(error).__name__}: {error}", flush=True)
        raise SystemExit(4) from None


def refused_one() -> None:
    """Rank 3 has no memory to start its thread. By then the others have returned from init."""
    if own_rank() == "3":
        room = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE + (10 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
    try:
        hvd.init()
        total("needs all")
    except distrun.DistrunError as error:
        print(f"heard {type(error).__name__}: {error}", flush=True)
        raise SystemExit(4) from None


def main() -> None:
    if sys.argv[1:] == ["refused"]:
        return refused()
    if sys.argv[1:] == ["refused-one"]:
        return refused_one()
    if sys.argv[1:] and sys.argv[1].startswith("absent"):
        return absent("0" if sys.argv[1] == "absent-first" else "3")
    if sys.argv[1:]:
        return fail(sys.argv[1])
    hvd.init()
    first = total("one")
    hvd.shutdown()
    hvd.init()
    here = f"local {hvd.local_rank()}/{hvd.local_size()} cross {hvd.cross_rank()}/{hvd.cross_size()}"
    world = f"{hvd.rank()}/{hvd.size()} {here}"
    host = os.uname().nodename if hvd.size() > 1 else "localhost"
    print(f"world {world} on {host}: {first:.0f} {total('two'):.0f}", flush=True)
    hvd.shutdown()


main()
