"""torch.distributed's gloo all-reduce and DDP's bucketed all-reduce of ResNet-50's gradients, for bench/compare.py.

It runs under distrun (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), and prints the same JSON lines as distrun-bench.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import statistics
import time

import torch
import torch.distributed as dist
from rounds import median_time


def resnet50_tensors() -> list[int]:
    """Returns the element counts of ResNet-50's 161 parameters, in the order of the layers."""
    counts = [64 * 3 * 7 * 7, 64, 64]
    inputs = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            convolutions = [(inputs, width, 1), (width, width, 3), (width, width * 4, 1)]
            if block == 0:
                convolutions.append((inputs, width * 4, 1))
            for fan_in, fan_out, kernel in convolutions:
                counts += [fan_in * fan_out * kernel * kernel, fan_out, fan_out]
            inputs = width * 4
    return [*counts, 2048 * 1000, 1000]


def agree(value: int) -> int:
    """Returns rank 0's number on every rank."""
    tensor = torch.tensor([value], dtype=torch.int64)
    dist.broadcast(tensor, 0)
    return int(tensor.item())


class Gradients(torch.nn.Module):
    """Parameters with ResNet-50's shapes. Their backward takes one pass over memory, so the rest is communication."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors = torch.nn.ParameterList(torch.zeros(count) for count in resnet50_tensors())

    def forward(self) -> torch.Tensor:
        return torch.stack([tensor.sum() for tensor in self.tensors]).sum()


def run_ddp(seconds: float) -> float:
    """Returns the time of DDP's backward with its bucketed all-reduce, minus that of the same backward without it."""
    model = torch.nn.parallel.DistributedDataParallel(Gradients(), gradient_as_bucket_view=True)

    def step(synchronise: bool) -> float:
        context = contextlib.nullcontext() if synchronise else model.no_sync()
        with context:
            loss = model()
            begin = time.perf_counter()
            loss.backward()
        return time.perf_counter() - begin

    times: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(3):
        step(True)
    start = time.perf_counter()
    step(True)
    repeats = agree(min(50, max(7, int(seconds / (time.perf_counter() - start)))))
    for _ in range(repeats):
        for synchronise in (True, False):
            dist.barrier()
            times[synchronise].append(step(synchronise))
    return statistics.median(times[True]) - statistics.median(times[False])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="4,1048576,67108864", help="bytes, comma-separated")
    parser.add_argument("--model", choices=["resnet50"])
    parser.add_argument("--seconds", type=float, default=0.5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")

    def show(who: str, case: str, value: float) -> None:
        if dist.get_rank() == 0:
            print(json.dumps({"who": who, "case": case, "unit": "s", "value": value}), flush=True)

    for size in [int(text) for text in options.sizes.split(",")]:
        tensor = torch.zeros(size // 4)
        show(
            "torch gloo",
            f"{size} B in place",
            median_time(options.seconds, functools.partial(dist.all_reduce, tensor), agree),
        )
    if options.model:
        show("torch ddp", "resnet50 161 tensors", run_ddp(options.seconds))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
