"""A parameter whose gradient is sparse on rank 0 and dense on the others. Every rank's step gives the advice."""

from __future__ import annotations

import torch
from checks import come, wait_for_all

import distrun.torch as hvd

hvd.init()
table = torch.nn.Embedding(4, 2, sparse=hvd.rank() == 0)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=0.1), table.named_parameters())
table(torch.tensor([1])).sum().backward()
try:
    optimizer.step()
except ValueError as error:
    print(f"refused: {error}", flush=True)
    # If a rank ended now, a rank that has not had the error yet would not get it.
    come("refused", hvd.rank())
    wait_for_all("refused", hvd.size())
    raise
