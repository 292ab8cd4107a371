"""The last rank ends in the middle of an operation on the GPU; the others must hear of it."""

from __future__ import annotations

import os
import signal
import time

import torch

import distrun.torch as hvd

hvd.init()
tensor = torch.ones(1 << 20, device=torch.device("cuda", hvd.local_rank() % torch.cuda.device_count()))
hvd.allreduce(tensor, name="all are here")
if hvd.rank() == hvd.size() - 1:
    os.kill(os.getpid(), signal.SIGKILL)
start = time.monotonic()
try:
    hvd.allreduce(tensor, name="one is gone")
except hvd.RankLost as error:
    print(f"rank lost after {time.monotonic() - start:.2f} s: {error}", flush=True)
