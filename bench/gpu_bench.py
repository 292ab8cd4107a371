"""All-reduce of CUDA tensors: distrun and torch.distributed's NCCL, interleaved, on as many ranks as distrun starts.

    .venv/bin/distrun -np 2 .venv/bin/python bench/gpu_bench.py [--rounds 7] [--sizes 4,65536,...]

A time is measured from the call until the host knows that the operation is complete. The table has medians over the
rounds. "bus" is 2 (n - 1) / n of the bytes per second, as in nccl-tests. Rank 0 prints the table and one JSON line per
row.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

import distrun.torch as hvd

SIZES = "4,65536,1048576,16777216,67108864,268435456"


def measure(once: Callable[[], object], times: int) -> float:
    once()
    start = time.perf_counter()
    for _ in range(times):
        once()
    return (time.perf_counter() - start) / times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sizes", default=SIZES, help="bytes, with commas between")
    options = parser.parse_args()
    hvd.init()
    device = torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    factor = 2 * (hvd.size() - 1) / hvd.size() if hvd.size() > 1 else 1.0
    if hvd.rank() == 0:
        print(f"{hvd.size()} ranks on {torch.cuda.device_count()} x {torch.cuda.get_device_name(device)}")
        print(f"{'bytes':>12} {'distrun us':>12} {'torch us':>12} {'ratio':>7} {'distrun bus GB/s':>18}")
    for size in map(int, options.sizes.split(",")):
        tensor = torch.ones(size // 4, device=device)

        def ours(data: torch.Tensor = tensor, name: str = f"bench.{size}") -> None:
            hvd.allreduce_(data, op=hvd.Max, name=name)

        def theirs(data: torch.Tensor = tensor) -> None:
            dist.all_reduce(data, op=dist.ReduceOp.MAX)
            torch.cuda.current_stream().synchronize()

        times = 200 if size <= 1 << 20 else 20
        pairs = [(measure(ours, times), measure(theirs, times)) for _ in range(options.rounds)]
        own = statistics.median(pair[0] for pair in pairs)
        other = statistics.median(pair[1] for pair in pairs)
        ratio = statistics.median(pair[0] / pair[1] for pair in pairs)
        if hvd.rank() == 0:
            bus = factor * size / own / 1e9
            print(f"{size:>12} {own * 1e6:>12.1f} {other * 1e6:>12.1f} {ratio:>7.2f} {bus:>18.2f}")
            print(json.dumps({"bytes": size, "distrun": own, "torch": other, "ratio": ratio}), flush=True)
    dist.destroy_process_group()
    hvd.shutdown()


if __name__ == "__main__":
    main()
