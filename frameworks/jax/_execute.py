"""One collective on several arrays, without gradients.

On concrete arrays it runs at once; it then raises distrun's own exceptions, and sizes may differ among the ranks. While
JAX traces, it becomes one foreign call of the compiled program.

XLA assumes that the foreign call has no side effects. So it drops a result that the program does not use, on all ranks
alike. A call without elements is marked as having side effects: XLA would drop it, perhaps on this rank alone, because
other ranks may have elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import jax
import jax.numpy as jnp
from distrun._abi import Kind, ReduceOp
from distrun._collectives import Call, about, grouped_call, share
from distrun._collectives import call as single_call
from distrun.numpy._adapter import code_of, collective
from distrun.process_sets import ProcessSet, registered_id
from jax.experimental import io_callback

from . import _dispatched, _names, _native


class Spec(NamedTuple):
    """The arguments that all arrays of a call share. They are part of the compiled program."""

    kind: Kind
    traced_name: str  # "" if the call was not traced
    name: str | None
    process_set: ProcessSet
    members: int
    position: int  # this rank's position among the members
    reduce: ReduceOp = ReduceOp.SUM
    root: int = 0
    prescale: float = 1.0
    postscale: float = 1.0
    splits: tuple[int, ...] | None = None  # alltoall: rows for each member; None: equal shares


def is_traced(arrays: Sequence[Any]) -> bool:
    """True if the values are not known yet: inside jax.jit and inside transformations.

    In a function that is being traced, this is True for known values too, such as arrays in its closure. The operation
    belongs to the program. Run during the trace, it would be missing on ranks that do not trace again.
    """
    return any(isinstance(array, jax.core.Tracer) for array in arrays) or bool(_names.functions())


def execute(spec: Spec, turn: jax.Array | None, arrays: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
    """Runs the operation and returns the results in order. `turn` orders traced operations; see _order.

    An alltoall with splits also returns the rows received from each member.
    """
    return tuple(_run_traced(spec, turn, arrays) if is_traced(arrays) else run_now(spec, arrays)[0])


def _check_dtypes(spec: Spec, arrays: Sequence[Any]) -> None:
    """Raises ValueError for a dtype that cannot be sent. XLA's own error would name only a number."""
    for name, array in zip(_names_in_program(spec, len(arrays)), arrays, strict=True):
        try:
            code_of(jnp.dtype(array.dtype))
        except ValueError as error:
            raise about(error, name) from None


# --- on concrete arrays ---


def run_now(spec: Spec, arrays: Sequence[jax.Array]) -> tuple[list[jax.Array], list[tuple[int, ...]]]:
    """Returns the results and, if they may differ, the rows of every member. NumPy reads host arrays without a copy."""
    if spec.name is not None:
        _dispatched.wait_for_name(spec.kind, spec.name, spec.process_set)
    outputs, sizes = _wait(spec, _named(spec, len(arrays)), [np.asarray(array) for array in arrays])
    # If the input is not bound to a device (not committed), JAX may move the result too.
    results = [
        jax.device_put(output, array.sharding if array.committed else None)
        for output, array in zip(outputs, arrays, strict=True)
    ]
    if spec.splits is not None:
        results.append(jnp.asarray(sizes[0], jnp.int32))
    return results, sizes


def _named(spec: Spec, count: int) -> Call:
    how: dict[str, Any] = {"reduce": spec.reduce, "prescale": spec.prescale, "postscale": spec.postscale}
    if count == 1:
        return single_call(spec.kind, spec.name, spec.process_set, single=False, root=spec.root, **how)
    return grouped_call(spec.kind, spec.name, spec.process_set, count, root=spec.root, **how)


def _wait(spec: Spec, what: Call, arrays: list[Any]) -> tuple[list[Any], list[tuple[int, ...]]]:
    nothing: list[tuple[int, ...]] = [()] * len(arrays)
    if spec.kind == Kind.ALLGATHER:
        return collective.allgather_sizes(arrays, what).wait()
    if spec.kind == Kind.ALLTOALL:
        pairs = [collective.alltoall_sizes(array, spec.splits, what).wait() for array in arrays]
        return [output for output, _ in pairs], [sizes for _, sizes in pairs]
    return collective.start(what, arrays, spec.process_set).wait(), nothing


# --- in a compiled program ---


def _run_traced(spec: Spec, turn: jax.Array | None, arrays: Sequence[jax.Array]) -> list[jax.Array]:
    if spec.splits is not None:
        raise ValueError(
            "alltoall with splits has a result whose size depends on the other ranks, which jax.jit cannot compile. "
            "Call it outside jax.jit, or leave out splits (equal shares)."
        )
    _dispatched.watch()
    if spec.name is not None:
        _dispatched.note_name(spec.kind, spec.name, spec.process_set)
    _check_dtypes(spec, arrays)
    # An elementwise operation handles a batch dimension (vmap) like any other. The others run once for each example.
    elementwise = spec.kind in (Kind.ALLREDUCE, Kind.BROADCAST)
    shapes = [jax.ShapeDtypeStruct(_shape(spec, array), array.dtype) for array in arrays]
    call = _foreign_call if _native.ready(spec.process_set) else _callback
    arguments = list(arrays) if turn is None else [*arrays, turn]
    return list(call(spec, arguments, shapes, "broadcast_all" if elementwise else "sequential"))


def _names_in_program(spec: Spec, count: int) -> list[str]:
    # The same names as in place_in_group of bindings/jax/request.cc, which explains them.
    return [spec.traced_name if count == 1 else f"{spec.traced_name}_{index + 1}of0" for index in range(count)]


def _shape(spec: Spec, array: jax.Array) -> tuple[int, ...]:
    if spec.kind in (Kind.ALLREDUCE, Kind.BROADCAST):
        return tuple(array.shape)
    operation = spec.kind.name.lower()
    if not array.shape:
        raise ValueError(f"{operation} needs arrays of at least one dimension.")
    rows, *others = array.shape
    if spec.kind == Kind.ALLGATHER:
        rows *= spec.members
    elif spec.kind == Kind.REDUCESCATTER:
        if rows < spec.members:
            # XLA drops a call without elements, but only on the ranks without a row. With side effects it would have no
            # gradient.
            raise ValueError(
                f"reducescatter inside jax.jit needs at least one row for each of the {spec.members} ranks, not "
                f"{rows} rows. Call it outside jax.jit, or add rows of zeros."
            )
        rows = share(rows, spec.members, spec.position)
    elif rows % spec.members:
        raise ValueError(
            f"alltoall without splits: the number of rows ({rows}) must be a multiple of the number of ranks "
            f"({spec.members})."
        )
    return (rows, *others)


def _empty(shapes: list[Any]) -> bool:
    return not any(shape.size for shape in shapes)


def _foreign_call(spec: Spec, arrays: list[jax.Array], shapes: list[Any], vmap_method: str) -> Sequence[jax.Array]:
    call = jax.ffi.ffi_call(_native.TARGET, shapes, has_side_effect=_empty(shapes), vmap_method=vmap_method)
    results: Sequence[jax.Array] = call(
        *arrays,
        name=spec.traced_name,
        kind=np.int64(spec.kind),
        reduce=np.int64(spec.reduce.native),
        root=np.int64(spec.root),
        process_set=np.int64(spec.process_set.process_set_id or 0),
        prescale=np.float64(spec.prescale),
        postscale=np.float64(spec.postscale),
    )
    return results


def _callback(spec: Spec, arrays: list[jax.Array], shapes: list[Any], vmap_method: str) -> Sequence[jax.Array]:
    """Runs the operation in a Python callback, through the host's memory. Used if the handler is not available, for
    instance on GPUs whose tensors the job does not move."""
    count = len(shapes)
    names = _names_in_program(spec, count)
    group = -1 if count == 1 else 0

    def communicate(*values: Any) -> tuple[Any, ...]:
        what = Call(
            spec.kind,
            names,
            registered_id(spec.process_set),  # looked up when the program runs, because the set may have been removed
            single=False,
            group=group,
            reduce=spec.reduce,
            root=spec.root,
            prescale=spec.prescale,
            postscale=spec.postscale,
        )
        return tuple(_wait(spec, what, [np.asarray(value) for value in values[:count]])[0])

    communicate.distrun_names = [spec.traced_name]  # type: ignore[attr-defined]  # for _names
    results: Sequence[jax.Array]
    if _empty(shapes):
        results = io_callback(communicate, tuple(shapes), *arrays)
    else:
        results = jax.pure_callback(communicate, tuple(shapes), *arrays, vmap_method=vmap_method)
    return results
