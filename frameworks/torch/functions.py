"""Broadcasts of the initial state: parameters and optimizer state."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from distrun import _objects, _parameters
from distrun._abi import Kind
from distrun._collectives import batch_call
from distrun._objects import allgather_object as allgather_object  # Horovod has it in this module
from distrun._objects import broadcast_object as broadcast_object
from distrun._session import world
from distrun.process_sets import global_process_set

from ._adapter import collective, is_dense
from .optimizer import InFront, kept_groups


def broadcast_parameters(params: Mapping[str, torch.Tensor] | Iterable[Any], root_rank: int) -> None:
    """Overwrites tensors with those of rank `root_rank`. Collective; blocks.

    params: a dict such as model.state_dict(), or (name, tensor) pairs such as model.named_parameters(), or tensors. The
    ranks have the same names, shapes and dtypes. ValueError for other values.
    """
    pairs = _parameters.named(params, torch.Tensor)
    _broadcast([(f"parameter.{name}", tensor) for name, tensor in pairs], root_rank)


def _broadcast(pairs: list[tuple[str, torch.Tensor]], root_rank: int) -> None:
    what = batch_call(Kind.BROADCAST, [name for name, _ in pairs], global_process_set)
    tensors = [tensor.detach() for _, tensor in pairs]
    collective.same_size(tensors, what._replace(root=root_rank), in_place=True).wait()


class _Taken:
    """Takes the tensors out of a state, and puts others in. Numbers and texts are sent separately from large memory.

    A tensor on the device of `near` (the parameter of this state) is on the parameter's device on the other ranks too.
    A tensor with the parameter's strides has the parameter's strides there. Fused optimizers access both by address.
    """

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []

    def take(self, value: Any, near: torch.Tensor | None = None) -> Any:
        """Returns the same structure with a description instead of each tensor."""
        if isinstance(value, torch.Tensor):
            self.tensors.append(value.detach())
            beside = near is not None and value.device == near.device
            strides = list(value.stride()) if value.layout == torch.strided else None
            if near is not None and strides == list(near.stride()):
                strides = None
            return {"__tensor__": [value.dtype, list(value.shape), None if beside else value.device.type, strides]}
        if isinstance(value, dict):
            return _like(value, ((key, self.take(item, near)) for key, item in value.items()))
        if type(value) in (list, tuple):
            return type(value)(self.take(item, near) for item in value)
        return value

    def put(self, value: Any, near: torch.Tensor | None = None) -> Any:
        """Returns the structure with a new tensor instead of each description."""
        if isinstance(value, dict):
            if set(value) == {"__tensor__"}:
                dtype, shape, device, strides = value["__tensor__"]
                if device is None and near is not None:
                    device = near.device
                if strides is None and near is not None and list(near.shape) == shape:
                    strides = near.stride()
                if strides is not None and is_dense(shape, strides):
                    self.tensors.append(torch.empty_strided(shape, strides, dtype=dtype, device=device).zero_())
                else:
                    self.tensors.append(torch.zeros(shape, dtype=dtype, device=device))
                return self.tensors[-1]
            return _like(value, ((key, self.put(item, near)) for key, item in value.items()))
        if type(value) in (list, tuple):
            return type(value)(self.put(item, near) for item in value)
        return value


def _like(value: dict[Any, Any], items: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    return collections.OrderedDict(items) if isinstance(value, collections.OrderedDict) else dict(items)


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: torch.nn.Module | None = None,
    *,
    allow_pickle: bool = False,
) -> None:
    """Gives every rank the optimizer's state and options (learning rate, momentum, ...) of rank `root_rank`.
    Collective.

    The other ranks need no state yet. `model` exists for Horovod's programs and has no effect. allow_pickle: as in
    broadcast_object, for options and state that are not plain data. ValueError if the ranks have different parameter
    groups.
    """
    own = _loads_its_own_way(optimizer)
    is_root = world().rank == root_rank
    taken = _Taken()
    sent = None
    if is_root:
        sent = taken.take(optimizer.state_dict()) if own else _take_state(optimizer, taken)
    received = _objects.broadcast_object(sent, root_rank, name="optimizer_state", allow_pickle=allow_pickle)
    state: Any = None
    if not is_root and own:
        state = taken.put(received)
    elif not is_root:
        _put_state(optimizer, received, taken)
    _broadcast([(f"optimizer_state.{index}", tensor) for index, tensor in enumerate(taken.tensors)], root_rank)
    if not is_root and own:
        load = optimizer._load if isinstance(optimizer, InFront) else optimizer.load_state_dict
        with kept_groups(optimizer):
            load(state)


def _loads_its_own_way(optimizer: Any) -> bool:
    """True if the optimizer overrides state_dict() or load_state_dict(), so that its state has more than torch's."""
    kinds = [kind for kind in type(optimizer).__mro__ if kind is not InFront]
    return any(
        next((kind for kind in kinds if name in kind.__dict__), None) is not torch.optim.Optimizer
        for name in ("state_dict", "load_state_dict")
    )


# Not by torch's load_state_dict: it converts the state of a narrow parameter to the parameter's dtype. On the root the
# state may have another dtype.
def _take_state(optimizer: torch.optim.Optimizer, taken: _Taken) -> Any:
    params = [param for group in optimizer.param_groups for param in group["params"]]
    places = {param: place for place, param in enumerate(params)}
    state = []
    for key, value in optimizer.state.items():
        param = key if isinstance(key, torch.Tensor) else None
        if param is not None and param not in places:
            continue  # it has left the groups, for instance a replaced head
        state.append([param is not None, key if param is None else places[param], taken.take(value, param)])
    groups = []
    for group in optimizer.param_groups:
        first = group["params"][0] if group["params"] else None
        options = {name: taken.take(value, first) for name, value in group.items() if name not in _OF_THIS_RANK}
        groups.append([len(group["params"]), options])
    return [state, groups]


_OF_THIS_RANK = ("params", "param_names")


def _put_state(optimizer: torch.optim.Optimizer, skeleton: Any, taken: _Taken) -> None:
    """Sets the state in place, because a scheduler made before DistributedOptimizer holds the optimizer's groups."""
    state, groups = skeleton
    own = optimizer.param_groups
    sizes, roots = [len(group["params"]) for group in own], [size for size, _ in groups]
    if sizes != roots:
        raise ValueError(
            f"the optimizer's groups have {sizes} parameters on rank {world().rank} and {roots} on the root. Give "
            "all ranks the same groups."
        )
    params = [param for group in own for param in group["params"]]
    optimizer.state.clear()
    for of_param, key, value in state:
        param = params[key] if of_param else None
        optimizer.state[key if param is None else param] = taken.put(value, param)
    for group, (_, options) in zip(own, groups, strict=True):
        for name in [name for name in group if name not in options and name not in _OF_THIS_RANK]:
            del group[name]
        first = group["params"][0] if group["params"] else None
        group.update({name: taken.put(value, first) for name, value in options.items()})
