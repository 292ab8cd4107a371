"""Compares training steps with DistributedOptimizer and with DDP on distrun with DDP on gloo and with no communication.

    python bench/torch_training.py [--np 2] [--rounds 7] [--seconds 1] [--json FILE]

with a Python that has torch and distrun. Every round runs each of them once, in turn; the table has medians over the
rounds, the ratios are medians of each round's ratio. Exit code 1 when a target is missed. One torch thread in each
process, so that processes do not fight for cores.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rounds import Results, Round, Target, as_rank_0, finish, median_time, one_run, parse_options, say

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
WHO = ("optimizer", "ddp distrun", "ddp gloo", "alone")
MODELS = ("MLP", "ResNet-18", "transformer")
SMALL = "4 B"


def models() -> dict[str, tuple[Any, Callable[[Any], Any]]]:
    """Each model, and the loss of one batch."""
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


def training(who: str, model: Any, loss_of: Callable[[Any], Any]) -> Callable[[], object]:
    """One step on made-up data."""
    import torch

    import distrun.torch as hvd

    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    if who == "optimizer":
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    elif who.startswith("ddp"):
        model = torch.nn.parallel.DistributedDataParallel(model)

    def once() -> None:
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()

    return once


def work(who: str, seconds: float) -> None:
    """One rank of one of them."""
    import torch
    import torch.distributed as dist

    import distrun.torch as hvd

    torch.set_num_threads(1)
    hvd.init()
    results: Results = {}
    if who.startswith("ddp"):
        import distrun.torch.c10d  # noqa: F401

        dist.init_process_group(who.split()[1])
        one = torch.zeros(1)
        results[SMALL] = median_time(seconds, lambda: dist.all_reduce(one), as_rank_0)
    for name, (model, loss_of) in models().items():
        results[name] = 1.0 / median_time(seconds * 3, training(who, model, loss_of), as_rank_0)
    say(results)
    if dist.is_initialized():
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
    options = parse_options(__doc__, WHO)
    if options.who:
        work(options.who, options.seconds)
        return 0
    rounds: list[Round] = [{who: one_run(who, options, {}) for who in WHO} for _ in range(options.rounds)]
    return finish(rounds, targets(), options)


if __name__ == "__main__":
    sys.exit(main())
