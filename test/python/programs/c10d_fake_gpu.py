"""Tensors that claim to be on a GPU go through torch.distributed to the plug-in nccl, above a fake of CUDA and NCCL.

The fake's device memory is the memory of the process, and its ranks share one process, so there is one rank. The test
checks the part of this side: each operation goes to the GPU's backend with torch's current stream. All-gather and
all-to-all are left out, because torch allocates their results on a device.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

import distrun.torch.c10d  # registers the backend
from distrun import _session

GPU = torch.device("cuda", 0)


class Stream:
    cuda_stream = 0

    def synchronize(self) -> None:
        waited.append(self)


waited: list[Stream] = []
asked: list[Any] = []


def current_stream(device: Any = None) -> Stream:
    asked.append(device)
    return Stream()


def check(work: Any, *operands: torch.Tensor) -> None:
    """Checks that the operation asked for torch's stream once per operand, and that it succeeds."""
    assert asked == [GPU] * len(operands), asked
    asked.clear()
    if work is not None:
        work.wait()


dist.init_process_group("distrun")
assert "cuda: nccl" in _session.query("why")
assert distrun.nccl_enabled() and distrun.cuda_built()
assert distrun.nccl_built() == 23203  # the version of the fake; its reason does not contain it
torch.cuda.current_stream = current_stream  # type: ignore[assignment]
torch.Tensor.device = property(lambda self: GPU)  # type: ignore[assignment]
x, y = torch.tensor([1.0, 2.0, 3.0]), torch.zeros(3)
check(dist.all_reduce(x), x)
assert x.tolist() == [1, 2, 3]
check(dist.all_reduce(x, dist.ReduceOp.AVG, async_op=True), x)
check(dist.broadcast(x, 0, async_op=True), x)
check(dist.reduce_scatter_tensor(y, x * 2), x)
assert y.tolist() == [2, 4, 6]
print("all checks passed", flush=True)
