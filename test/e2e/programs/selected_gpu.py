"""Prints the GPU that `distrun.torch.init()` selects on a machine that seems to have as many GPUs as the argument says.

A second argument is the script's value of CUDA_VISIBLE_DEVICES after init(), as scripts for Horovod set it. With a
third argument, CUDA has read the variable before.
"""

import os
import sys

import torch

selected: list[int] = []


def refuse() -> bool:
    raise AssertionError("init() has started CUDA, which reads CUDA_VISIBLE_DEVICES only then")


def count() -> int:
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    return int(sys.argv[1]) if names is None or sys.argv[3:] else len(names.split(","))


torch.cuda.is_available = torch.cuda.device_count = refuse
torch.cuda.set_device = lambda device: selected.append(int(device))
before = len(torch.cuda._queued_calls)

import distrun  # noqa: E402
import distrun.torch as hvd  # noqa: E402

distrun.init()  # as another front end does; it leaves the choice of the GPU to distrun.torch
hvd.init()
queued = len(torch.cuda._queued_calls)
hvd.init()
assert len(torch.cuda._queued_calls) == queued, "a second init() selects again"
if sys.argv[2:]:
    os.environ["CUDA_VISIBLE_DEVICES"] = sys.argv[2]
torch.cuda.device_count = count
for call, _ in torch.cuda._queued_calls[before:]:  # PyTorch runs these calls at the first use of CUDA
    call()
print(f"selected {selected} of {count()}")
hvd.shutdown()
