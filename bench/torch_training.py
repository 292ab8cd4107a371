"""Compares training steps with DistributedOptimizer and with DDP on distrun with DDP on gloo and with no communication.

    python bench/torch_training.py [--np 2] [--rounds 7] [--seconds 1] [--json FILE]

with a Python that has torch and distrun. In every round the same processes train with each contender in turn, a few
steps at a time, so that other load on the machine slows all of them alike. The table has medians over the rounds. The
ratios are medians of each round's ratio. The exit code is 1 if a target is missed. Each process has one torch thread,
so that processes do not compete for cores. Two contenders show the lower limits. `in step` trains alone, plus an
all-reduce of 4 bytes after each step, which makes the ranks wait for each other. `ddp nothing` is DDP with a hook that
sends nothing.
"""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rounds import Round, Target, as_rank_0, finish, median_time, one_run, parse_options, rates, say

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
WHO = ("optimizer", "ddp distrun", "ddp gloo", "alone", "in step", "ddp nothing")
MODELS = ("MLP", "ResNet-18", "transformer")
SMALL = "4 B"


def models() -> dict[str, tuple[Any, Callable[[Any], Any]]]:
    """Returns each model, and a function for the loss of one batch."""
    import torch
    from torch import nn

    sys.path.insert(0, str(EXAMPLES))
    from pytorch_resnet_synthetic import build_resnet
    from pytorch_transformer import Transformer, loss_of

    def classify(shape: tuple[int, ...], classes: int) -> Callable[[Any], Any]:
        inputs, labels = torch.randn(shape), torch.randint(classes, shape[:1])
        return lambda model: nn.functional.cross_entropy(model(inputs), labels)

    text = torch.randint(256, (16, 65))
    return {
        "MLP": (nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)), classify((64, 784), 10)),
        "ResNet-18": (build_resnet(18, 16, 1000), classify((8, 3, 64, 64), 1000)),
        "transformer": (Transformer(64), lambda model: loss_of(model, text)),
    }


def training(who: str, model: Any, loss_of: Callable[[Any], Any], group: Any) -> Callable[[], object]:
    """Returns a function for one step on random data."""
    import torch

    import distrun.torch as hvd

    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    if who == "optimizer":
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    elif who.startswith("ddp"):
        model = torch.nn.parallel.DistributedDataParallel(model, process_group=group)
    if who == "ddp nothing":
        model.register_comm_hook(None, lambda _, bucket: made(bucket.buffer()))
    nothing = torch.zeros(1)

    def once() -> None:
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
        if who == "in step":
            hvd.allreduce_(nothing, name="in step")

    return once


def made(value: Any) -> Any:
    """Returns a completed future."""
    import torch

    future: Any = torch.futures.Future()
    future.set_result(value)
    return future


def work(seconds: float) -> None:
    """Runs one rank."""
    import torch
    import torch.distributed as dist

    import distrun.torch as hvd
    import distrun.torch.c10d  # noqa: F401

    torch.set_num_threads(1)
    hvd.init()
    dist.init_process_group("distrun")
    groups = {who: dist.new_group(backend="gloo" if who == "ddp gloo" else "distrun") for who in WHO if "ddp" in who}
    results: Round = {who: {} for who in WHO}
    one = torch.zeros(1)
    for who in ("ddp distrun", "ddp gloo"):
        all_reduce = functools.partial(dist.all_reduce, one, group=groups[who])
        results[who][SMALL] = median_time(seconds, all_reduce, as_rank_0)
    for name, (model, loss_of) in models().items():
        steps = {who: training(who, copy.deepcopy(model), loss_of, groups.get(who)) for who in WHO}
        for who, rate in rates(steps, seconds).items():
            results[who][name] = rate
    say(results)
    dist.destroy_process_group()
    hvd.shutdown()


def targets() -> list[Target]:
    def ratio(case: str, ours: str, theirs: str) -> Callable[[Round], float]:
        return lambda one: one[ours][case] / one[theirs][case]

    made = [
        Target(f"{case}: {ours} / {theirs}", limit, True, ratio(case, ours, theirs))
        for case in MODELS
        for theirs, limit in (("ddp gloo", 1.2), ("alone", 0.9))
        for ours in ("optimizer", "ddp distrun")
    ]
    return [
        *made,
        Target("dist.all_reduce of 4 B: distrun / gloo", 0.5, False, ratio(SMALL, "ddp distrun", "ddp gloo")),
    ]


def main() -> int:
    options = parse_options(__doc__, ("all",))
    if options.who:
        work(options.seconds)
        return 0
    return finish([one_run("all", options, {}) for _ in range(options.rounds)], targets(), options)


if __name__ == "__main__":
    sys.exit(main())
