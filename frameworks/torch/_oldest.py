"""The PyTorch versions that the parts of this package need. docs/reference/pytorch.md explains them."""

from __future__ import annotations

import re

import torch

COMPILE = C10D = (2, 10)


def have(oldest: tuple[int, int]) -> bool:
    """True if the installed version is new enough. Vendors' builds are called 2.10.0a0+... and count as 2.10."""
    found = re.match(r"(\d+)\.(\d+)", torch.__version__)
    return found is None or (int(found[1]), int(found[2])) >= oldest


def need(part: str, oldest: tuple[int, int]) -> None:
    """Raises ImportError if the installed version is too old."""
    if not have(oldest):
        first, second = oldest
        raise ImportError(
            f"{part} needs PyTorch {first}.{second} or newer, and this is {torch.__version__}: "
            f"pip install --upgrade 'torch>={first}.{second}'."
        )


need("distrun.torch", (2, 4))
