"""The operations on arrays and pytrees of arrays, under Horovod's names.

They work outside and inside jax.jit; `join`, `barrier` and `alltoall` with splits only outside. A pytree is one
operation, and its arrays run all or none. Arrays are jax.Array, NumPy arrays or numbers. A counter names operations
without a name; inside jax.jit each traced function has its own counter. So all ranks must compile the same operations
in the same order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import jax
import jax.numpy as jnp
from distrun import _arguments, _collectives, _compression
from distrun._abi import Kind
from distrun._collectives import EXACT, about_one_of, gradient_factor, reduction, split_rows
from distrun.numpy._plain import checked
from distrun.process_sets import ProcessSet, global_process_set

from . import _names, _native
from ._calls import make_spec, run, scaled
from .compression import Compression, Compressor


def _array(leaf: Any) -> jax.Array:
    if isinstance(leaf, jax.Array):
        return leaf
    made = jnp.asarray(leaf if hasattr(leaf, "__jax_array__") else checked(leaf))
    given = np.asarray(leaf) if hasattr(leaf, "dtype") else None
    # JAX raises for a Python number that does not fit. It silently truncates the values of an array.
    if given is not None and given.dtype.kind in "iu" and not np.array_equal(given.astype(made.dtype), given):
        raise ValueError(
            f"{given.dtype.name} values of a NumPy array do not fit into {made.dtype.name}, to which JAX converts "
            'them. Call jax.config.update("jax_enable_x64", True) at the start, or use distrun.numpy for them.'
        )
    return made


def _arrays(tree: Any) -> tuple[list[jax.Array], Any]:
    leaves, structure = jax.tree_util.tree_flatten(tree)
    arrays: list[jax.Array] = []
    for leaf in leaves:
        try:
            arrays.append(_array(leaf))
        except (ValueError, TypeError) as error:
            raise about_one_of(error, len(arrays), len(leaves)) from None
    return arrays, structure


def _on_tree(
    kind: Kind, tree: Any, name: str | None, process_set: ProcessSet, gradient: str = EXACT, **arguments: Any
) -> Any:
    arrays, structure = _arrays(tree)
    arrays = scaled(arrays, gradient_factor(gradient, kind, process_set))
    spec = make_spec(kind, name, process_set, arrays, **arguments)
    return jax.tree_util.tree_unflatten(structure, run(spec, arrays))


def _reduced(
    kind: Kind, tree: Any, name: str | None, compression: type[Compressor], process_set: ProcessSet, **arguments: Any
) -> Any:
    _compression.check(compression)
    arrays, structure = _arrays(tree)
    small = [compression.compress(array) for array in arrays]
    reduced = _on_tree(kind, [array for array, _ in small], name, process_set, **arguments)
    results = [compression.decompress(one, ctx) for one, (_, ctx) in zip(reduced, small, strict=True)]
    return jax.tree_util.tree_unflatten(structure, results)


def allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Reduces every array of the pytree over the ranks (default: the average). Returns the same structure.

    The arrays have the same shapes and dtypes on all ranks. `average` is Horovod's older form of `op`. The reduction
    multiplies by prescale_factor before, and by postscale_factor after it. Gradients exist for Sum and Average.
    """
    return _reduced(
        Kind.ALLREDUCE,
        tensor,
        name,
        compression,
        process_set,
        **reduction(op, prescale_factor, postscale_factor, average),
    )


grouped_allreduce = allreduce


def allgather(
    tensor: Any, name: str | None = None, process_set: ProcessSet = global_process_set, gradient: str = EXACT
) -> Any:
    """Concatenates every array of the pytree over the ranks along dimension 0, which may differ outside jax.jit.

    gradient: "exact" (that of the sum of all ranks' losses) or "horovod" (divided by the number of members).
    """
    return _on_tree(Kind.ALLGATHER, tensor, name, process_set, gradient)


grouped_allgather = allgather


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    gradient: str = EXACT,
) -> Any:
    """Returns the arrays of world rank `root_rank` on every rank, in the same structure.

    gradient: "exact" (that of the sum of all ranks' losses) or "horovod" (divided by the number of members).
    """
    return _on_tree(Kind.BROADCAST, tensor, name, process_set, gradient, root=_arguments.root_rank(root_rank))


def alltoall(
    tensor: Any, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Sends a block of rows of one array to each rank, and returns the rows received from all ranks, in rank order.

    splits: the number of rows for each rank, only outside jax.jit. The result is then a pair: the output, and the rows
    received from each rank. Without splits every rank gets an equal share.
    """
    rows = split_rows(splits)
    spec = make_spec(Kind.ALLTOALL, name, process_set, [array := _array(tensor)], splits=rows)
    results = run(spec, [array])
    return results[0] if rows is None else tuple(results)


def reducescatter(
    tensor: Any,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    gradient: str = EXACT,
) -> Any:
    """Reduces every array of the pytree (default: the average), and returns this rank's share of the rows.

    gradient: "exact" (that of the sum of all ranks' losses) or "horovod" (multiplied by the number of members).
    """
    return _reduced(
        Kind.REDUCESCATTER,
        tensor,
        name,
        compression,
        process_set,
        gradient=gradient,
        **reduction(op, prescale_factor, postscale_factor),
    )


grouped_reducescatter = reducescatter


def join(device: int = -1, process_set: ProcessSet = global_process_set) -> int:
    """Joins: this rank is out of data, and takes part in the others' operations until every member has joined.

    It contributes the neutral element to reductions and no rows to allgathers, and ignores the results. An average
    still divides by the size of the set. Before that it waits for all programs that JAX has queued, also for those of
    other process sets. Returns the world rank that joined last. Not inside jax.jit. `device` exists for Horovod's
    programs and has no effect.
    """
    del device
    _names.refuse_inside_programs("join")
    return _collectives.join(process_set, _native.gpu(process_set))


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when every member of `process_set` has called it. Not inside jax.jit."""
    _names.refuse_inside_programs("barrier")
    _collectives.barrier(process_set)
