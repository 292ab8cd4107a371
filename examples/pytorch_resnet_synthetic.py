"""Training throughput of a ResNet on random images: images per second on one rank and on all.

    distrun -np 2 python examples/pytorch_resnet_synthetic.py --steps 10
    distrun -np 8 python examples/pytorch_resnet_synthetic.py --depth 50 --image-size 224 --batch-size 32

It needs only torch; the network is defined below. It uses the GPU if there is one.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn

import distrun.torch as hvd

LAYERS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False), nn.BatchNorm2d(outputs)
    )


class Block(nn.Module):
    """A residual block: two 3x3 convolutions, or 1x1, 3x3, 1x1 with four times the channels (bottleneck)."""

    def __init__(self, inputs: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        self.outputs = width * 4 if bottleneck else width
        if bottleneck:
            self.body = nn.Sequential(
                convolution(inputs, width, 1),
                nn.ReLU(),
                convolution(width, width, 3, stride),
                nn.ReLU(),
                convolution(width, self.outputs, 1),
            )
        else:
            self.body = nn.Sequential(
                convolution(inputs, width, 3, stride), nn.ReLU(), convolution(width, self.outputs, 3)
            )
        same = stride == 1 and inputs == self.outputs
        self.shortcut: nn.Module = nn.Identity() if same else convolution(inputs, self.outputs, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.relu(self.body(x) + self.shortcut(x))
        return result


def build_resnet(depth: int, width: int, classes: int) -> nn.Module:
    layers: list[nn.Module] = [convolution(3, width, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)]
    inputs = width
    for stage, blocks in enumerate(LAYERS[depth]):
        for index in range(blocks):
            block = Block(inputs, width << stage, 2 if stage and not index else 1, bottleneck=depth >= 50)
            layers.append(block)
            inputs = block.outputs
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)]
    return nn.Sequential(*layers)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depth", type=int, choices=sorted(LAYERS), default=18)
    parser.add_argument("--width", type=int, default=16, help="channels of the first stage; 64 is the full network")
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=8, help="images per step on each rank")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=2, help="steps before the clock starts")
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as float16")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    hvd.init()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = build_resnet(options.depth, options.width, classes=1000).to(device)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if options.fp16_allreduce else hvd.Compression.none,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

    images = torch.randn(options.batch_size, 3, options.image_size, options.image_size, device=device)
    labels = torch.randint(1000, (options.batch_size,), device=device)
    if hvd.rank() == 0:
        parameters = sum(parameter.numel() for parameter in model.parameters())
        print(
            f"ResNet-{options.depth}, {parameters / 1e6:.1f} M parameters, {hvd.size()} ranks, {device.type}",
            flush=True,
        )

    start = time.perf_counter()
    for step in range(options.warmup + options.steps):
        if step == options.warmup:
            hvd.barrier()
            start = time.perf_counter()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    rate = options.steps * options.batch_size / (time.perf_counter() - start)
    total = hvd.allreduce(torch.tensor(rate), op=hvd.Sum, name="rate")
    if hvd.rank() == 0:
        print(f"images/s per rank: {total / hvd.size():.1f}")
        print(f"images/s: {total:.1f}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
