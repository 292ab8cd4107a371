"""Layers that are local to a rank, beside layers that all ranks share, under the tapes. Part of tf_ops.py."""

from __future__ import annotations

import gc
import tempfile
import weakref

import numpy as np
import tensorflow as tf
from tf_every_operation import equal, raises

import distrun.tensorflow as hvd
from distrun.tensorflow.functions import variable_names


def partial_tape() -> None:
    """A layer local to this rank, beside one that all ranks share."""
    bias, mean = tf.Variable(tf.zeros([2])), (hvd.size() + 1) / 2
    with hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=[]) as part:
        loss = bias * (hvd.rank() + 1.0)
    equal(part.gradient(loss, bias), [mean] * 2)
    dense = tf.keras.layers.Dense(2)
    raises(ValueError, "Build it", hvd.PartialDistributedGradientTape, tf.GradientTape(), local_layers=dense)
    dense.build([None, 2])
    shared = tf.keras.layers.Dense(2)
    shared.build([None, 2])
    with hvd.PartialDistributedGradientTape(tf.GradientTape(persistent=True), local_layers=dense) as part:
        of_own, of_all = (tf.reduce_sum(layer(tf.ones([1, 2]) * (hvd.rank() + 1.0))) for layer in (dense, shared))
        loss = of_own * hvd.size() + of_all
    own, ours = part.gradient(loss, [dense.trainable_variables, shared.trainable_variables])
    for of_layer, factor in ((own, hvd.rank() + 1.0), (ours, mean)):
        equal(of_layer[0], np.full([2, 2], factor))
        equal(of_layer[1], [1.0] * 2)
    pairs = part.get_local_and_global_gradients(loss, [*dense.trainable_variables, *shared.trainable_variables])
    for found, layer, wanted in zip(pairs, (dense, shared), (own, ours), strict=True):
        for (source, gradient), variable, other in zip(found, layer.trainable_variables, wanted, strict=True):
            assert source is variable
            equal(gradient, other)


def the_scale_of_local_gradients() -> None:
    """Local gradients are divided by the number of ranks, unless the program turns this off. So are the rows of a
    table."""
    own, table = dense_layers(1)[0], tf.keras.layers.Embedding(3, 2)
    table.build([None])
    for options, shared_by in (({}, hvd.size()), ({"scale_local_gradients": False}, 1)):
        with hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=[own, table], **options) as tape:
            rows = tf.gather(table.trainable_variables[0], [0, 2])
            loss = tf.reduce_sum(own(tf.ones([1, 2]))) + tf.reduce_sum(rows)
        of_kernel, of_bias, of_table = tape.gradient(loss, [*own.trainable_variables, *table.trainable_variables])
        equal(of_kernel, np.ones([2, 2]) / shared_by)
        equal(of_bias, np.ones(2) / shared_by)
        assert isinstance(of_table, tf.IndexedSlices)
        equal(of_table.values, np.ones([2, 2]) / shared_by)


def they_are_held() -> None:
    """The tape holds its local variables. It knows them by address, and a later variable must not get the same
    address."""
    tape = hvd.DistributedGradientTape(tf.GradientTape())
    variable = tf.Variable(1.0)
    seen = weakref.ref(variable)
    tape.register_local_source(variable)
    del variable
    gc.collect()
    assert seen() is not None


def dense_layers(number: int) -> list[tf.keras.layers.Layer]:
    layers = [tf.keras.layers.Dense(2) for _ in range(number)]
    for layer in layers:
        layer.build([None, 2])
    return layers


def other_numbers_of_them() -> None:
    """A different number of local layers on each rank, before the shared layers. One example is local embedding
    tables."""
    own, shared = dense_layers(hvd.rank() + 1), dense_layers(2)
    variables = [one for layer in (*own, *shared) for one in layer.trainable_variables]
    factors = [1.0] * 2 * len(own) + [1.0, 2.0, 3.0, 4.0]
    wanted = [1.0 / hvd.size()] * 2 * len(own) + [factor * (hvd.size() + 1) / 2 for factor in factors[-4:]]

    def step(generic: bool):  # type: ignore[no-untyped-def]
        with hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=own) as tape:
            parts = [tf.reduce_sum(one) * factor for one, factor in zip(variables, factors, strict=True)]
            loss = tf.add_n(parts[:-4]) + tf.add_n(parts[-4:]) * (hvd.rank() + 1.0)
        return tape.gradient(loss, variables, use_generic_names=generic)

    for generic in (False, True):
        for wrap in (lambda f: f, tf.function):
            for found, factor in zip(wrap(step)(generic), wanted, strict=True):
                equal(found, np.full(found.shape, factor))


def values_of_variables() -> None:
    """For scales of float8, Keras passes new values in place of gradients. The result is the largest of all ranks'
    values."""
    scale, kept, weight = tf.Variable([1.0]), tf.Variable([1.0]), tf.Variable([1.0])
    scale.overwrite_with_gradient = kept.overwrite_with_gradient = True
    for op in (hvd.Average, hvd.Sum):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(scale + kept + weight) * (hvd.rank() + 1e5)
        tape = hvd.DistributedGradientTape(tape, op=op, compression=hvd.Compression.bf16)
        tape.register_local_source(kept)
        of_scale, of_kept, _ = tape.gradient(loss, [scale, kept, weight])
        assert float(of_scale[0]) == hvd.size() - 1 + 1e5 and float(of_kept[0]) == hvd.rank() + 1e5


def a_model_from_a_file() -> None:
    """One rank loads its model from a file. In Keras 3 its variables then have other paths than those of a new
    model."""
    model, optimizer = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)]), tf.keras.optimizers.Adam()
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model.keras")
        if hvd.rank() == 0:
            model = tf.keras.models.load_model(f"{folder}/model.keras")
    optimizer.build(model.trainable_variables)
    hvd.broadcast_variables([*model.variables, *optimizer.variables], 0)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(tf.ones([1, 2]))) * (hvd.rank() + 1.0)
    gradients = hvd.DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
    equal(gradients[1], [(hvd.size() + 1) / 2])


def names_of_variables() -> None:
    """Errors about gradients show these names to users."""
    model = tf.keras.Sequential([tf.keras.Input((3, 2)), tf.keras.layers.LSTM(1)])
    names = [name.rpartition("/")[2] for name in variable_names(model.trainable_variables)]
    assert names == ["kernel", "recurrent_kernel", "bias"], names


def local_layers() -> None:
    """Equal and different numbers of local layers; a model that one rank loads from a file; values that are not
    gradients."""
    names_of_variables()
    partial_tape()
    the_scale_of_local_gradients()
    they_are_held()
    other_numbers_of_them()
    a_model_from_a_file()
    values_of_variables()
