"""Initial state from one rank: parameters and optimizer state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from distrun import _objects, _parameters
from distrun._abi import Kind
from distrun._collectives import batch_call
from distrun._session import world
from distrun.process_sets import global_process_set

from ._adapter import collective


def broadcast_parameters(params: Mapping[str, torch.Tensor] | Iterable[Any], root_rank: int) -> None:
    """Overwrites the tensors with those of rank `root_rank`.

    params: a dict such as model.state_dict(), or (name, tensor) pairs such as model.named_parameters(), or tensors.
    """
    pairs = _parameters.named(params, torch.Tensor)
    _broadcast([(f"parameter.{name}", tensor) for name, tensor in pairs], root_rank)


def _broadcast(pairs: list[tuple[str, torch.Tensor]], root_rank: int) -> None:
    what = batch_call(Kind.BROADCAST, [name for name, _ in pairs], global_process_set)
    tensors = [tensor.detach() for _, tensor in pairs]
    collective.same_size(tensors, what._replace(root=root_rank), in_place=True).wait()


class _Taken:
    """Takes the tensors out of a state_dict and puts others in: numbers and texts travel apart from big memory."""

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []

    def take(self, value: Any) -> Any:
        """The same structure with a description in place of each tensor."""
        if isinstance(value, torch.Tensor):
            self.tensors.append(value.detach())
            return {"__tensor__": [len(self.tensors) - 1, value.dtype, list(value.shape), value.device.type]}
        if isinstance(value, dict):
            return {key: self.take(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self.take(item) for item in value) if type(value) in (list, tuple) else value
        return value

    def put(self, value: Any) -> Any:
        """The structure with a new tensor in place of each description."""
        if isinstance(value, dict):
            if set(value) == {"__tensor__"}:
                _, dtype, shape, device = value["__tensor__"]
                self.tensors.append(torch.zeros(shape, dtype=dtype, device=device))
                return self.tensors[-1]
            return {key: self.put(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self.put(item) for item in value)
        return value


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None
) -> None:
    """Gives every rank the optimizer state and options (learning rate, momentum, ...) of rank `root_rank`.

    The other ranks need no state of their own yet. `model` is accepted as in Horovod and not needed.
    """
    taken = _Taken()
    skeleton = _objects.broadcast_object(taken.take(optimizer.state_dict()), root_rank, name="optimizer_state")
    if world().rank == root_rank:
        tensors = taken.tensors
    else:
        received = _Taken()
        state = received.put(skeleton)
        tensors = received.tensors
    _broadcast([(f"optimizer_state.{index}", tensor) for index, tensor in enumerate(tensors)], root_rank)
    if world().rank != root_rank:
        optimizer.load_state_dict(state)
