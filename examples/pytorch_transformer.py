"""Trains a small transformer to continue Python source text byte by byte, on any number of ranks.

    distrun -np 2 python examples/pytorch_transformer.py
    distrun -np 2 python examples/pytorch_transformer.py --compression ef_int8

It needs only torch. The text is Python's standard library. It uses the GPU if there is one.
"""

from __future__ import annotations

import argparse
import sysconfig
import time
from pathlib import Path

import torch
from torch import nn

import distrun.torch as hvd

BYTES = 256
HELD_OUT = 20_000  # bytes at the end for evaluation only


class Block(nn.Module):
    """Attention to earlier positions, then two linear layers. Each adds its result to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.think = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.mix(self.before(x)).reshape(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        result: torch.Tensor = x + self.think(self.between(x))
        return result


class Transformer(nn.Module):
    """Returns the logits of the next byte for each position."""

    def __init__(self, length: int, width: int = 64, layers: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(BYTES, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.last = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, BYTES))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        places = torch.arange(text.shape[1], device=text.device)
        logits: torch.Tensor = self.last(self.blocks(self.letters(text) + self.places(places)))
        return logits


def load_text(limit: int) -> torch.Tensor:
    """Returns the modules of the standard library, concatenated, as bytes."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    text = bytearray()
    for path in sorted(folder.glob("*.py")):
        text += path.read_bytes()
        if len(text) >= limit:
            break
    if len(text) <= 2 * HELD_OUT:
        raise SystemExit(f"{folder} has only {len(text)} bytes of Python source to learn from")
    return torch.frombuffer(text[:limit], dtype=torch.uint8)


def loss_of(model: nn.Module, text: torch.Tensor) -> torch.Tensor:
    """Returns the loss of a batch: the model predicts each byte, except the first, from the bytes before it."""
    rows = text.long()
    return nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


def evaluate(model: nn.Module, pieces: torch.Tensor) -> float:
    """Returns the share of held-out bytes that the model predicts correctly. Every rank evaluates its own pieces."""
    mine = pieces[hvd.rank() :: hvd.size()].long()
    with torch.no_grad():
        right = model(mine[:, :-1]).argmax(-1) == mine[:, 1:]
    total = hvd.allreduce(torch.tensor([right.sum(), right.numel()]), op=hvd.Sum, name="accuracy")
    return float(total[0] / total[1])


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=16, help="pieces of text per step on each rank")
    parser.add_argument("--length", type=int, default=64, help="bytes in a piece")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--text", type=int, default=1_000_000, help="bytes of text")
    parser.add_argument(
        "--compression", choices=["none", "fp16", "bf16", "ef_fp16", "ef_bf16", "ef_int8"], default="none"
    )
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    hvd.init()
    torch.manual_seed(hvd.rank())  # each rank draws its own pieces
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    pieces = load_text(options.text).to(device).unfold(0, options.length + 1, options.length)
    held_out = HELD_OUT // options.length
    train, test = pieces[:-held_out], pieces[-held_out:]

    model = Transformer(options.length).to(device)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.AdamW(model.parameters(), lr=options.lr),
        named_parameters=model.named_parameters(),
        compression=getattr(hvd.Compression, options.compression),
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

    start, losses = time.perf_counter(), []
    for step in range(1, options.steps + 1):
        optimizer.zero_grad()
        loss = loss_of(model, train[torch.randint(len(train), (options.batch_size,))])
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if step % 50 == 0 or step == options.steps:
            mean = hvd.allreduce(torch.stack(losses).mean(), name="loss")
            seconds = time.perf_counter() - start
            tokens = len(losses) * options.batch_size * options.length * hvd.size()
            if hvd.rank() == 0:
                print(f"step {step}: loss {mean:.4f}, {tokens / seconds:.0f} tokens/s", flush=True)
            start, losses = time.perf_counter(), []
    accuracy = evaluate(model, test)
    if hvd.rank() == 0:
        print(f"accuracy: {accuracy:.3f}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
