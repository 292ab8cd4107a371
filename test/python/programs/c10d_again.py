"""Calls destroy_process_group and init_process_group again while rank 0 is late and no other object holds torch's
store.

Arguments: a folder of all ranks, the backend's name, the URL's scheme. The scheme is env, tcp, or tcp-spelled. With
tcp-spelled, the odd rounds spell the address differently.
"""

from __future__ import annotations

import importlib
import os
import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from checks import come, marker, wait_for

BACKEND, SCHEME = sys.argv[2:]
ROUNDS = 3
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

if BACKEND == "distrun":
    importlib.import_module("distrun.torch.c10d")  # registers the backend


def where(number: int) -> dict[str, Any]:
    if SCHEME == "env":
        return {"init_method": "env://"}
    host = os.environ["MASTER_ADDR"]
    if SCHEME == "tcp-spelled" and number % 2:
        assert host != "localhost"
        host = "localhost"
    return {"init_method": f"tcp://{host}:{os.environ['MASTER_PORT']}", "rank": RANK, "world_size": SIZE}


for number in range(ROUNDS):
    dist.init_process_group(BACKEND, timeout=timedelta(seconds=60), **where(number))
    come(f"round{number}-", RANK)
    count = torch.ones(1)
    dist.all_reduce(count)
    # depends on the values that the ranks wrote into torch's store
    beside = dist.new_group(backend="cpu:gloo,cuda:gloo")
    dist.all_reduce(count, group=beside)
    assert count.item() == SIZE * SIZE
    del beside
    if RANK == 0 and number + 1 < ROUNDS:
        ahead = marker(f"round{number + 1}-{SIZE - 1}")
        wait_for(ahead.exists, f"rank {SIZE - 1} to come to the next round")
    dist.destroy_process_group()
print("all checks passed", flush=True)
