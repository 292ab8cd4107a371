"""Several passes for each step in distrun.keras (backward_passes_per_step), on Keras 3 and legacy Keras. Also the other
methods of Horovod's optimizer, and both kinds of optimizers of legacy Keras."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from checks import raises, run
from keras_fit import BATCH, ROWS, alone, data, distributed, fit, mine, model, same, start, trained_embedding

import distrun.keras as hvd
from distrun.keras._keras import LEGACY, OPTIMIZER, keras

PASSES = {"backward_passes_per_step": 2, "average_aggregated_gradients": True}
# Modules with optimizers. Legacy Keras has two kinds.
KINDS = [keras.optimizers, keras.optimizers.legacy] if LEGACY else [keras.optimizers]
ON_TENSORFLOW = keras.backend.backend() == "tensorflow"
Make = Callable[[], Any]


def falling() -> Any:
    return keras.optimizers.schedules.ExponentialDecay(0.05, 1, 0.8)


def makers(kind: Any) -> list[Make]:
    """Adam depends on the number of steps, and not of passes. So do schedules, but those of Keras 3 count passes."""
    of_steps = [lambda: kind.SGD(falling())] if LEGACY else []
    return [lambda: kind.SGD(0.05, momentum=0.9), lambda: kind.Adam(0.01, clipnorm=0.5), *of_steps]


def check_the_average_of_passes_is_one_process() -> None:
    for kind in KINDS:
        for make in makers(kind):
            made, single = distributed(make(), **PASSES), alone(make())
            same(made, single)
            assert int(made.optimizer.iterations) == int(single.optimizer.iterations) == 3 * ROWS // BATCH


def check_the_sum_of_passes_is_one_process() -> None:
    for kind in KINDS:
        single = alone(kind.SGD(0.05, momentum=0.9))
        same(distributed(kind.SGD(0.025, momentum=0.9), backward_passes_per_step=2), single)
        summed = distributed(kind.SGD(0.025 / hvd.size(), momentum=0.9), backward_passes_per_step=2, op=hvd.Sum)
        same(summed, single)


def check_both_kinds_of_optimizers_are_one_process() -> None:
    for kind in KINDS:
        for make in makers(kind):
            same(distributed(make()), alone(make()))
    for kind in KINDS[1:]:
        same(distributed(kind.SGD(lambda: 0.05)), alone(kind.SGD(0.05)))
        assert type(hvd.DistributedOptimizer(kind.SGD(falling())).learning_rate) is type(falling())
        same(distributed(kind.SGD(0.05), compression=hvd.Compression.bf16), alone(kind.SGD(0.05)), 0.05)


def check_every_optimizer_of_legacy_keras() -> None:
    """Each is created anew from its configuration, and makes its steps inside a condition."""
    for kind in KINDS if LEGACY else ():
        classes = [one for one in vars(kind).values() if isinstance(one, type) and issubclass(one, OPTIMIZER)]
        # The Nadam of keras.optimizers trains in another way if it was built before fit(), also in one process.
        unlike = {"Nadam"} if kind is keras.optimizers else set()
        names = sorted({one.__name__ for one in classes} - {"Optimizer", "OptimizerV2"} - unlike)
        assert len(names) >= 8, names
        for name in names:
            single = alone(getattr(kind, name)(0.01))
            same(distributed(getattr(kind, name)(0.01), **PASSES), single)


def shares() -> list[tuple[Any, Any]]:
    """The batches of this rank's passes."""
    size = BATCH // hvd.size() // 2
    images, labels = mine()
    return [(images[at : at + size], labels[at : at + size]) for at in range(0, len(images), size)]


def gradients_of(made: Any, tape: Any, batch: tuple[Any, Any]) -> list[Any]:
    import tensorflow as tf

    with tape:
        loss = tf.reduce_mean((made(batch[0]) - batch[1]) ** 2)
    return list(tape.gradient(loss, made.trainable_variables))


def looped(optimizer: Any, compiled: bool, computes: bool = False, clip: bool = False) -> Any:
    """A program's own loop with the optimizer's apply_gradients()."""
    import tensorflow as tf

    made = model(0)

    def step(images: Any, labels: Any) -> None:
        tape = tf.GradientTape()
        if computes:
            with tape:
                loss = tf.reduce_mean((made(images) - labels) ** 2)
            pairs = optimizer._compute_gradients(loss, made.trainable_variables, tape=tape)
            for gradient, _ in pairs if not compiled else ():
                assert np.array_equal(hvd.broadcast(gradient, 0), gradient)
        else:
            pairs = zip(gradients_of(made, tape, (images, labels)), made.trainable_variables, strict=True)
        if clip:
            pairs = [(gradient * 1.0, variable) for gradient, variable in pairs]
        optimizer.apply_gradients(pairs)

    run_step = tf.function(step) if compiled else step
    for _ in range(3):
        for images, labels in shares():
            run_step(tf.constant(images), tf.constant(labels))
    return made


def check_loops_of_the_program() -> None:
    if not ON_TENSORFLOW:
        return
    for kind in KINDS:
        single = alone(kind.Adam(0.01))
        for compiled in (False, True):
            same(looped(hvd.DistributedOptimizer(kind.Adam(0.01), **PASSES), compiled), single)


def check_computed_gradients_are_reduced_once() -> None:
    """Horovod's _compute_gradients(). A program may change what it returns. The sum would show a second reduction."""
    if not LEGACY:
        return
    for kind in KINDS:
        single = alone(kind.SGD(0.05))
        for compiled in (False, True):
            for clip in (False, True):
                optimizer = hvd.DistributedOptimizer(
                    kind.SGD(0.025 / hvd.size()), op=hvd.Sum, backward_passes_per_step=2
                )
                same(looped(optimizer, compiled, True, clip), single)
        # Then the same optimizer reduces the gradients of others again.
        import tensorflow as tf

        variable, own = tf.Variable([0.0]), tf.constant([float(hvd.rank())])
        optimizer = hvd.DistributedOptimizer(kind.SGD(1.0), op=hvd.Sum)
        with tf.GradientTape() as tape:
            loss = variable * own
        optimizer.apply_gradients(optimizer._compute_gradients(loss, [variable], own, tape))
        total = sum(rank * rank for rank in range(hvd.size()))
        for _ in range(2):
            optimizer.apply_gradients([(own, variable)])
            total += sum(range(hvd.size()))
            assert float(variable[0]) == -total
        with tf.GradientTape() as tape:
            loss = variable * own
        optimizer.minimize(loss, [variable], tape=tape)
        assert float(variable[0]) == -total - sum(range(hvd.size()))


def check_gradients_that_the_program_has_reduced() -> None:
    """As for Keras's own strategies, an argument says that the gradients need no reduction."""
    if not LEGACY:
        return
    import tensorflow as tf

    for kind, off in zip(
        KINDS, ({"skip_gradients_aggregation": True}, {"experimental_aggregate_gradients": False}), strict=True
    ):
        for passes in (1, 2):
            variable = tf.Variable([0.0])
            optimizer = hvd.DistributedOptimizer(kind.SGD(1.0), op=hvd.Sum, backward_passes_per_step=passes)
            for _ in range(passes):
                optimizer.apply_gradients([(tf.constant([1.0]), variable)], **off)
            assert float(variable[0]) == -passes


def check_an_optimizer_class_of_the_program() -> None:
    """As in Horovod's own tests: it has no learning rate, and adds gradients to variables. By distrun.tensorflow."""
    if not LEGACY:
        return
    import tensorflow as tf

    import distrun.tensorflow

    class Adding(keras.optimizers.legacy.Optimizer):
        def _resource_apply_dense(self, grad: Any, var: Any, apply_state: Any = None) -> Any:
            return var.assign_add(grad)

        def get_config(self) -> dict[str, Any]:
            return dict(super().get_config())

    made = distrun.tensorflow.DistributedOptimizer(Adding("adding"), backward_passes_per_step=4)
    gradient, variable = tf.constant([float(hvd.rank())]), tf.Variable([0.0])

    @tf.function  # type: ignore[untyped-decorator]
    def apply() -> None:
        made.apply_gradients([(gradient, variable)])

    mean = sum(range(hvd.size())) / hvd.size()
    for passes in range(1, 10):
        apply()
        assert float(variable[0]) == passes // 4 * 4 * mean and int(made.iterations) == passes // 4


def check_rows_of_a_table_in_passes() -> None:
    """tf.IndexedSlices of several passes are added up."""
    for kind in KINDS:
        single = trained_embedding(data(), kind.SGD(0.5), BATCH)
        optimizer = hvd.DistributedOptimizer(kind.SGD(0.5), **PASSES)
        same(trained_embedding(mine(), optimizer, BATCH // hvd.size() // 2), single)


def check_variables_without_gradients_and_other_variables() -> None:
    """Each list of variables has its own passes, for example after layers were frozen."""
    if not LEGACY:
        return
    import tensorflow as tf

    for kind in KINDS:
        one, other, unused = (tf.Variable([0.0]) for _ in range(3))
        optimizer = hvd.DistributedOptimizer(kind.SGD(1.0, momentum=0.5), op=hvd.Sum, backward_passes_per_step=2)
        if kind is keras.optimizers:
            optimizer.build([one, other, unused])
        gradient = tf.constant([1.0 / hvd.size()])
        optimizer.apply_gradients([(gradient, one), (gradient, other), (None, unused)])
        for _ in range(2):
            optimizer.apply_gradients([(gradient, one)])
        assert [float(each[0]) for each in (one, other, unused)] == [-2.0, 0.0, 0.0]
        optimizer.apply_gradients([(gradient, one), (gradient, other), (None, unused)])
        assert [float(each[0]) for each in (one, other, unused)] == [-5.0, -2.0, 0.0]


def check_the_broadcast_sends_passes_without_a_step() -> None:
    if not LEGACY:
        return
    import tensorflow as tf

    root = hvd.size() - 1
    for kind in KINDS:
        made = model(0)
        made.compile(optimizer=hvd.DistributedOptimizer(kind.Adam(0.01), **PASSES), loss="mse")
        if hvd.rank() == root:  # this rank has made one step and one pass more
            for _ in range(3):
                ones = [tf.ones_like(one) for one in made.trainable_variables]
                pairs = zip(ones, made.trainable_variables, strict=True)
                off = "skip_gradients_aggregation" if kind is keras.optimizers else "experimental_aggregate_gradients"
                made.optimizer.apply_gradients(pairs, **{off: kind is keras.optimizers})
        hvd.broadcast_model(made, root)
        assert int(made.optimizer.iterations) == 1
        passes, *sums = made.optimizer.distrun_passes.sums(made.trainable_variables).variables()
        assert int(passes) == 1 and all(np.all(one.numpy() == 1.0) for one in sums)
        fit(made, *mine(), BATCH // hvd.size() // 2, [start()], epochs=1)
        weights = np.concatenate([one.ravel() for one in made.get_weights()])
        assert np.array_equal(hvd.broadcast(weights, 0), weights)
        assert int(made.optimizer.iterations) == 1 + ROWS // BATCH


def check_files_of_both_kinds() -> None:
    """They have the names of Keras's classes, and load_model continues."""
    if not LEGACY:
        return
    for kind in KINDS:
        made = distributed(kind.Adam(0.01), **PASSES)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model.h5"
            made.save(file)
            plain = keras.saving.load_model(file).optimizer
            again = hvd.load_model(file, average_aggregated_gradients=True, backward_passes_per_step=2)
            made.save(Path(folder) / "model.keras")
            assert type(keras.saving.load_model(Path(folder) / "model.keras").optimizer) is kind.Adam
        assert type(plain) is kind.Adam and isinstance(again.optimizer, kind.Adam)
        assert int(plain.iterations) == int(again.optimizer.iterations) == int(made.optimizer.iterations) > 0
        for one in (made, again):
            fit(one, *mine(), BATCH // hvd.size() // 2, [start()], epochs=1)
        same(made, again)


def check_checkpoints_of_tensorflow() -> None:
    """As without passes: a checkpoint has the momenta and the steps."""
    if not LEGACY:
        return
    import tensorflow as tf

    for kind in KINDS:
        made = distributed(kind.Adam(0.01), **PASSES)
        other = model(1)
        other.compile(optimizer=hvd.DistributedOptimizer(kind.Adam(0.01), **PASSES), loss="mse")
        with tempfile.TemporaryDirectory() as folder:
            path = tf.train.Checkpoint(model=made, optimizer=made.optimizer).save(f"{folder}/checkpoint")
            restored = tf.train.Checkpoint(model=other, optimizer=other.optimizer).restore(path)
            hvd.broadcast_model(other)
            restored.assert_existing_objects_matched()
        assert int(other.optimizer.iterations) == int(made.optimizer.iterations) > 0
        for one in (made, other):
            fit(one, *mine(), BATCH // hvd.size() // 2, epochs=1)
        same(made, other)


def check_learning_rates_of_both_kinds() -> None:
    """The rate changes with every batch, that is with every pass."""
    for kind in KINDS:
        made = model(hvd.rank())
        made.compile(optimizer=hvd.DistributedOptimizer(kind.SGD(0.4), **PASSES), loss="mse")
        warmup = hvd.callbacks.LearningRateWarmupCallback(0.4, warmup_epochs=1)
        later = hvd.callbacks.LearningRateScheduleCallback(0.4, 0.1, start_epoch=2)
        logs = fit(made, *mine(), BATCH // hvd.size() // 2, [start(), warmup, later]).history
        np.testing.assert_allclose(logs["lr"], [0.4, 0.4, 0.04], rtol=1e-5)
        made.compile(optimizer=hvd.DistributedOptimizer(kind.SGD(falling())), loss="mse")
        with raises(TypeError, "an optimizer whose learning rate is a number"):
            fit(made, *mine(), BATCH // hvd.size(), [later])


def check_the_rate_of_rank_0_counts() -> None:
    for kind in KINDS:
        made = model(0)
        made.compile(optimizer=hvd.DistributedOptimizer(kind.SGD(0.1)), loss="mse")
        made.optimizer.learning_rate = 0.25 if hvd.rank() == 0 else 0.5
        hvd.broadcast_model(made)
        assert abs(float(made.optimizer.learning_rate) - 0.25) < 1e-6


def check_a_scaled_loss_in_passes() -> None:
    """In mixed_float16, an overflow of one rank leaves its pass out on all ranks."""
    if not LEGACY:
        return
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        for kind in KINDS:
            scaled = keras.mixed_precision.LossScaleOptimizer(kind.SGD(0.01), initial_scale=8.0)
            for given in (kind.SGD(0.01), scaled):
                made = model(0)
                made.compile(optimizer=hvd.DistributedOptimizer(given, **PASSES), loss="mse")
                images, labels = mine()
                part = BATCH // hvd.size() // 2
                if hvd.rank() == 0:
                    labels[part : 2 * part] = np.inf
                before = made.get_weights()
                fit(made, images, labels, part, [start()], epochs=1)
                weights = np.concatenate([one.ravel() for one in made.get_weights()])
                assert np.isfinite(weights).all() and not np.array_equal(made.get_weights()[0], before[0])
                assert np.array_equal(hvd.broadcast(weights, 0), weights)
    finally:
        keras.mixed_precision.set_global_policy("float32")


def check_local_layers_of_both_kinds() -> None:
    for kind in KINDS:
        for options in ({}, PASSES):
            made = model(0)
            local = made.layers[-1]
            optimizer = hvd.PartialDistributedOptimizer(kind.SGD(0.05), local_layers=local, **options)
            made.compile(optimizer=optimizer, loss="mse")
            fit(made, *mine(), BATCH // hvd.size() // 2)
            kernels = [made.layers[0].get_weights()[0], local.get_weights()[0]]
            equal = [np.array_equal(hvd.broadcast(one, 0), one) for one in kernels]
            assert equal[1] == (hvd.rank() == 0), equal


if __name__ == "__main__":
    hvd.init()
    run(globals())
