"""Operations that only move data work for every dtype. Also lists without a tensor. Part of tf_ops.py."""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf
from tf_every_operation import raises

import distrun.tensorflow as hvd


def check_dtype(dtype) -> None:  # type: ignore[no-untyped-def]
    rank, size = hvd.rank(), hvd.size()
    everyone = np.array([other + 1 for other in range(size)], np.float32).astype(dtype.as_numpy_dtype)
    if dtype.is_integer:
        everyone = dtype.as_numpy_dtype(dtype.max) - everyone
    mine, repeated = (tf.constant(np.repeat(everyone[rank], count)) for count in (1, size))
    for wrap in (lambda f: f, tf.function):
        for found in (
            wrap(lambda: hvd.allgather(mine))(),
            wrap(lambda: hvd.grouped_allgather([mine, tf.ones([1])])[0])(),
            wrap(lambda: hvd.alltoall(repeated))(),
            wrap(lambda: hvd.alltoall(repeated, [1] * size)[0])(),
        ):
            assert found.dtype == dtype and found.numpy().tobytes() == everyone.tobytes(), dtype
        assert wrap(lambda: hvd.broadcast(mine, size - 1))().numpy().tobytes() == everyone[-1:].tobytes()
    variable = tf.Variable(mine)
    hvd.broadcast_variables([variable, tf.Variable(1.0)], size - 1)
    assert variable.numpy().tobytes() == everyone[-1:].tobytes()


def check_complex_numbers() -> None:
    values, size = tf.constant([1 + 2j, 3 - 1j], tf.complex64), hvd.size()
    mine, whole = values * (hvd.rank() + 1), sum(range(1, size + 1))
    for wrap in (lambda f: f, tf.function):
        for op, expected in ((hvd.Sum, values * whole), (hvd.Average, values * whole / size)):
            np.testing.assert_allclose(wrap(lambda op=op: hvd.allreduce(mine, op=op))(), expected, rtol=1e-6)
        product = wrap(lambda: hvd.allreduce(values, op=hvd.Product))()
        np.testing.assert_allclose(product, values.numpy() ** size, rtol=1e-5)
        for name, tensor, text in (
            ("spectrum", values, "no order"),
            ("narrow", tf.cast([1.0], tf.dtypes.experimental.float8_e5m2), "can be moved"),
        ):
            call = wrap(functools.partial(hvd.allreduce, op=hvd.Max, name=name))
            error = raises(tf.errors.InvalidArgumentError, text, functools.partial(call, tensor))
            assert f"allreduce.{name}" in str(error)
    tape = tf.GradientTape()
    with tape:
        tape.watch(values)
        loss = tf.reduce_sum(tf.abs(hvd.allreduce(values, op=hvd.Sum)) ** 2)
    np.testing.assert_allclose(tape.gradient(loss, values), 2 * values * size * size, rtol=1e-5)


def check_seeds() -> None:
    """Each rank derives its own seed from the root's; the root keeps its own. All get the root's number of drawn
    values."""
    rank, root = hvd.rank(), hvd.size() - 1
    dropout = tf.keras.layers.Dropout(0.5, seed=7)
    generators = [tf.random.Generator.from_seed(7), tf.random.Generator.from_seed(7, alg="threefry")]
    generators[0].skip(3 + rank)  # CPUs support only the first algorithm
    states = [*dropout.variables, *(one.state for one in generators)]
    roots = hvd.broadcast_object([state.numpy().tolist() for state in states], root)
    keys = [0, -1, -1][-len(states) :]  # Keras 2's layer has no such state
    wraps = (lambda f: f, tf.function)
    for wrap in wraps:
        wrap(lambda: hvd.broadcast_(states, root, name="seeds"))()
        hvd.broadcast_variables(states, root)
        for state, expected, key in zip(states, roots, keys, strict=True):
            found = state.numpy().tolist()
            seeds = hvd.allgather_object(found[key])
            assert len(set(seeds)) == hvd.size() and seeds[root] == expected[key], (seeds, expected)
            found[key] = expected[key]
            assert found == expected, (found, expected)
    drawn = hvd.allgather(tf.reshape(generators[0].uniform([4]), [1, 4])).numpy()
    assert len(np.unique(drawn, axis=0)) == hvd.size(), drawn


def what_only_moves() -> None:
    """Every dtype, and Keras's random seeds, which are unsigned integers."""
    rank, size = hvd.rank(), hvd.size()
    narrow = (tf.dtypes.experimental.float8_e4m3fn, tf.dtypes.experimental.float8_e5m2)
    for dtype in (tf.uint16, tf.uint32, tf.uint64, tf.complex64, tf.complex128, *narrow):
        check_dtype(dtype)
    check_complex_numbers()
    check_seeds()
    assert hvd.grouped_reducescatter([]) == hvd.grouped_allgather([]) == hvd.grouped_allreduce([]) == []
    try:
        hvd.alltoall(tf.ones([size * 2]), splits=tf.fill([size], 1.5))
        raise AssertionError("fractional splits were taken")
    except ValueError as error:
        assert "whole numbers" in str(error)
    for wrap in (lambda f: f, tf.function):  # empty splits mean equal shares, as in Horovod
        output, rows = wrap(lambda: hvd.alltoall(tf.range(size * 2) // 2, splits=[]))()
        assert output.numpy().tolist() == [rank] * (2 * size) and rows.numpy().tolist() == [2] * size
    slices = tf.IndexedSlices(tf.constant([[5], [-5]]), tf.constant([0, 1]), tf.constant([2, 1]))
    half = hvd.allreduce(slices, op=hvd.Sum, prescale_factor=0.5)
    assert half.dtype == tf.int32 and half.values.numpy().ravel().tolist() == [2, -2] * size
    mean = hvd.allreduce(slices)
    assert mean.dtype == tf.int32 and mean.values.numpy().ravel().tolist() == [5 // size, -(5 // size)] * size


def more_rows_than_sizes_can_say() -> None:
    """Rows without elements reach such a number without using memory."""
    many, for_each = tf.zeros([2**31, 0]), tf.zeros([2**31 * hvd.size(), 0])
    for name, function in (
        ("allgather.long", lambda: hvd.allgather(many, name="long")),
        ("alltoall.long", lambda: hvd.alltoall(for_each, name="long")),
    ):
        error = raises(hvd.InvalidArgument, f"'{name}': 2147483648 rows came from", function)
        assert error.usable and error.tensor == name
        raises(tf.errors.InvalidArgumentError, "int32 sizes of TensorFlow", tf.function(function))
    assert hvd.allgather(many[1:]).shape == [hvd.size() * (2**31 - 1), 0]
