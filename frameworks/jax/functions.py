"""Initial state from one rank."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from distrun import _arguments, _objects
from distrun.process_sets import ProcessSet, global_process_set

from . import _names
from ._execute import is_traced
from .ops import broadcast


def _is_key(leaf: object) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def broadcast_parameters(params: Any, root_rank: int = 0, process_set: ProcessSet = global_process_set) -> Any:
    """The pytree of rank `root_rank`, on every rank: parameters, an optimizer's state, random keys as they are. For
    dropout each rank makes another one afterwards: `jax.random.fold_in(key, hvd.rank())`.

    Arrays of JAX cannot be overwritten, so use what is returned: `params = hvd.broadcast_parameters(params)`. The trees
    must have the same structure on all ranks. What is a number or a bool of Python's on the root is one everywhere;
    other leaves that are no arrays (strings, functions) stay as they are.
    """
    root_rank = _arguments.root_rank(root_rank)
    leaves, structure = jax.tree_util.tree_flatten(params)
    numbers: dict[int, float] = {}
    if leaves and not is_traced(leaves):  # by the root's, as another rank may have an array there
        numbers = {index: leaf for index, leaf in enumerate(leaves) if _is_number(leaf)}
        numbers = _objects.broadcast_object(numbers, root_rank, "parameters", process_set)
        leaves = [numbers.get(index, leaf) for index, leaf in enumerate(leaves)]
    travels = [index for index, leaf in enumerate(leaves) if index not in numbers and _travels(leaf)]
    keys = {index: jax.random.key_impl(leaves[index]) for index in travels if _is_key(leaves[index])}
    arrays = [jax.random.key_data(leaves[index]) if index in keys else leaves[index] for index in travels]
    for index, result in zip(travels, broadcast(arrays, root_rank, "parameters", process_set), strict=True):
        leaves[index] = jax.random.wrap_key_data(result, impl=keys[index]) if index in keys else result
    return jax.tree_util.tree_unflatten(structure, leaves)


def _is_number(leaf: object) -> bool:
    return type(leaf) in (bool, int, float)


def _travels(leaf: object) -> bool:
    # A dtype's own class (jnp.bfloat16) has a dtype too.
    return isinstance(leaf, int | float) or (hasattr(leaf, "dtype") and not isinstance(leaf, type))


broadcast_optimizer_state = broadcast_parameters


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    *,
    allow_pickle: bool = False,
) -> Any:
    """The object of rank `root_rank`, on every member: itself there, elsewhere equal ones. Collective. Not inside
    jax.jit. See distrun.codec for what can be sent."""
    _names.refuse_inside_programs("broadcast_object")
    return _objects.broadcast_object(obj, root_rank, name, process_set, allow_pickle=allow_pickle)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set, *, allow_pickle: bool = False
) -> list[Any]:
    """The objects of all members, in rank order, on every member. Collective. Not inside jax.jit. See distrun.codec for
    what can be sent. Who has joined has none: the list is shorter then."""
    _names.refuse_inside_programs("allgather_object")
    return _objects.allgather_object(obj, name, process_set, allow_pickle=allow_pickle)
