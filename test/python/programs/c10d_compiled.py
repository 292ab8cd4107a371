"""Collectives of the backend distrun inside torch.compile: one graph, with the values of the eager step. The first
argument, if any, is torch.compile's backend."""

from __future__ import annotations

import sys
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import _functional_collectives as functional
from torch.nn.parallel import DistributedDataParallel

import distrun.torch.c10d  # noqa: F401  # registers the backend

warnings.simplefilter("ignore", FutureWarning)
COMPILER = sys.argv[1] if len(sys.argv) > 1 else "aot_eager"
dist.init_process_group("distrun")
rank, size = dist.get_rank(), dist.get_world_size()


def step(x: torch.Tensor) -> torch.Tensor:
    group = dist.group.WORLD
    reduced = functional.all_reduce(x * 2, "sum", group)
    shared = functional.reduce_scatter_tensor(functional.all_gather_tensor(reduced, 0, group), "avg", 0, group)
    moved = functional.all_to_all_single(x.repeat(size), None, None, group).reshape(size, -1).sum(0)
    ones = torch.ones_like(x)
    dist.all_reduce(ones)  # torch rewrites this call
    return shared + reduced + moved + ones


def gradients(model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    model(x).square().mean().backward()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


x = torch.arange(4.0) + rank
compiled = torch.compile(step, fullgraph=True, backend=COMPILER)
for _ in range(2):
    torch.testing.assert_close(compiled(x), step(x))

torch.manual_seed(0)
plain = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
wrapped = DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)))
wrapped.module.load_state_dict(plain.state_dict())
whole = torch.rand(4 * size, 8, generator=torch.Generator().manual_seed(1))
mine = whole[4 * rank : 4 * rank + 4]
torch.testing.assert_close(gradients(torch.compile(wrapped, backend=COMPILER), mine), gradients(plain, whole))
dist.destroy_process_group()
print("all checks passed", flush=True)
