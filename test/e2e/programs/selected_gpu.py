"""Says which GPU is selected after `distrun.torch.init()` where the machine seems to have as many as the argument says.

A second argument is what the script sets CUDA_VISIBLE_DEVICES to after init(), as scripts for Horovod do; where a third
is there, CUDA has read the variable before that.
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

distrun.init()  # as another front end does, which leaves the GPU to this one
hvd.init()
queued = len(torch.cuda._queued_calls)
hvd.init()
assert len(torch.cuda._queued_calls) == queued, "a second init() selects again"
if sys.argv[2:]:
    os.environ["CUDA_VISIBLE_DEVICES"] = sys.argv[2]
torch.cuda.device_count = count
for call, _ in torch.cuda._queued_calls[before:]:  # as PyTorch does at the first use of CUDA
    call()
print(f"selected {selected} of {count()}")
hvd.shutdown()
