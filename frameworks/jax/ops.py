"""The operations on arrays and pytrees of arrays, under Horovod's names.

They may be called outside and inside jax.jit; `join`, `barrier` and `alltoall` with splits only outside. A pytree is
one operation: its arrays travel together. Arrays are jax.Array, NumPy arrays or numbers. Operations without a name are
named by a counter, inside jax.jit by one of the function that is traced: all ranks must compile the same operations in
the same order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import jax
import jax.numpy as jnp
from distrun import _arguments, _collectives, _compression
from distrun._abi import Kind
from distrun._collectives import EXACT, gradient_factor, reduction, split_rows
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
    # JAX raises for a number of Python's that does not fit, and takes what is left of an array's.
    if given is not None and given.dtype.kind in "iu" and not np.array_equal(given.astype(made.dtype), given):
        raise ValueError(
            f"{given.dtype.name} values of a NumPy array do not fit into {made.dtype.name}, which JAX makes of them; "
            'call jax.config.update("jax_enable_x64", True) at the start, or use distrun.numpy for them.'
        )
    return made


def _arrays(tree: Any) -> tuple[list[jax.Array], Any]:
    leaves, structure = jax.tree_util.tree_flatten(tree)
    return [_array(leaf) for leaf in leaves], structure


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
    """The reduction (default: the average) over the ranks of every array of the pytree, in the same structure."""
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
    """The ranks' arrays one after the other along dimension 0, which may differ in size outside jax.jit."""
    return _on_tree(Kind.ALLGATHER, tensor, name, process_set, gradient)


grouped_allgather = allgather


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    gradient: str = EXACT,
) -> Any:
    """Rank `root_rank`'s arrays, on every rank."""
    return _on_tree(Kind.BROADCAST, tensor, name, process_set, gradient, root=_arguments.root_rank(root_rank))


def alltoall(
    tensor: Any, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """The rows that each rank has sent here. One array.

    splits: how many rows go to each rank, only outside jax.jit; then the result is a pair with the rows received from
    each. Without them every rank gets an equal share.
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
    """This rank's share of the rows of the reduced arrays (default: averaged)."""
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
    """For a rank that has run out of data: takes part in what the others do until they have too. Not inside jax.jit.

    It contributes the neutral element to reductions and no rows to allgathers, and drops what they give. An average
    still divides by the size of the set. What JAX has dispatched and not begun is waited for first,
    also what is of other process sets. Returns the rank that joined last. `device` is Horovod's and has no effect.
    """
    del device
    _names.refuse_inside_programs("join")
    return _collectives.join(process_set, _native.gpu(process_set))


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when every member has called it. Not inside jax.jit."""
    _names.refuse_inside_programs("barrier")
    _collectives.barrier(process_set)
