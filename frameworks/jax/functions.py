"""Broadcasts of the initial state and of objects."""

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
    """Returns the pytree of rank `root_rank` on every rank: parameters, an optimizer's state, random keys. Collective.

    JAX's arrays cannot be overwritten, so use the result: `params = hvd.broadcast_parameters(params)`. The trees must
    have the same structure on all ranks. A Python number or bool on the root becomes one on every rank. Other leaves
    that are not arrays (strings, functions) stay unchanged. Random keys become equal on all ranks; for dropout, derive
    another key on each rank: `jax.random.fold_in(key, hvd.rank())`.
    """
    root_rank = _arguments.root_rank(root_rank)
    leaves, structure = jax.tree_util.tree_flatten(params)
    numbers: dict[int, float] = {}
    if leaves and not is_traced(leaves):  # the root decides, since another rank may have an array there
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
    # A dtype's class (jnp.bfloat16) also has an attribute dtype.
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
    """Returns the object of rank `root_rank` on every member. Collective; not inside jax.jit.

    The arguments and errors are those of distrun.broadcast_object().
    """
    _names.refuse_inside_programs("broadcast_object")
    return _objects.broadcast_object(obj, root_rank, name, process_set, allow_pickle=allow_pickle)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set, *, allow_pickle: bool = False
) -> list[Any]:
    """Returns the objects of all members, in rank order, on every member. Collective; not inside jax.jit.

    Ranks that have joined send none, so the list is shorter then. The arguments and errors are those of
    distrun.allgather_object().
    """
    _names.refuse_inside_programs("allgather_object")
    return _objects.allgather_object(obj, name, process_set, allow_pickle=allow_pickle)
