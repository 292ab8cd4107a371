"""Contrastive training in the way of CLIP: finds the right half of a handwritten digit for its left half.

    pip install dist/distrun-*.whl torch scikit-learn
    distrun -np 2 python examples/pytorch_contrastive.py

Each rank computes the features of its part of a batch. Its loss compares them with the features of the whole batch,
which allgather collects (1). The gradient flows back through allgather. So any number of ranks trains like one process
with the whole batch, and prints the same last line.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn

import distrun.torch as hvd


class Model(nn.Module):
    """An encoder for each half, and the sharpness of their comparison."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = (
            nn.Sequential(nn.Flatten(), nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 16)) for _ in range(2)
        )
        self.sharpness = nn.Parameter(torch.tensor(5.0))

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the features of both halves, normalized to length 1."""
        left, right = self.left(images[:, :, :4]), self.right(images[:, :, 4:])
        return nn.functional.normalize(left, dim=1), nn.functional.normalize(right, dim=1)


def contrastive_loss(left: torch.Tensor, right: torch.Tensor, sharpness: torch.Tensor) -> torch.Tensor:
    """Compares this rank's rows with those of all ranks, in both directions."""
    lefts, rights = hvd.grouped_allgather([left, right], name="features")  # (1)
    own = torch.arange(len(left)) + len(left) * hvd.rank()
    by_left = nn.functional.cross_entropy(sharpness * left @ rights.t(), own)
    by_right = nn.functional.cross_entropy(sharpness * right @ lefts.t(), own)
    return (by_left + by_right) / 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=96, help="images per step over all ranks")
    options = parser.parse_args()

    hvd.init()
    if options.batch_size % hvd.size():
        parser.error(f"--batch-size is a multiple of the {hvd.size()} ranks, not {options.batch_size}.")
    images = torch.tensor(load_digits(return_X_y=True)[0] / 16.0).reshape(-1, 8, 8)
    torch.manual_seed(0)  # the same model and the same batches on all ranks
    model = Model().double()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())  # averages the gradients

    for step in range(1, options.steps + 1):
        batch = torch.randperm(len(images))[: options.batch_size]
        optimizer.zero_grad()
        left, right = model(images[batch.chunk(hvd.size())[hvd.rank()]])
        loss = contrastive_loss(left, right, model.sharpness)
        loss.backward()
        optimizer.step()
        if step % 20 == 0 or step == options.steps:
            mean = hvd.allreduce(loss.detach(), name="loss")
            if hvd.rank() == 0:
                print(f"step {step}: loss {float(mean):.6f}", flush=True)
    if hvd.rank() == 0:
        length = torch.cat([param.detach().flatten() for param in model.parameters()]).norm()
        print(f"length of the weights: {float(length):.6f}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
