"""Operations that only move data work for every dtype. Also lists without a tensor. Part of tf_ops.py."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from tf_every_operation import raises

import distrun.tensorflow as hvd


def check_dtype(dtype) -> None:  # type: ignore[no-untyped-def]
    rank, size = hvd.rank(), hvd.size()
    largest = dtype.max
    mine, repeated = (tf.constant([largest - rank] * count, dtype) for count in (1, size))
    everyone = np.array([largest - other for other in range(size)], dtype.as_numpy_dtype)
    for wrap in (lambda f: f, tf.function):
        for found in (
            wrap(lambda: hvd.allgather(mine))(),
            wrap(lambda: hvd.grouped_allgather([mine, tf.ones([1])])[0])(),
            wrap(lambda: hvd.alltoall(repeated))(),
            wrap(lambda: hvd.alltoall(repeated, [1] * size)[0])(),
        ):
            assert found.dtype == dtype and (found.numpy() == everyone).all()
        assert (wrap(lambda: hvd.broadcast(mine, size - 1))().numpy() == everyone[-1:]).all()
    variable = tf.Variable(mine)
    hvd.broadcast_variables([variable, tf.Variable(1.0)], size - 1)
    assert (variable.numpy() == everyone[-1:]).all()


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
    """Unsigned integers for which the runtime has no dtype, among them Keras's random seeds."""
    rank, size = hvd.rank(), hvd.size()
    for dtype in (tf.uint16, tf.uint32, tf.uint64):
        check_dtype(dtype)
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
