"""Special gradients in distrun.keras: those of local layers, and values that are not gradients but new values of their
variables, as for float8."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
from checks import raises, run
from keras_fit import BATCH, data, fit, mine, same, trained_embedding

import distrun.keras as hvd
from distrun._abi import ReduceOp
from distrun.keras._backends import Reduction, path_of
from distrun.keras._keras import LEGACY, keras


def one_step(made: Any, rows: tuple[Any, Any], optimizer: Any) -> None:
    made.compile(optimizer=optimizer, loss="mse")
    fit(made, *rows, len(rows[0]), epochs=1)


def check_ranks_with_other_numbers_of_local_layers() -> None:
    """The local layers are in front of the shared layers and have the same shape."""

    def common() -> list[Any]:
        drawn = [keras.initializers.GlorotUniform(seed=seed) for seed in (1, 2)]
        return [keras.layers.Dense(size, kernel_initializer=one) for size, one in zip((6, 1), drawn, strict=True)]

    def after_one_step(own: list[Any], rows: tuple[Any, Any], optimizer: Any) -> list[Any]:
        shared = common()
        one_step(keras.Sequential([keras.Input((6,)), *own, *shared]), rows, optimizer)
        return [weight for layer in shared for weight in layer.get_weights()]

    single = after_one_step([], tuple(part[:BATCH] for part in data()), keras.optimizers.SGD(0.05))
    share = tuple(part[: BATCH // hvd.size()] for part in mine())
    for registered in (False, True):
        local = [keras.layers.Dense(6, kernel_initializer="identity") for _ in range(hvd.rank() + 1)]
        for layer in local:
            layer.build((None, 6))
        sgd = keras.optimizers.SGD(0.05)
        optimizer = hvd.PartialDistributedOptimizer(sgd, local_layers=[] if registered else local)
        for variable in [one for layer in local for one in layer.trainable_variables] if registered else []:
            optimizer.register_local_var(variable)
        for found, wanted in zip(after_one_step(local, share, optimizer), single, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
        assert all(np.abs(layer.get_weights()[0] - np.eye(6)).max() > 1e-6 for layer in local)


def check_values_of_variables_are_the_largest_of_the_ranks() -> None:
    """No option for gradients changes them. A rank keeps the values of its local layers."""
    if LEGACY:
        return
    value, kept, weight = (keras.Variable([1.0, 2.0]) for _ in range(3))
    value.overwrite_with_gradient = kept.overwrite_with_gradient = True
    given = [keras.ops.convert_to_tensor([100_000.0 * (hvd.rank() + 1), -1.0 - hvd.rank()]) for _ in range(2)]
    given.append(keras.ops.convert_to_tensor([1.0 + 2.0**-12 * (hvd.size() > 1), 2.0]))  # 1.0 in float16
    reduction = Reduction("fp16", ReduceOp.SUM, prescale=0.5, postscale=4.0, local={id(kept): kept})
    found = [keras.ops.convert_to_numpy(one) for one in reduction.reduce(given, [value, kept, weight])]
    assert found[0].tolist() == [100_000.0 * hvd.size(), -1.0]
    assert found[1].tolist() == keras.ops.convert_to_numpy(given[1]).tolist()
    assert found[2].tolist() == [2.0 * hvd.size(), 4.0 * hvd.size()]


def check_float8() -> None:
    """After several passes and steps, the scales and the largest values are those of one process."""
    if LEGACY:
        return

    def trained(rows: tuple[Any, Any], batch: int, wrap: Any) -> list[Any]:
        keras.utils.set_random_seed(0)
        made = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)])
        made.quantize("float8")
        made.compile(optimizer=wrap(keras.optimizers.SGD(0.05)), loss="mse")
        fit(made, *rows, batch)
        # For gradients of outputs, the values are larger if the loss is the mean of fewer rows.
        kinds = ("inputs_scale", "inputs_amax_history")
        return [one.numpy() if hasattr(one, "numpy") else np.array(one) for one in made.variables if one.name in kinds]

    single = trained(data(), BATCH, lambda optimizer: optimizer)

    def distributed(optimizer: Any) -> Any:
        return hvd.DistributedOptimizer(optimizer, backward_passes_per_step=2)

    found = trained(mine(), BATCH // hvd.size() // 2, distributed)
    assert len(found) == 4 and all(np.isfinite(one).all() and one.max() < 100 for one in found)
    for one in found:
        assert np.array_equal(hvd.broadcast(one, 0), one)
    assert np.isclose(found[0], single[0]), (found[0], single[0])


def check_local_variables_are_held() -> None:
    """distrun knows local variables by address, so a later variable must not get the same address."""
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05))

    def one_given() -> tuple[Any, Any]:
        variable = local_layer().trainable_variables[0]
        return weakref.ref(variable), hvd.callbacks.BroadcastGlobalVariablesCallback(0, "", [variable])

    def one_registered(by: Any) -> tuple[Any, Any]:
        variable = local_layer().trainable_variables[0]
        by.register_local_var(variable)
        return weakref.ref(variable), by

    seen = [one_given(), one_registered(hvd.callbacks.BroadcastGlobalVariablesCallback(0)), one_registered(optimizer)]
    gc.collect()
    assert [reference() is not None for reference, _ in seen] == [True] * 3


def local_layer() -> Any:
    made = keras.layers.Dense(2, use_bias=False)
    made.build((None, 1))
    return made


def check_gradients_go_by_what_people_know_variables_by() -> None:
    layers = [keras.Input((3, 2)), keras.layers.LSTM(1), keras.layers.BatchNormalization()]
    paths = [path_of(one).partition(":")[0] for one in keras.Sequential(layers).variables]
    assert {"lstm_cell/kernel", "lstm_cell/recurrent_kernel", "lstm_cell/bias"} <= set(paths), paths
    assert {"batch_normalization/moving_mean", "batch_normalization/moving_variance"} <= set(paths), paths


def check_gradients_in_a_process_set() -> None:
    """Only its members reduce. The rank between them has no part in it."""
    if LEGACY or hvd.size() < 3:
        return
    ours = hvd.add_process_set([0, 2])
    shared, local = keras.Variable([1.0, 2.0]), keras.Variable([1.0])
    value = keras.Variable([1.0])
    value.overwrite_with_gradient = True
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05), process_set=ours)
    optimizer.register_local_var(local)
    numbers = ([1.0 + hvd.rank(), 2.0], [6.0], [1.0 + hvd.rank()])
    given = [keras.ops.convert_to_tensor(one) for one in numbers]
    found = optimizer.distrun_reduction.reduce(given, [shared, local, value])
    found = [keras.ops.convert_to_numpy(one).tolist() for one in found]
    assert found == ([[2.0, 2.0], [3.0], [3.0]] if ours.included() else [[2.0, 2.0], [6.0], [2.0]]), found
    hvd.remove_process_set(ours)


def check_part_of_the_average_is_taken_before_the_sum() -> None:
    """The error on ranks with different factors shows the part that each takes."""
    if LEGACY or hvd.size() == 1:
        return
    factor = 2.0 if hvd.rank() == 0 else 4.0
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05), gradient_predivide_factor=factor)
    gradient = keras.ops.convert_to_tensor([1.0])
    with raises(hvd.Mismatch, "prescale factors differ", "0.5", "0.25"):
        optimizer.distrun_reduction.reduce([gradient], [keras.Variable([1.0])])


def check_rows_of_a_table() -> None:
    """tf.IndexedSlices travel as rows, or as dense tensors if the program asks for it."""
    if keras.backend.backend() != "tensorflow":
        return
    import tensorflow as tf

    ours = hvd.add_process_set([0, 2]) if hvd.size() > 2 else hvd.global_process_set
    alone = hvd.add_process_set([0]) if hvd.size() > 1 else hvd.global_process_set
    for members in dict.fromkeys((hvd.global_process_set, ours, alone)):
        if not members.included():
            continue
        size, theirs = members.size(), [float(rank + 1) for rank in members.ranks]
        table, places = tf.Variable(tf.zeros([size + 1, 1])), tf.constant([members.rank(), size])
        rows = tf.IndexedSlices(tf.fill([2, 1], hvd.rank() + 1.0), places, tf.shape(table))
        wanted = np.array([*theirs, sum(theirs)])[:, None] * 2
        for as_dense in (False, True):
            for op, divisor in ((ReduceOp.AVERAGE, size), (ReduceOp.SUM, 1)):
                reduction = Reduction(op=op, prescale=0.5, postscale=4.0, sparse_as_dense=as_dense, process_set=members)
                [found] = reduction.reduce([rows], [table])
                assert isinstance(found, tf.IndexedSlices) != as_dense
                np.testing.assert_allclose(tf.convert_to_tensor(found), wanted / divisor, rtol=1e-6)
        if size > 1:
            rows = tf.IndexedSlices(tf.fill([2, 1], 1.003), places, tf.shape(table))  # 1.003 becomes 1.0 in bfloat16
            [found] = Reduction(op=ReduceOp.SUM, compression="bf16", process_set=members).reduce([rows], [table])
            assert found.values.dtype == tf.float32
            np.testing.assert_array_equal(found.values, np.ones([2 * size, 1]))
    for members in (ours, alone):
        if members is not hvd.global_process_set:
            hvd.remove_process_set(members)


def check_an_embedding() -> None:
    """It learns as in one process."""
    single = trained_embedding(data(), keras.optimizers.SGD(0.5), BATCH)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.5))
    same(trained_embedding(mine(), optimizer, BATCH // hvd.size()), single)


if __name__ == "__main__":
    hvd.init()
    run(globals())
