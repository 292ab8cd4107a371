"""Trains a network on scikit-learn's handwritten digits with FSDP2: every rank keeps a share of the weights, of their
gradients and of the optimizer's state.

    pip install dist/distrun-*.whl torch scikit-learn
    distrun -np 2 python examples/pytorch_fsdp2.py
    distrun -np 2 python examples/pytorch_fsdp2.py --backend gloo    # torch's own backend

The program is written for torch.distributed. It knows only distrun's backend name, (1), and the import that registers
it. FSDP2 gathers the weights of one layer at a time, when they are used, (2). A checkpoint can have all weights, (3).
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from mnist_data import Report
from pytorch_digits import load_data
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import distrun.torch.c10d  # noqa: F401  # registers the backend "distrun"


def build_model() -> nn.Sequential:
    return nn.Sequential(
        nn.Flatten(),
        nn.Sequential(nn.Linear(8 * 8, 256), nn.ReLU()),
        nn.Sequential(nn.Linear(256, 256), nn.ReLU()),
        nn.Linear(256, 10),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="distrun")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=64, help="images per step over all ranks")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--save", metavar="FILE", help="write the whole model's weights there at the end")
    options = parser.parse_args()

    dist.init_process_group(options.backend)  # (1)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)  # the same weights on every rank; each rank keeps its share
    train, test = load_data()
    sampler: DistributedSampler[torch.Tensor] = DistributedSampler(train, ranks, rank, seed=0)
    loader = DataLoader(train, batch_size=max(1, options.batch_size // ranks), sampler=sampler)
    model = build_model()
    mesh = init_device_mesh("cpu", (ranks,))
    for layer in list(model)[1:]:
        fully_shard(layer, mesh=mesh)  # (2)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)

    report = Report(rank, len(loader), options.batch_size)
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        losses = []
        for number, (images, labels) in enumerate(loader):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            report.step(number + 1)
        mean = torch.stack(losses).mean()
        dist.all_reduce(mean)
        report.epoch(epoch + 1, mean / ranks)

    # Every rank evaluates its own share of the test images. One pass for all of them, because a pass needs all ranks.
    images, labels = (tensor[rank::ranks] for tensor in test.tensors)
    with torch.no_grad():
        right = (model(images).argmax(dim=1) == labels).sum()
    dist.all_reduce(right)
    whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))  # (3); rank 0 has it
    if rank == 0 and options.save:
        torch.save(whole, options.save)
    report.accuracy(right / len(test))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
