"""Initial state from one rank."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from distrun.process_sets import ProcessSet, global_process_set

from .ops import broadcast


def _is_key(leaf: object) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def broadcast_parameters(params: Any, root_rank: int = 0, process_set: ProcessSet = global_process_set) -> Any:
    """The pytree of rank `root_rank`, on every rank: parameters, an optimizer's state, random keys.

    Arrays of JAX cannot be overwritten, so use what is returned: `params = hvd.broadcast_parameters(params)`. The trees
    must have the same structure on all ranks; leaves that are no arrays (strings, functions) stay as they are.
    """
    leaves, structure = jax.tree_util.tree_flatten(params)
    travels = [index for index, leaf in enumerate(leaves) if _is_key(leaf) or _is_number(leaf)]
    keys = {index: jax.random.key_impl(leaves[index]) for index in travels if _is_key(leaves[index])}
    arrays = [jax.random.key_data(leaves[index]) if index in keys else leaves[index] for index in travels]
    for index, result in zip(travels, broadcast(arrays, root_rank, "parameters", process_set), strict=True):
        leaves[index] = jax.random.wrap_key_data(result, impl=keys[index]) if index in keys else result
    return jax.tree_util.tree_unflatten(structure, leaves)


def _is_number(leaf: object) -> bool:
    return isinstance(leaf, int | float) or hasattr(leaf, "dtype")


broadcast_optimizer_state = broadcast_parameters
