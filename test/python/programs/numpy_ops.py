"""Every operation on NumPy arrays, on any number of ranks."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from checks import raises, run

import distrun.numpy as hvd
from distrun.numpy._adapter import collective

INTEGERS = (np.uint8, np.int8, np.int16, np.int32, np.int64, np.uint16, np.uint32, np.uint64)
FLOATS = (np.float16, np.float32, np.float64)
COMPLEX = (np.complex64, np.complex128)
MOVED_ONLY = [getattr(ml_dtypes, name) for name in dir(ml_dtypes) if name.startswith("float8_")]
SHAPES: tuple[tuple[int, ...], ...] = ((), (1,), (7,), (3, 4), (2, 0, 3), (1000, 33))


def mine(shape: tuple[int, ...], dtype: Any, rank: int | None = None) -> Any:
    """Values that every rank can compute for all ranks. Small, so that all sums are exact."""
    rank = hvd.rank() if rank is None else rank
    return (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 5 + rank + 1).astype(dtype)


def everyone(shape: tuple[int, ...], dtype: Any) -> Any:
    return np.stack([mine(shape, dtype, rank) for rank in range(hvd.size())])


def check_allreduce_dtypes_and_shapes() -> None:
    for dtype in INTEGERS + FLOATS:
        for shape in SHAPES:
            result = hvd.allreduce(mine(shape, dtype), op=hvd.Sum)
            assert result.dtype == dtype and result.shape == shape
            np.testing.assert_array_equal(result, everyone(shape, dtype).sum(axis=0, dtype=dtype))


def check_unsigned_integers_use_their_whole_range() -> None:
    top = np.array([2**64 - 1, 2**63, 5], np.uint64)
    size = hvd.size()
    assert hvd.allreduce(top, op=hvd.Max).tolist() == top.tolist()
    assert hvd.allreduce(top, op=hvd.Sum).tolist() == [int(one) * size % 2**64 for one in top]
    assert hvd.allreduce(np.full(2, 6, np.uint16)).tolist() == [6, 6]
    assert hvd.allreduce(top[2:], op=hvd.Sum, postscale_factor=2.5).tolist() == [5 * size * 5 // 2]


def check_complex_numbers() -> None:
    for dtype in COMPLEX:
        values = everyone((3, 4), dtype) * (1 + 2j) - 1j * everyone((3, 4), dtype)
        mine_, total = values[hvd.rank()].astype(dtype), values.sum(axis=0).astype(dtype)
        for op, expected in {
            hvd.Sum: total,
            hvd.Average: total / hvd.size(),
            hvd.Product: values.prod(axis=0).astype(dtype),
        }.items():
            result = hvd.allreduce(mine_, op=op)
            assert result.dtype == dtype
            np.testing.assert_allclose(result, expected, rtol=1e-5)
        scaled = hvd.allreduce(mine_, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
        np.testing.assert_allclose(scaled, 1.5 * total, rtol=1e-6)
        together = hvd.grouped_allreduce([mine_, mine((5,), np.float32), mine_[0]], op=hvd.Sum)
        np.testing.assert_allclose(together[0], total, rtol=1e-6)
        np.testing.assert_allclose(together[2], total[0], rtol=1e-6)
        large = np.full((1 << 16) + 3, 1 - 1j, dtype)
        assert (hvd.allreduce(large, op=hvd.Sum) == hvd.size() * (1 - 1j)).all()
        share = hvd.reducescatter(np.repeat(mine_[:1], 2 * hvd.size(), axis=0), op=hvd.Sum)
        np.testing.assert_allclose(share, np.repeat(total[:1], 2, axis=0), rtol=1e-6)
        for op in (hvd.Min, hvd.Max):
            with raises(hvd.InvalidArgument, "tensor 'allreduce.spectrum'", np.dtype(dtype).name, "no order"):
                hvd.allreduce(mine_, op=op, name="spectrum")


def check_every_dtype_is_moved() -> None:
    size = hvd.size()
    for dtype in (*INTEGERS, *FLOATS, *COMPLEX, np.bool_, ml_dtypes.bfloat16, *MOVED_ONLY):
        values = mine((size, 3), np.float32).astype(dtype)
        everyones = [mine((size, 3), np.float32, rank).astype(dtype) for rank in range(size)]
        for found, expected in (
            (hvd.broadcast(values, size - 1), everyones[-1]),
            (
                hvd.allgather(values[: hvd.rank() + 1]),
                np.concatenate([one[: r + 1] for r, one in enumerate(everyones)]),
            ),
            (hvd.alltoall(values), np.stack([one[hvd.rank()] for one in everyones])),
        ):
            assert found.dtype == dtype and found.tobytes() == np.ascontiguousarray(expected).tobytes(), dtype
    for dtype in MOVED_ONLY:
        with raises(hvd.InvalidArgument, "'allreduce.weights'", np.dtype(dtype).name, "can be moved"):
            hvd.allreduce(np.ones(2).astype(dtype), name="weights")
    if size > 1:  # two types of the same size differ
        dtype = MOVED_ONLY[hvd.rank() == 0]
        with raises(hvd.Mismatch, "data types", "float8"):
            hvd.broadcast(np.ones(2).astype(dtype), 0, name="kinds")


def check_a_rank_that_has_joined() -> None:
    """It contributes the neutral element, of complex numbers too."""
    if hvd.rank() > 0:
        values = np.array([1 + 2j, 3 - 1j])
        count = hvd.size() - 1
        assert np.allclose(hvd.allreduce(values, op=hvd.Sum, name="sum"), count * values)
        assert np.allclose(hvd.allreduce(values, op=hvd.Product, name="product"), values**count)
        assert hvd.allreduce(np.array([7], np.uint64), op=hvd.Min, name="least").tolist() == [7]
        assert len(hvd.allgather(values, name="rows")) == 2 * count
    hvd.join()


def check_an_error_of_a_batch_names_the_tensor() -> None:
    texts = np.array(["a"])
    with raises(ValueError, "tensor 'allgather.parts_2of3'", "dtype <U1"):
        hvd.grouped_allgather([np.ones(1), texts, np.ones(1)], name="parts")
    with raises(ValueError, "tensor 'broadcast.parameter.head'", "dtype <U1"):
        hvd.broadcast_parameters({"body": np.ones(1), "head": texts}, 0)
    frozen = np.ones(1)
    frozen.flags.writeable = False
    with raises(ValueError, "tensor 'broadcast.parameter.fixed'", "read-only"):
        hvd.broadcast_parameters({"fixed": frozen, "other": np.ones(1)}, 0)
    with raises(ValueError, "tensor 'reducescatter.shares_1of2'", "dtype <U1"):
        hvd.grouped_reducescatter([texts, np.ones(1)], name="shares")
    assert hvd.allreduce(np.ones(1), op=hvd.Sum).item() == hvd.size()


def check_overlapping_memory_is_found_before_anything_is_sent() -> None:
    base = np.zeros(8)
    windows = np.lib.stride_tricks.as_strided(base, (4, 3), (8, 8))
    for call in (hvd.allreduce_, lambda array, name: hvd.broadcast_(array, 0, name=name)):
        with raises(ValueError, "windows'", "share memory"):
            call(windows, name="windows")
    with raises(ValueError, "tensor 'allreduce.twice_2of2'", "overlaps that of tensor 'allreduce.twice_1of2'"):
        hvd.grouped_allreduce_([base[:5], base[4:]], name="twice")
    hvd.grouped_allreduce_([base[:4], base[4:]], name="halves")
    hvd.broadcast_parameters({"embedding": base, "head": base}, 0)  # tied weights
    assert hvd.allreduce(windows, op=hvd.Sum).shape == (4, 3)
    assert hvd.allreduce(np.broadcast_to(np.ones(1), (3,)), op=hvd.Sum).tolist() == [hvd.size()] * 3
    base[:] = 1
    handle = hvd.allreduce_async_(base, op=hvd.Sum, name="first")
    with raises(
        hvd.InvalidArgument, "tensor 'allreduce.again'", "overlaps that of tensor 'allreduce.first'", "in flight"
    ):
        hvd.allreduce_async_(base[3:], op=hvd.Sum, name="again")
    assert hvd.synchronize(handle) is base and base.tolist() == [hvd.size()] * 8


def check_allreduce_ops() -> None:
    values = everyone((5, 3), np.float64)
    expected = {
        hvd.Sum: values.sum(axis=0),
        hvd.Average: values.mean(axis=0),
        hvd.Min: values.min(axis=0),
        hvd.Max: values.max(axis=0),
        hvd.Product: values.prod(axis=0),
    }
    for op, result in expected.items():
        np.testing.assert_allclose(hvd.allreduce(mine((5, 3), np.float64), op=op), result, rtol=1e-14)
    np.testing.assert_allclose(hvd.allreduce(mine((5, 3), np.float64)), values.mean(axis=0), rtol=1e-14)


def check_bool() -> None:
    first = np.array([hvd.rank() == 0, True, False])
    assert hvd.allreduce(first, op=hvd.Max).tolist() == [True, True, False]
    assert hvd.allreduce(first, op=hvd.Min).tolist() == [hvd.size() == 1, True, False]
    gathered = hvd.allgather(first)
    assert gathered.dtype == np.bool_
    assert gathered.tolist() == [value for rank in range(hvd.size()) for value in (rank == 0, True, False)]
    assert hvd.broadcast(first, 0).tolist() == [True, True, False]


def check_prescale_and_postscale() -> None:
    total = everyone((6,), np.float32).sum(axis=0)
    result = hvd.allreduce(mine((6,), np.float32), op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
    np.testing.assert_allclose(result, total * 1.5, rtol=1e-6)


def check_in_place() -> None:
    array = mine((4, 4), np.float32)
    handle = hvd.allreduce_async_(array, op=hvd.Sum, name="in_place")
    assert hvd.synchronize(handle) is array and hvd.poll(handle)
    np.testing.assert_array_equal(array, everyone((4, 4), np.float32).sum(axis=0))
    array = mine((4,), np.int32)
    assert hvd.broadcast_(array, hvd.size() - 1) is array
    np.testing.assert_array_equal(array, mine((4,), np.int32, hvd.size() - 1))


def check_out_of_place_leaves_the_input_alone() -> None:
    array = mine((9,), np.float64)
    hvd.allreduce(array, op=hvd.Sum)
    hvd.broadcast(array, hvd.size() - 1)
    np.testing.assert_array_equal(array, mine((9,), np.float64))


def check_memory_that_is_not_contiguous() -> None:
    array = np.zeros((6, 6), np.float32)
    view = array[::2, ::3]
    view[...] = mine((3, 2), np.float32)
    total = everyone((3, 2), np.float32).sum(axis=0)
    np.testing.assert_array_equal(hvd.allreduce(view, op=hvd.Sum), total)
    hvd.allreduce_(view, op=hvd.Sum)
    np.testing.assert_array_equal(array[::2, ::3], total)
    assert array.sum() == total.sum()
    foreign = mine((3,), ">f4")
    np.testing.assert_array_equal(hvd.allreduce(foreign, op=hvd.Sum), everyone((3,), np.float32).sum(axis=0))


class InUnits(np.ndarray):
    """Like the arrays of astropy and unyt."""

    def __new__(cls, values: Any, unit: str) -> InUnits:
        made = np.asarray(values, float).view(cls)
        made.unit = unit
        return made

    def __array_finalize__(self, other: Any) -> None:
        self.unit = getattr(other, "unit", None)


class WithMethods(np.ndarray):
    def doubled(self) -> Any:
        return 2 * self


def check_results_have_the_class_of_arrays_that_are_numbers_alone() -> None:
    size = hvd.size()
    for kind in (np.matrix, WithMethods):
        array = np.ones((size, 2)).view(kind)
        strided = np.ones((size, 4)).view(kind)[:, ::2]
        for given in (array, strided, array.astype(">f8")):
            results = [
                hvd.allreduce(given, op=hvd.Sum),
                hvd.allreduce(given, op=hvd.Sum, compression=hvd.Compression.fp16),
                hvd.allgather(given),
                hvd.broadcast(given, 0),
                hvd.alltoall(given),
                hvd.alltoall(given, [1] * size)[0],
                hvd.reducescatter(given),
                *hvd.grouped_allreduce([given, np.ones(2)])[:1],
            ]
            assert all(type(one) is kind for one in results), [type(one) for one in results]
            np.testing.assert_array_equal(np.asarray(results[0]), np.full((size, 2), float(size)))
        assert type(hvd.allreduce_(array)) is kind
    assert type(hvd.grouped_allreduce([np.ones(2), np.ones((1, 1)).view(np.matrix)])[0]) is np.ndarray


def check_what_is_refused_here_leaves_the_others_unharmed() -> None:
    constant = mine((3,), np.float32)
    constant.flags.writeable = False
    with raises(ValueError, "read-only"):
        hvd.allreduce_(constant, name="refused")
    with raises(ValueError, "'allreduce.refused'", "dtype object"):
        hvd.allreduce_(np.array([None, 1]), name="refused")
    with raises(ValueError, "average"):
        hvd.allreduce(constant, average=True, op=hvd.Sum, name="refused")
    with raises(NotImplementedError, "Average"):
        hvd.allreduce(constant, op=hvd.Adasum, name="refused")
    masked = np.ma.array([1.0, 1e30], mask=[False, True])
    forms: tuple[Callable[[Any], object], ...] = (
        hvd.allreduce,
        hvd.allreduce_,
        hvd.allgather,
        lambda array: hvd.broadcast_(array, 0),
        lambda array: hvd.grouped_allreduce([constant, array]),
    )
    for form in forms:
        with raises(ValueError, "a masked array", "filled()"):
            form(masked)
        with raises(ValueError, "InUnits", "more than its numbers", "numpy.asarray()"):
            form(InUnits([1.0, 2.0], "km" if hvd.rank() else "m"))
    array = mine((3,), np.float64)
    handle = hvd.allreduce_async_(array, name="resize")
    with raises(ValueError, "resize"):
        array.resize((10,), refcheck=False)
    handle.wait()


def check_grouped() -> None:
    arrays = [mine((n,), dtype) for n, dtype in ((3, np.float32), (1, np.int64), (4, np.float32))]
    results = hvd.grouped_allreduce(arrays, op=hvd.Sum, name="grouped")
    for array, result in zip(arrays, results, strict=True):
        np.testing.assert_array_equal(result, everyone(array.shape, array.dtype).sum(axis=0))
    assert hvd.grouped_allreduce_(arrays, op=hvd.Sum)[1] is arrays[1]
    np.testing.assert_array_equal(arrays[2], results[2])
    gathered = hvd.grouped_allgather([mine((2, 2), np.int8), mine((1,), np.float64)])
    for found, (shape, dtype) in zip(gathered, (((2, 2), np.int8), ((1,), np.float64)), strict=True):
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, np.concatenate(list(everyone(shape, dtype))))
    assert hvd.grouped_allreduce([]) == []


def check_allgather_with_different_first_dimensions() -> None:
    for dtype in INTEGERS + FLOATS:
        rows = mine((hvd.rank() + 1, 3), dtype)
        expected = np.concatenate([mine((rank + 1, 3), dtype, rank) for rank in range(hvd.size())])
        np.testing.assert_array_equal(hvd.allgather(rows), expected)
    nothing_here = mine((0 if hvd.rank() == 0 else 2, 2), np.float32)
    of_others = [mine((0 if rank == 0 else 2, 2), np.float32, rank) for rank in range(hvd.size())]
    np.testing.assert_array_equal(hvd.allgather(nothing_here), np.concatenate(of_others))


def check_broadcast() -> None:
    for root in range(hvd.size()):
        for dtype in INTEGERS + FLOATS:
            result = hvd.broadcast(mine((3, 5), dtype), root, name=f"from{root}")
            np.testing.assert_array_equal(result, mine((3, 5), dtype, root))


def check_compression() -> None:
    array = mine((5,), np.float64)
    result = hvd.allreduce(array, op=hvd.Sum, compression=hvd.Compression.fp16)
    assert result.dtype == np.float64
    np.testing.assert_array_equal(result, everyone((5,), np.float64).sum(axis=0))
    # Digits that half precision cannot hold must be lost. Otherwise nothing was compressed.
    fine = np.full(3, 1 + 2**-12)
    assert hvd.allreduce(fine, op=hvd.Max, compression=hvd.Compression.fp16).tolist() == [1.0] * 3


def check_many_at_once_in_another_order() -> None:
    names = [f"tensor{index}" for index in range(200)]
    order = names[hvd.rank() :] + names[: hvd.rank()]
    handles = {name: hvd.allreduce_async(np.full(3, int(name[6:]), np.int64), op=hvd.Sum, name=name) for name in order}
    for name in reversed(names):
        assert (hvd.synchronize(handles[name]) == int(name[6:]) * hvd.size()).all()


def check_forgotten_handles_free_nothing_too_early() -> None:
    array = np.full(100, 1.0)
    memory = weakref.ref(array)
    if hvd.rank() == 0:
        hvd.allreduce_async_(array, name="forgotten")
        del array
        gc.collect()
        assert hvd.size() == 1 or memory() is not None  # the others have not submitted it yet
    hvd.barrier()
    if hvd.rank() > 0:
        hvd.allreduce_(array, name="forgotten")
        del array
    # In the second round, all operations forgotten in the first are complete, and distrun frees their memory.
    for _ in range(2):
        for index in range(2000):
            hvd.allreduce_async_(np.full(100, float(index)), name=f"forgotten{index}")
        gc.collect()
        hvd.barrier()
    assert memory() is None


def check_broadcast_parameters() -> None:
    params = {"b": mine((2,), np.float32), "a": mine((3,), np.int64)}
    hvd.broadcast_parameters(params, root_rank=hvd.size() - 1)
    np.testing.assert_array_equal(params["a"], mine((3,), np.int64, hvd.size() - 1))
    with raises(ValueError, "broadcast_object"):
        hvd.broadcast_parameters({"lr": 0.1}, root_rank=0)


def check_more_shapes_at_once_than_are_kept() -> None:
    """The shape of each operation must live until the runtime has read it."""
    params = [np.full(length, float(hvd.rank())) for length in range(1, 6001)]
    hvd.broadcast_parameters(params, root_rank=hvd.size() - 1)
    assert all((one == hvd.size() - 1).all() for one in params)


def check_repeated_names_with_changing_shapes() -> None:
    for step in range(20):
        shape = (3,) if step % 3 else (2, 2)
        result = hvd.allreduce(mine(shape, np.float32), op=hvd.Sum, name="changing")
        np.testing.assert_array_equal(result, everyone(shape, np.float32).sum(axis=0))


def check_more_rows_than_int32_counts() -> None:
    """alltoall returns these numbers of rows. At that time the data have moved, so this must not fail."""
    for rows, dtype in (((3, 2**31 - 1), np.int32), ((3, 2**31), np.int64)):
        counts = collective.adapter.integers(rows)
        assert counts.dtype == dtype and counts.tolist() == list(rows)


def check_what_the_c_structs_would_cut_is_refused() -> None:
    """The structs would read 2**32 + 1 as rank 1, 2**64 + 1 rows as one row, and 'n' as the whole name."""
    for root in (1 << 32, (1 << 32) + 1, -(1 << 32), 10**30):
        with raises(ValueError, f"the root of 'broadcast.far' must be a rank of the job, not {root}"):
            hvd.broadcast(np.ones(2), root, name="far")
        with raises(ValueError, "root_rank must be", f"not {root}"):
            hvd.broadcast_object("text", root)
    with raises(ValueError, "rows below 2^63", str((1 << 64) + 1)):
        hvd.alltoall(np.ones(hvd.size()), [(1 << 64) + 1] + [1] * (hvd.size() - 1))
    with raises(ValueError, r"name must not contain a NUL character: 'n\x00x'"):
        hvd.allreduce(np.ones(2), name="n\0x")
    assert hvd.broadcast(np.full(2, hvd.rank()), hvd.size() - 1, name="far").tolist() == [hvd.size() - 1] * 2


if __name__ == "__main__":
    run(globals())
