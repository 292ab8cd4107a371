"""Optimizers of plain torch whose parameters are in a DistributedOptimizer too.

A program may train a model with a DistributedOptimizer, keep it, and go on with a plain one, also on one rank only.
The distributed one must then leave the gradients alone. So distrun notes which plain optimizers are made after it, and
when they are used. torch has a hook for steps, and none for the rest.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

# For each plain optimizer: what to call when the program uses it. Reducers put it there, and it holds none of them.
_uses: weakref.WeakKeyDictionary[torch.optim.Optimizer, list[Callable[[], None]]] = weakref.WeakKeyDictionary()


def is_used(optimizer: torch.optim.Optimizer) -> bool:
    """True if the program may step with this optimizer: it was not made a distributed one."""
    return optimizer in _uses


def on_use(optimizer: torch.optim.Optimizer, used: Callable[[], None]) -> None:
    """Calls `used` now, and whenever the program uses this optimizer."""
    _uses.setdefault(optimizer, []).append(used)
    used()


def forget(optimizer: torch.optim.Optimizer) -> None:
    """The optimizer has become a distributed one."""
    _uses.pop(optimizer, None)


def _used(optimizer: torch.optim.Optimizer) -> None:
    for used in _uses.get(optimizer, ()):
        used()


def watch(got_params: Callable[[torch.optim.Optimizer, list[torch.Tensor]], None]) -> None:
    """Calls `got_params` for each group of parameters that a torch optimizer gets from now on. Call it once."""
    add_param_group = torch.optim.Optimizer.add_param_group
    zero_grad = torch.optim.Optimizer.zero_grad

    @torch._disable_dynamo  # type: ignore[attr-defined]
    @functools.wraps(add_param_group)
    def adds(self: torch.optim.Optimizer, param_group: dict[str, Any]) -> None:
        add_param_group(self, param_group)
        got_params(self, self.param_groups[-1]["params"])

    @torch._disable_dynamo  # type: ignore[attr-defined]
    @functools.wraps(zero_grad)
    def zeroes(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
        _used(self)
        zero_grad(self, *args, **kwargs)

    torch.optim.Optimizer.add_param_group = adds  # type: ignore[method-assign]
    torch.optim.Optimizer.zero_grad = zeroes  # type: ignore[method-assign]
    register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: _used(optimizer))
