"""A script as written for torchrun. It does not know distrun."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
assert rank == int(os.environ["RANK"]) and 0 <= int(os.environ["LOCAL_RANK"]) < int(os.environ["LOCAL_WORLD_SIZE"])
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(rank)
for _ in range(20):
    x = torch.rand(16, 4, generator=generator)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    torch.autograd.backward(loss)
    optimizer.step()
weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
same = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
dist.all_gather(same, weights)
print(f"rank {rank} of {dist.get_world_size()}: equal {all(torch.equal(weights, other) for other in same)}", flush=True)
dist.destroy_process_group()
# A thread of Gloo in torch 2.13 can outlive this. One run in four ended with "terminate called without an active
# exception", under torchrun too.
os._exit(0)
