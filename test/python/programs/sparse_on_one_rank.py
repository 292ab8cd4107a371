"""A parameter whose gradient is sparse on rank 0 and dense elsewhere: every rank's step says what to do."""

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
    # A rank that ends takes the answer from one that has not had it yet.
    come("refused", hvd.rank())
    wait_for_all("refused", hvd.size())
    raise
