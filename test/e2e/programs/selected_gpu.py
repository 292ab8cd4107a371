"""Says which GPU `distrun.torch.init()` selects where the machine seems to have as many as the argument says."""

import os
import sys

import torch

selected: list[int] = []
names = os.environ.get("CUDA_VISIBLE_DEVICES")
torch.cuda.is_available = lambda: True
torch.cuda.device_count = lambda: int(sys.argv[1]) if names is None else len(names.split(","))
torch.cuda.set_device = lambda device: selected.append(int(device))

import distrun.torch as hvd  # noqa: E402

hvd.init()
print(f"selected {selected} of {torch.cuda.device_count()}")
hvd.shutdown()
