"""Converts c10d's option structs."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from distrun._abi import ReduceOp

_TYPES: Any = dist.ReduceOp.RedOpType
_REDUCTIONS = {
    _TYPES.SUM: ReduceOp.SUM,
    _TYPES.AVG: ReduceOp.AVERAGE,
    _TYPES.MIN: ReduceOp.MIN,
    _TYPES.MAX: ReduceOp.MAX,
    _TYPES.PRODUCT: ReduceOp.PRODUCT,
    _TYPES.PREMUL_SUM: ReduceOp.SUM,
}
# With this spelling it is gloo's group under distrun --torch-backend distrun too.
GLOO_BESIDE = "dist.new_group(backend='cpu:gloo,cuda:gloo')"
_LINEAR = (_TYPES.SUM, _TYPES.AVG, _TYPES.PREMUL_SUM)


class Reduction(NamedTuple):
    """How values are combined. linear: the real and imaginary parts of complex numbers can be combined separately."""

    op: ReduceOp = ReduceOp.SUM
    prescale: float = 1.0
    linear: bool = True


SUM = Reduction()


class Asked(NamedTuple):
    """The fields of torch's option structs, with torch's names."""

    reduceOp: Any = None
    rootRank: int = 0
    timeout: timedelta | None = None


def asked(opts: Any, op: Any = None, root: int | None = None, timeout: timedelta | None = None) -> Any:
    """Returns the options of a call in either of torch's forms; TypeError for both at once.

    The forms are a struct, or op, root and timeout separately. The first of these may be in the struct's place.
    """
    match opts:
        case numbers.Integral():
            root = int(opts)
        case timedelta():
            timeout = opts
        case dist.ReduceOp() | dist.ReduceOp.RedOpType():
            op = opts
        case None:
            pass
        case _ if op is None and root is None and timeout is None:
            return opts
        case _:
            raise TypeError("opts already has op, root and timeout. Set them there, or leave out opts.")
    return Asked(op, root or 0, timeout)


def reduction(opts: Any) -> Reduction:
    """Converts an options struct, a ReduceOp, or None (a sum). NotImplementedError for BAND, BOR and BXOR."""
    given = getattr(opts, "reduceOp", opts)
    kind = _TYPES.SUM if given is None else getattr(given, "op", given)
    found = _REDUCTIONS.get(kind)
    if found is None:
        raise NotImplementedError(
            f"ReduceOp.{getattr(kind, 'name', kind)} is not supported: distrun has SUM, AVG, MIN, MAX, PRODUCT and "
            f"PREMUL_SUM. Use a gloo group beside this one: {GLOO_BESIDE}."
        )
    # From the state, because the attribute `factor` exists only in PyTorch 2.13 and newer.
    factor = given.__getstate__()[1] if kind == _TYPES.PREMUL_SUM and given is not kind else 1.0
    return Reduction(found, float(factor), kind in _LINEAR)


def root_rank(opts: Any) -> int:
    """Returns the root's rank in the group."""
    return int(getattr(opts, "rootRank", 0))


def limit(opts: Any, default: timedelta) -> float:
    """Returns the operation's time limit in seconds: its own, or else the group's."""
    own = getattr(opts, "timeout", None)
    return (own if isinstance(own, timedelta) and own > timedelta(0) else default).total_seconds()


def as_list(tensors: torch.Tensor | Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Returns a list. c10d's methods accept a tensor instead of a list with one tensor."""
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def as_lists(
    rows: Sequence[Sequence[torch.Tensor]] | Sequence[torch.Tensor], tensors: Sequence[torch.Tensor] | torch.Tensor
) -> tuple[Sequence[Sequence[torch.Tensor]], Sequence[torch.Tensor]]:
    """Returns a list of lists and a list. Methods that take these also accept one list and one tensor.

    ValueError for a tensor instead of a list, and for a list instead of a tensor: its rows would count as tensors.
    """
    lists: Any = [rows] if isinstance(tensors, torch.Tensor) else rows
    for row in lists:
        if isinstance(row, torch.Tensor) or not all(isinstance(tensor, torch.Tensor) for tensor in row):
            raise ValueError(
                "pass a list of lists of tensors and a list of tensors, or a list of tensors and a tensor."
            )
    return lists, as_list(tensors)
