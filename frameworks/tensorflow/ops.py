"""The operations on TensorFlow's tensors, under Horovod's names. They work eagerly, in tf.function and in v1 graphs.

All except `join` and `barrier` have gradients; reductions have them for `Sum` and `Average` only. `device_dense`,
`device_sparse` and `ignore_name_scope` exist for Horovod's programs and have no effect: operations run where their
tensors are, and their names do not depend on scopes. `gradient` is "exact" (that of the sum of all ranks' losses) or
"horovod" (Horovod's factor; see distrun._collectives.gradient_factor).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from distrun import _session
from distrun._abi import Kind, ReduceOp
from distrun._collectives import EXACT, about_one_of, gradient_factor, reduction
from distrun._compression import check
from distrun.numpy._plain import checked
from distrun.process_sets import ProcessSet, global_process_set

from ._call import call, checked_names, executing_eagerly, factors_of
from ._execution import execution, run
from ._gradients import scaled
from .compression import Compression, Compressor, NoneCompressor

_Tensor, _IndexedSlices = tf.Tensor, tf.IndexedSlices  # a look-up in TensorFlow's lazy module is slow


def _tensors(values: Sequence[Any]) -> list[Any]:
    tensors: list[Any] = []
    for value in values:
        try:
            tensors.append(_tensor(value))
        except (ValueError, TypeError) as error:
            raise about_one_of(error, len(tensors), len(values)) from None
    return tensors


def _tensor(value: Any) -> Any:
    return value if isinstance(value, _Tensor) else tf.convert_to_tensor(checked(value))


def _with_gradient(tensors: Sequence[Any], gradient: str, kind: Kind, process_set: ProcessSet) -> Sequence[Any]:
    factor = gradient_factor(gradient, kind, process_set)
    return tensors if factor == 1.0 else scaled(tensors, factor)


def _whole(how: dict[str, Any]) -> float:
    scale: float = how["prescale"] * how["postscale"]
    return scale


def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """Reduces the tensors of all ranks (default: their average). Returns a new tensor.

    The tensors have the same shape and dtype on all ranks. tf.IndexedSlices are not added up; the ranks' rows are
    gathered. `average` is Horovod's older form of `op`.
    """
    del device_dense, device_sparse, ignore_name_scope
    if average is None and compression is NoneCompressor and isinstance(tensor, _Tensor) and executing_eagerly():
        return execution().allreduce_eagerly(tensor, name, op, prescale_factor, postscale_factor, process_set)
    check(compression)
    how = reduction(op, *factors_of(prescale_factor, postscale_factor), average)
    if isinstance(tensor, _IndexedSlices):
        return allreduce_slices([tensor], how["reduce"], name, process_set, compression, _whole(how))[0]
    small, context = compression.compress(_tensor(tensor))
    what = call(Kind.ALLREDUCE, name, process_set, **how)
    return compression.decompress(run(what, [small])[0], context)


def _allreduce(
    tensor: Any,
    name: str | None = None,
    op: int = ReduceOp.SUM,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Horovod's allreduce of `mpi_ops`, whose default is the sum."""
    del ignore_name_scope
    return allreduce(
        tensor,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        name=name,
        process_set=process_set,
    )


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Any]:
    """Reduces several tensors, which run all or none. Returns new tensors. tf.IndexedSlices among them are gathered."""
    del device_dense, device_sparse, ignore_name_scope
    check(compression)
    how = reduction(op, *factors_of(prescale_factor, postscale_factor), average)
    sparse = [index for index, tensor in enumerate(tensors) if isinstance(tensor, tf.IndexedSlices)]
    dense = [index for index in range(len(tensors)) if index not in set(sparse)]
    results: dict[int, Any] = {}
    if dense:
        given = [tensors[index] for index in dense]
        reduced = allreduce_dense(
            given, names=name, process_set=process_set, compression=compression, grouped=True, **how
        )
        results |= zip(dense, reduced, strict=True)
    if sparse:
        given = [tensors[index] for index in sparse]
        gathered = allreduce_slices(given, how["reduce"], name, process_set, compression, _whole(how))
        results |= zip(sparse, gathered, strict=True)
    return [results[index] for index in range(len(tensors))]


def allreduce_dense(
    tensors: Sequence[Any],
    reduce: ReduceOp,
    names: str | Sequence[str] | None,
    process_set: ProcessSet,
    compression: type[Compressor],
    *,
    grouped: bool,
    prescale: float = 1.0,
    postscale: float = 1.0,
) -> list[Any]:
    """Reduces all of `tensors` in one operation."""
    small = [compression.compress(tensor) for tensor in _tensors(tensors)]
    what = call(
        Kind.ALLREDUCE, names, process_set, grouped=grouped, reduce=reduce, prescale=prescale, postscale=postscale
    )
    outputs = run(what, [tensor for tensor, _ in small])
    return [compression.decompress(output, ctx) for output, (_, ctx) in zip(outputs, small, strict=True)]


def allreduce_slices(
    slices: Sequence[Any],
    reduce: ReduceOp,
    names: str | Sequence[str] | None,
    process_set: ProcessSet,
    compression: type[Compressor] = Compression.none,
    factor: float = 1.0,
) -> list[Any]:
    """Gathers all ranks' rows of each tf.IndexedSlices, times `factor`. Rows with the same index are not added up.

    So an average of integers is truncated in each row.
    """
    if reduce not in (ReduceOp.SUM, ReduceOp.AVERAGE):
        raise NotImplementedError(f"tf.IndexedSlices are reduced with Sum or Average, not {reduce.name.title()}.")
    if names is not None:
        each = list(checked_names(names))
        if len(each) != len(slices):
            each = [f"{each[0]}_{index + 1}of{len(slices)}" for index in range(len(slices))]
        names = [f"{name}.{part}" for name in each for part in ("values", "indices")]
    what = call(Kind.ALLGATHER, names, process_set, grouped=True)
    small = [compression.compress(one.values) for one in slices]
    gathered = run(what, [part for (rows, _), one in zip(small, slices, strict=True) for part in (rows, one.indices)])
    divisor = process_set.size() or 1 if reduce == ReduceOp.AVERAGE else 1
    results = []
    for index, (one, (_, context)) in enumerate(zip(slices, small, strict=True)):
        rows = compression.decompress(gathered[2 * index], context)
        if divisor > 1 and not rows.dtype.is_integer:
            rows = rows / tf.cast(divisor, rows.dtype)
            rows = _scaled(rows, factor) if factor != 1.0 else rows
        elif factor != divisor:
            rows = _scaled(rows, factor / divisor)
        results.append(tf.IndexedSlices(rows, gathered[2 * index + 1], one.dense_shape))
    return results


def _scaled(rows: Any, factor: float) -> Any:
    """Multiplies rows by a factor. Integers are scaled like dense ones (docs/reference/numerics.md): in float64, then
    truncated."""
    if rows.dtype.is_integer:
        return tf.cast(tf.cast(rows, tf.float64) * factor, rows.dtype)
    return rows * tf.cast(factor, rows.dtype)


def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    gradient: str = EXACT,
) -> Any:
    """Concatenates the tensors of all ranks along dimension 0, in rank order. Only dimension 0 may differ among
    ranks."""
    del ignore_name_scope
    given = _with_gradient(_tensors([tensor]), gradient, Kind.ALLGATHER, process_set)
    return run(call(Kind.ALLGATHER, name, process_set), list(given))[0]


def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    gradient: str = EXACT,
) -> list[Any]:
    """Concatenates each of several tensors as allgather does. The tensors run all or none."""
    del ignore_name_scope
    if not tensors:
        return []
    given = _with_gradient(_tensors(tensors), gradient, Kind.ALLGATHER, process_set)
    return run(call(Kind.ALLGATHER, name, process_set, grouped=True), list(given))[:-1]


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    gradient: str = EXACT,
) -> Any:
    """Returns the tensor of world rank `root_rank`, as a new tensor of the same shape and dtype on every member."""
    del ignore_name_scope
    given = _with_gradient(_tensors([tensor]), gradient, Kind.BROADCAST, process_set)
    return run(call(Kind.BROADCAST, name, process_set, root=root_rank), list(given))[0]


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends a block of rows to each rank, and returns the blocks from all ranks, in rank order.

    splits: the number of rows for each rank; None: equal shares of dimension 0. Rows beyond their sum are not sent.
    With splits the result is a pair: the output, and the rows received from each rank (int32).
    """
    del ignore_name_scope
    rows = tf.zeros([0], tf.int64) if splits is None else tf.convert_to_tensor(splits)
    if not rows.dtype.is_integer and rows.shape.num_elements() != 0:  # an empty list has no integer dtype
        raise ValueError(f"splits must be whole numbers of rows, one for each rank of the process set, not {splits!r}.")
    output, received = run(call(Kind.ALLTOALL, name, process_set), _tensor(tensor), tf.cast(rows, tf.int64))
    return output if splits is None else (output, received)


def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    gradient: str = EXACT,
) -> Any:
    """Reduces the tensors of all ranks (default: their average), and returns this rank's share of the rows.

    The shares are equal. If the rows cannot be divided equally, each of the first ranks gets one row more.
    """
    del device_dense, ignore_name_scope
    [given] = _with_gradient(_tensors([tensor]), gradient, Kind.REDUCESCATTER, process_set)
    return _reducescatter([given], compression, op, name, process_set, False, prescale_factor, postscale_factor)[0]


def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    gradient: str = EXACT,
) -> list[Any]:
    """Reduces several tensors as reducescatter does, and returns this rank's shares. The tensors run all or none."""
    del device_dense
    given = _with_gradient(_tensors(tensors), gradient, Kind.REDUCESCATTER, process_set)
    return _reducescatter(given, compression, op, name, process_set, True, prescale_factor, postscale_factor)


def _reducescatter(
    tensors: Sequence[Any],
    compression: type[Compressor],
    op: int | None,
    name: str | None,
    process_set: ProcessSet,
    grouped: bool,
    prescale: float,
    postscale: float,
) -> list[Any]:
    check(compression)
    how = reduction(op, *factors_of(prescale, postscale))
    if not tensors:
        return []
    small = [compression.compress(tensor) for tensor in _tensors(tensors)]
    what = call(Kind.REDUCESCATTER, name, process_set, grouped=grouped, **how)
    outputs = run(what, [tensor for tensor, _ in small])
    return [compression.decompress(output, ctx) for output, (_, ctx) in zip(outputs, small, strict=True)]


def join(process_set: ProcessSet = global_process_set) -> Any:
    """Joins: this rank is out of data, and takes part in the others' operations until every member has joined.

    It contributes the neutral element to reductions and no rows to allgathers. Returns the world rank that joined last,
    as a tensor.
    """
    last = run(call(Kind.JOIN, None, process_set))[0]
    if tf.executing_eagerly():
        _session.current().forget_numbers(process_set.process_set_id or 0)
    return last


def barrier(process_set: ProcessSet = global_process_set) -> Any:
    """Returns when every member has called it. In a v1 graph, returns the operation that waits."""
    made = run(call(Kind.BARRIER, None, process_set))
    # In a function the operation runs in any case, and a function may not return an operation.
    return None if tf.executing_eagerly() or tf.inside_function() else made[0]


def rank_op(name: str | None = None) -> Any:
    """Returns this process's rank as an int32 tensor."""
    return tf.constant(_session.world().rank, tf.int32, name=name)


def local_rank_op(name: str | None = None) -> Any:
    """Returns this process's rank on its host as an int32 tensor."""
    return tf.constant(_session.world().local_rank, tf.int32, name=name)


def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Returns the number of members of a process set as an int32 tensor. ValueError for an unknown id."""
    return tf.constant(len(_members(process_set_id)), tf.int32, name=name)


def local_size_op(name: str | None = None) -> Any:
    """Returns the number of processes on this host as an int32 tensor."""
    return tf.constant(_session.world().local_size, tf.int32, name=name)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """Returns 1 if this process is a member of the set, else 0, as an int32 tensor. ValueError for an unknown id."""
    return tf.constant(int(_session.world().rank in _members(process_set_id)), tf.int32, name=name)


def _members(process_set_id: int) -> list[int]:
    from distrun import process_sets

    members = process_sets.registered().get(process_set_id)
    if members is None:
        raise ValueError(f"there is no process set with the id {process_set_id}.")
    return members
