"""What c10d's option structs say, in our words."""

from __future__ import annotations

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
# In this spelling it is gloo's under distrun --torch-backend distrun too.
GLOO_BESIDE = "dist.new_group(backend='cpu:gloo,cuda:gloo')"
_LINEAR = (_TYPES.SUM, _TYPES.AVG, _TYPES.PREMUL_SUM)


class Reduction(NamedTuple):
    """How values are combined. linear: of a complex number both parts can be combined by themselves."""

    op: ReduceOp = ReduceOp.SUM
    prescale: float = 1.0
    linear: bool = True


SUM = Reduction()


def reduction(opts: Any) -> Reduction:
    """From an options struct, a ReduceOp, or None, which is a sum. NotImplementedError for BAND, BOR and BXOR."""
    asked = getattr(opts, "reduceOp", opts)
    kind = _TYPES.SUM if asked is None else getattr(asked, "op", asked)
    found = _REDUCTIONS.get(kind)
    if found is None:
        raise NotImplementedError(
            f"ReduceOp.{getattr(kind, 'name', kind)} is not among distrun's reductions, which are SUM, AVG, MIN, MAX, "
            f"PRODUCT and PREMUL_SUM; make a gloo group beside this one for it: {GLOO_BESIDE}."
        )
    # The state, since the attribute `factor` is there from PyTorch 2.13 on only.
    factor = asked.__getstate__()[1] if kind == _TYPES.PREMUL_SUM and asked is not kind else 1.0
    return Reduction(found, float(factor), kind in _LINEAR)


def root(opts: Any) -> int:
    """The root's rank in the group: of an options struct, of a plain number, or 0."""
    return opts if isinstance(opts, int) else int(getattr(opts, "rootRank", 0))


def limit(opts: Any, default: timedelta) -> float:
    """The operation's time limit in seconds: its own, or else the group's."""
    own = getattr(opts, "timeout", None)
    return (own if isinstance(own, timedelta) and own > timedelta(0) else default).total_seconds()


def as_list(tensors: torch.Tensor | list[torch.Tensor]) -> list[torch.Tensor]:
    """c10d's methods take a tensor as well as a list of one."""
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
