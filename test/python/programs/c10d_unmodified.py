"""An unmodified script for gloo. With distrun --torch-backend distrun, distrun makes its groups."""

from __future__ import annotations

import gc
import re

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
pair = dist.new_group([0, 1], backend="gloo")
model = DistributedDataParallel(torch.nn.Linear(2, 2))
model(torch.ones(1, 2)).sum().backward()
count = torch.ones(1)
dist.all_reduce(count, group=pair)
bits = torch.tensor([1 + 2 * dist.get_rank()])
try:
    dist.all_reduce(bits, dist.ReduceOp.BAND)
except NotImplementedError as error:  # follow the advice in distrun's message
    said = re.search(r"dist\.new_group\(backend='(.+)'\)", str(error))
    beside = dist.new_group(backend=said[1] if said else None)
    dist.all_reduce(bits, dist.ReduceOp.BAND, group=beside)
    del beside
assert bits.item() == 1, bits
dist.monitored_barrier()  # torch refuses this if the name is not gloo
alone = dist.new_group([1])
assert alone == dist.GroupMember.NON_GROUP_MEMBER or dist.get_backend(alone) == "gloo"
kinds = {type(dist.group.WORLD).__name__, type(pair).__name__}
print(f"{kinds} {dist.get_backend()} {dist.get_backend(pair)}, {count.item():g} ranks", flush=True)
# If a group of gloo outlives the interpreter, torch's own threads sometimes abort the process (seen once).
del alone, model, pair
gc.collect()
dist.destroy_process_group()
