"""Trains a small convolutional network on scikit-learn's handwritten digits, on any number of ranks.

    pip install dist/distrun-*.whl torch scikit-learn
    distrun -np 2 python examples/pytorch_digits.py

Only the lines marked (1) to (5) make it distributed. Without the launcher it trains on one rank.
"""

from __future__ import annotations

import argparse

import torch
from mnist_data import Report
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import distrun.torch as hvd


def build_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def load_data() -> tuple[TensorDataset, TensorDataset]:
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images / 16.0, labels, test_size=0.25, random_state=0, stratify=labels)
    train_x, test_x = (torch.tensor(part, dtype=torch.float32).reshape(-1, 1, 8, 8) for part in parts[:2])
    train_y, test_y = (torch.tensor(part, dtype=torch.int64) for part in parts[2:])
    return TensorDataset(train_x, train_y), TensorDataset(test_x, test_y)


def evaluate(model: nn.Module, data: TensorDataset) -> float:
    """Returns the accuracy over all test images. Every rank evaluates its own share of them."""
    model.eval()
    images, labels = (tensor[hvd.rank() :: hvd.size()] for tensor in data.tensors)
    with torch.no_grad():
        right = (model(images).argmax(dim=1) == labels).sum()
    model.train()
    total = hvd.allreduce(torch.stack([right, torch.tensor(len(labels))]), op=hvd.Sum, name="accuracy")  # (5)
    return float(total[0] / total[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64, help="images per step over all ranks")
    parser.add_argument("--lr", type=float, default=3e-3)
    options = parser.parse_args()

    hvd.init()  # (1)
    torch.manual_seed(hvd.rank())
    train, test = load_data()
    sampler = hvd.DistributedSampler(train)  # (2)
    loader = DataLoader(train, batch_size=max(1, options.batch_size // hvd.size()), sampler=sampler)

    model = build_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())  # (3)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)  # (4)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    if hvd.rank() == 0:
        print(f"{hvd.size()} ranks, {len(train)} training images", flush=True)
    report = Report(hvd.rank(), len(loader), options.batch_size)
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        for number, (images, labels) in enumerate(loader, 1):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            total += loss.detach()
            report.step(number)
        report.epoch(epoch + 1, hvd.allreduce(total / len(loader), name="loss"))
    report.accuracy(evaluate(model, test))
    hvd.shutdown()


if __name__ == "__main__":
    main()
