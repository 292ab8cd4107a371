"""A program for torch.distributed. Argument: the backend of its group. It imports distrun only for that backend."""

from __future__ import annotations

import importlib
import sys

import torch
import torch.distributed as dist

if sys.argv[1] == "distrun":
    importlib.import_module("distrun.torch.c10d")
dist.init_process_group(sys.argv[1])
one = torch.ones(1)
dist.all_reduce(one)
print("sum", one.item(), flush=True)
dist.destroy_process_group()
