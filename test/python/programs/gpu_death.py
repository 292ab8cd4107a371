"""The last rank ends while the others' GPUs wait for it, in operations of two process sets in a row. The others must
get an error."""

from __future__ import annotations

import os
import signal
import time

import torch

import distrun.torch as hvd

hvd.init()
tensor = torch.ones(1 << 20, device=torch.device("cuda", hvd.local_rank() % torch.cuda.device_count()))
torch.cuda.set_device(tensor.device)
others = hvd.add_process_set(list(range(hvd.size())), members_only=True)
for process_set in (hvd.global_process_set, others):
    hvd.allreduce(tensor, name="all are here", process_set=process_set)
last = hvd.rank() == hvd.size() - 1
if last:
    # cycles, some seconds: the ranks agree on the next operations, but these do not begin here
    torch.cuda._sleep(1 << 33)
handles = [
    hvd.allreduce_async(tensor, name="one is gone", process_set=process_set)
    for process_set in (hvd.global_process_set, others)
]
if last:
    time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGKILL)
start = time.monotonic()
try:
    for handle in handles:
        hvd.synchronize(handle)
except hvd.RankLost as error:
    print(f"rank lost after {time.monotonic() - start:.2f} s: {error}", flush=True)
