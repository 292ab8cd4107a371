"""Rank 1 is killed or aborts in the middle of a step. The others print their error and how long after this it came."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from checks import come, marker, wait_for_all

import distrun.torch.c10d  # noqa: F401  # registers the backend

dist.init_process_group("distrun")
rank = dist.get_rank()
way = sys.argv[2]
moment: Path = marker("killed")
model = torch.nn.Linear(64, 64)
if way == "ddp":
    model = torch.nn.parallel.DistributedDataParallel(model)


def step(last: bool = False) -> None:
    if way == "ddp":
        model(torch.ones(2, 64)).sum().backward()
    elif way == "functional":
        from torch.distributed import _functional_collectives as functional

        functional.all_reduce(torch.ones(4), "sum", dist.group.WORLD).sum().item()
    elif way == "future":
        work = dist.all_reduce(torch.ones(4), async_op=True)
        assert work is not None
        work.get_future().wait()
    elif way == "recv" and last:
        dist.recv(torch.ones(4), 1)  # with three ranks, for the set of these two
    else:
        dist.all_reduce(torch.ones(4))


for _ in range(3):
    step()
# An operation that is complete on one rank may still be in flight on another.
come("stepped", rank)
if rank == 1:
    wait_for_all("stepped", dist.get_world_size())
    if way == "ddp":
        model(torch.ones(2, 64))  # rank 1 has run forward; the others wait in backward
    moment.write_text(repr(time.monotonic()))
    if way == "abort":
        dist.distributed_c10d._abort_process_group()
        sys.exit(3)
    os.kill(os.getpid(), signal.SIGKILL)
try:
    step(last=True)
except RuntimeError as error:
    seconds = time.monotonic() - float(moment.read_text())
    text = " ".join(str(error).split())
    print(f"got {type(error).__name__} after {seconds:.3f} s: {text}", flush=True)
else:
    print("no error", flush=True)
