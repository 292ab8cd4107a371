"""distrun.keras on the backend that KERAS_BACKEND names: fit() on several ranks gives the result of one process.

TF_USE_LEGACY_KERAS=1 selects legacy Keras, which has some checks for itself. The test names the others to run.
"""

from __future__ import annotations

import inspect
import shutil
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from checks import raises, run

import distrun.keras as hvd
import distrun.numpy as arrays
from distrun import _session
from distrun.keras._backends import Reduction
from distrun.keras._keras import LEGACY, keras

ROWS, BATCH = 48, 12  # on all ranks together


def data() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    images = rng.normal(size=(ROWS, 6)).astype("float32")
    return images, (images[:, :1] * 2 - images[:, 1:2] + 0.1 * rng.normal(size=(ROWS, 1))).astype("float32")


def mine() -> tuple[Any, Any]:
    """The share of this rank in every batch."""
    images, labels = data()
    part = BATCH // hvd.size()
    chosen = np.arange(ROWS).reshape(-1, BATCH)[:, hvd.rank() * part : (hvd.rank() + 1) * part].ravel()
    return images[chosen], labels[chosen]


def model(seed: int = 0) -> Any:
    keras.utils.set_random_seed(seed)
    layers = [keras.Input((6,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)]
    return keras.Sequential(layers)


def fit(made: Any, images: Any, labels: Any, batch: int, callbacks: Any = (), epochs: int = 3) -> Any:
    return made.fit(
        images, labels, batch_size=batch, epochs=epochs, shuffle=False, verbose=0, callbacks=list(callbacks)
    )


def start() -> Any:
    return hvd.callbacks.BroadcastGlobalVariablesCallback(0)


def distributed(optimizer: Any, **options: Any) -> Any:
    """A model that starts with rank 0's weights and is trained on this rank's shares."""
    made = model(hvd.rank())
    made.compile(optimizer=hvd.DistributedOptimizer(optimizer, **options), loss="mse")
    passes = options.get("backward_passes_per_step", 1)
    fit(made, *mine(), BATCH // hvd.size() // passes, [start()])
    return made


def alone(optimizer: Any) -> Any:
    made = model(0)
    made.compile(optimizer=optimizer, loss="mse")
    fit(made, *data(), BATCH)
    return made


def trained_embedding(rows: tuple[Any, Any], optimizer: Any, batch: int) -> Any:
    """A model with an embedding after one epoch. Its gradients are tf.IndexedSlices in TensorFlow."""
    keras.utils.set_random_seed(0)
    layers = [keras.Input((6,), dtype="int32"), keras.layers.Embedding(8, 2), keras.layers.Flatten()]
    made = keras.Sequential([*layers, keras.layers.Dense(1)])
    made.compile(optimizer=optimizer, loss="mse")
    fit(made, np.abs(rows[0] * 4).astype("int32") % 8, rows[1], batch, epochs=1)
    return made


def same(one: Any, other: Any, tolerance: float = 1e-5) -> None:
    for mine_, its in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(mine_, its, rtol=tolerance, atol=tolerance)


def check_equal_to_a_single_process() -> None:
    if hvd.rank() == 0:  # Keras then gives other names to the layers of this rank
        model(1)
    for make in (
        lambda: keras.optimizers.SGD(0.05, momentum=0.9),
        lambda: keras.optimizers.Adam(0.01),
        lambda: keras.optimizers.Adam(0.01, clipnorm=0.5),
        lambda: keras.optimizers.RMSprop(0.01, use_ema=True),
    ):
        same(distributed(make()), alone(make()))
    same(distributed(keras.optimizers.SGD(0.05), gradient_predivide_factor=2.0), alone(keras.optimizers.SGD(0.05)))
    same(
        distributed(keras.optimizers.SGD(0.05 / hvd.size()), op=hvd.Sum),
        alone(keras.optimizers.SGD(0.05)),
    )
    same(
        distributed(keras.optimizers.SGD(0.05), compression=hvd.Compression.bf16),
        alone(keras.optimizers.SGD(0.05)),
        0.05,
    )


class Subclassed(keras.Model):
    """Its variables are created when it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        return self.last(self.first(inputs))


class StepsOfItsOwn(Subclassed):
    """Its call() is never used."""

    def call(self, inputs: Any) -> Any:
        raise NotImplementedError


def assert_equal_everywhere(made: Any) -> None:
    for weight in (*made.get_weights(), *(np.asarray(one) for one in made.optimizer.variables)):
        if weight.dtype.kind == "f":
            assert np.array_equal(hvd.broadcast(weight, 0), weight)


def check_models_that_are_built_in_the_first_step() -> None:
    """Also if only rank 0 has built its model before, for example to load weights."""
    for make in (lambda: keras.Sequential([keras.layers.Dense(8), keras.layers.Dense(1)]), Subclassed):
        for built_on_0 in (False, True):
            keras.utils.set_random_seed(hvd.rank())
            made = make()
            made.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss="mse")
            if built_on_0 and hvd.rank() == 0:
                made(data()[0][:1])
            fit(made, *mine(), BATCH // hvd.size(), [start()], epochs=2)
            assert len(made.get_weights()) == 4
            assert_equal_everywhere(made)
            before = made.get_weights()
            fit(made, *mine(), BATCH // hvd.size(), [start()], epochs=1)
            assert_equal_everywhere(made)
            assert not np.array_equal(made.get_weights()[0], before[0])


def check_models_without_weights_are_told_from_others() -> None:
    if keras.backend.backend() != "tensorflow":
        return
    with raises(ValueError, "no weights yet"):
        hvd.broadcast_model(Subclassed())
    parts = StepsOfItsOwn()
    for layer in (parts.first, parts.last):
        layer.build((None, 8))
    hvd.broadcast_model(parts)
    weights = parts.first.get_weights()[0]
    assert np.array_equal(hvd.broadcast(weights, 0), weights)


def without_decay_of(names: Any = None, variables: Any = None) -> Any:
    optimizer = keras.optimizers.AdamW(0.05, weight_decay=0.9)
    optimizer.exclude_from_weight_decay(var_list=variables, var_names=names)
    return optimizer


def check_what_weight_decay_leaves_out() -> None:
    same(distributed(without_decay_of(["bias"])), alone(without_decay_of(["bias"])))
    made = model(0)
    optimizer = hvd.DistributedOptimizer(without_decay_of(variables=made.trainable_variables[:1]))
    optimizer.build(made.trainable_variables)
    assert [optimizer._use_weight_decay(one) for one in made.trainable_variables] == [False, True, True, True]


def check_what_weight_decay_leaves_out_of_a_scaled_loss() -> None:
    variable = model(0).trainable_variables[0]
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        scaled = keras.optimizers.LossScaleOptimizer(without_decay_of(variables=[variable]))
        for given in (scaled, without_decay_of(variables=[variable])):
            assert not hvd.DistributedOptimizer(given).inner_optimizer._use_weight_decay(variable)
    finally:
        keras.config.set_dtype_policy(before)


def check_xla_is_left_out_on_tensorflow() -> None:
    """Keras chooses XLA if it sees a GPU."""
    if keras.backend.backend() != "tensorflow":
        return
    import tensorflow as tf

    before = tf.config.list_physical_devices
    gpu = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")
    tf.config.list_physical_devices = lambda kind=None: before(kind) if kind else [*before(), gpu]
    try:
        assert distributed(keras.optimizers.SGD(0.05)).jit_compile == (hvd.size() == 1)
        later = model(0)
        later.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse")
        assert later.jit_compile
        later.optimizer = hvd.DistributedOptimizer(later.optimizer)
        fit(later, *mine(), BATCH // hvd.size(), [start()])
        same(later, alone(keras.optimizers.SGD(0.05)))
        asked = {"optimizer": hvd.DistributedOptimizer(keras.optimizers.SGD()), "loss": "mse", "jit_compile": True}
        if hvd.size() > 1:
            with raises(ValueError, "jit_compile=False"):
                model(0).compile(**asked)
        else:
            model(0).compile(**asked)
    finally:
        tf.config.list_physical_devices = before


def check_gradient_accumulation() -> None:
    options = {"backward_passes_per_step": 2, "average_aggregated_gradients": True}
    same(distributed(keras.optimizers.SGD(0.05), **options), alone(keras.optimizers.SGD(0.05)))
    same(distributed(keras.optimizers.SGD(0.025), backward_passes_per_step=2), alone(keras.optimizers.SGD(0.05)))


def check_the_class_is_keras_own_in_files() -> None:
    """The saved files load in plain Keras, and load_model continues from them."""
    made = distributed(keras.optimizers.Adam(0.01))
    assert type(made.optimizer).__name__ == "Adam" and isinstance(made.optimizer, keras.optimizers.Optimizer)
    with tempfile.TemporaryDirectory() as folder:
        made.save(Path(folder) / "model.keras")
        # Keras 3 cannot read "mse" from an .h5 file
        made.compile(optimizer=made.optimizer, loss=keras.losses.MeanSquaredError())
        made.save(Path(folder) / "model.h5")  # Keras 3 does not build the optimizer of this file
        plain = keras.saving.load_model(Path(folder) / "model.keras")
        assert not hasattr(plain.optimizer, "distrun_reduction")
        assert int(plain.optimizer.iterations) == int(made.optimizer.iterations) > 0
        again = [hvd.load_model(str(Path(folder) / name)) for name in ("model.keras", "model.h5")]
    for model_ in again:
        assert hasattr(model_.optimizer, "distrun_reduction")
        assert int(model_.optimizer.iterations) == int(made.optimizer.iterations)
    for model_ in (made, *again):
        fit(model_, *mine(), BATCH // hvd.size(), [start()], epochs=1)
    same(again[0], made)
    same(again[1], made)


def fit_with_an_overflow_on_one_rank(scaled: Any) -> Any:
    """The overflow is in the second batch. Returns the model, which is equal on all ranks."""
    made = model(0)
    made.compile(optimizer=hvd.DistributedOptimizer(scaled), loss="mse")
    images, labels = mine()
    part = BATCH // hvd.size()
    if hvd.rank() == 0:
        labels[part : 2 * part] = np.inf
    fit(made, images, labels, part, [start()], epochs=1)
    weights = np.concatenate([one.ravel() for one in made.get_weights()])
    assert np.isfinite(weights).all()
    assert np.array_equal(hvd.broadcast(weights, 0), weights)
    return made


def check_an_overflow_on_one_rank_skips_the_step_on_all() -> None:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        by_policy = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01))
        assert isinstance(by_policy, keras.optimizers.LossScaleOptimizer)
        scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01), initial_scale=8.0)
        made = fit_with_an_overflow_on_one_rank(scaled)
        assert int(made.optimizer.iterations) == ROWS // BATCH - 1
        assert float(made.optimizer.dynamic_scale) == 4.0
    finally:
        keras.config.set_dtype_policy(before)


def check_a_loop_of_ones_own_scales_its_loss() -> None:
    """Otherwise the policy's optimizer would divide gradients by a scale without a multiplication before."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1.0))
    finally:
        keras.config.set_dtype_policy(before)
    variable = keras.Variable([10.0], dtype="float32")
    gradient = keras.ops.convert_to_tensor(np.array([2.0], np.float32))
    optimizer.build([variable])
    with raises(ValueError, "optimizer.scale_loss", "put it inside: DistributedOptimizer(LossScaleOptimizer("):
        optimizer.apply([gradient], [variable])

    def stateless(grad: Any) -> Any:
        state = [one.value for one in optimizer.variables]
        return optimizer.stateless_apply(state, [grad], [variable.value])[0][0]

    with raises(ValueError, "optimizer.scale_loss"):
        stateless(gradient)
    zeros = keras.ops.zeros_like(gradient)  # a step with these creates the slots
    if keras.backend.backend() != "tensorflow":  # TensorFlow has no stateless_apply
        assert keras.ops.convert_to_numpy(stateless(zeros)).tolist() == [10.0]
    if keras.backend.backend() != "jax":
        optimizer.apply([zeros], [variable])
        assert keras.ops.convert_to_numpy(variable).tolist() == [10.0]
    with raises(ValueError, "optimizer.scale_loss"):
        optimizer.apply([gradient], [variable])
    scaled = optimizer.scale_loss(gradient)
    if keras.backend.backend() == "jax":  # there Keras's apply contains a cond and cannot run eagerly
        variable.assign(stateless(scaled))
    else:
        optimizer.apply([scaled], [variable])
    assert keras.ops.convert_to_numpy(variable).tolist() == [8.0]


def check_what_an_optimizer_has_learned_is_kept() -> None:
    old = alone(keras.optimizers.Adam(0.01)).optimizer
    before = keras.config.dtype_policy()
    for policy in ("float32", "mixed_float16"):
        keras.config.set_dtype_policy(policy)
        try:
            for options in ({}, {"backward_passes_per_step": 2}):
                new = hvd.DistributedOptimizer(old, **options)
                new = getattr(new, "inner_optimizer", new)
                assert int(new.iterations) == int(old.iterations) > 0
                for one, its in zip(new._momentums, old._momentums, strict=True):
                    assert np.array_equal(keras.ops.convert_to_numpy(one), keras.ops.convert_to_numpy(its))
        finally:
            keras.config.set_dtype_policy(before)


def check_legacy_overflow_on_one_rank_skips_the_step_on_all() -> None:
    if not LEGACY:
        return
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        scaled = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.01), initial_scale=8.0)
        assert float(fit_with_an_overflow_on_one_rank(scaled).optimizer.loss_scale) == 4.0
    finally:
        keras.mixed_precision.set_global_policy("float32")


def check_scaling_outside_is_refused() -> None:
    """Where the optimizer is made, also without fit() and its callbacks."""
    warned = ("mixed_float16", "Set the policy first", "put it inside: DistributedOptimizer(")
    with raises(ValueError, *warned):
        keras.optimizers.LossScaleOptimizer(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)))
    before = keras.config.dtype_policy()
    late = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01))
    keras.config.set_dtype_policy("mixed_float16")
    try:
        with raises(ValueError, *warned):
            model(0).compile(optimizer=late, loss="mse")
        assert keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01), initial_scale=4.0).initial_scale == 4.0
    finally:
        keras.config.set_dtype_policy(before)


def check_metrics_are_averaged() -> None:
    made = model(0)
    made.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse", metrics=["mae"])
    average = hvd.callbacks.MetricAverageCallback()
    history = fit(made, *mine(), BATCH // hvd.size(), [start(), average]).history
    for name in ("loss", "mae"):
        assert np.allclose(history[name], hvd.broadcast(np.array(history[name]), 0)), name
    single = model(0)
    single.compile(optimizer=keras.optimizers.SGD(0.01), loss="mse", metrics=["mae"])
    assert np.allclose(history["mae"], fit(single, *data(), BATCH).history["mae"], rtol=1e-4)


def check_metrics_that_are_vectors_are_averaged() -> None:
    """F1Score has a value per class. The ranks see different rows."""
    images, labels = mine()
    scores = keras.metrics.F1Score()
    scores.update_state(np.eye(3, dtype="float32")[np.arange(len(labels)) % 3], images[:, :3])
    own = scores.result()
    logs = {"f1": own, "loss": 1.0 + hvd.rank()}
    hvd.callbacks.MetricAverageCallback().on_epoch_end(0, logs)
    assert np.allclose(logs["f1"], hvd.allreduce(own)) and np.shape(logs["f1"]) == (3,)
    assert logs["loss"] == (1 + hvd.size()) / 2 and type(logs["loss"]) is float
    if hvd.size() > 1:
        own = np.ones(3) if hvd.rank() == 0 else 1.0
        with raises(ValueError, "different metrics", "f1[3]"):
            hvd.callbacks.MetricAverageCallback().on_epoch_end(1, {"f1": own})


def check_what_is_no_metric_is_left_alone() -> None:
    """Earlier callbacks put such values there for later ones. The ranks may have different kinds of them."""
    first, differing = hvd.rank() == 0, hvd.size() > 1
    left = {
        "classes": ["cat", "dog"],
        "run": "first",
        "ragged": [[1.0], [1.0, 2.0]],
        "nothing": None,
        "sometimes": ["cat"] if first and differing else np.ones(1),
        "of_each_sample": np.full(5 + hvd.rank(), float(hvd.rank())),
    }
    logs = {**left, "loss": 1.0 + hvd.rank()}
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        hvd.callbacks.MetricAverageCallback().on_epoch_end(0, logs)
    assert logs.pop("loss") == (1 + hvd.size()) / 2
    if differing:
        assert all(logs[name] is value for name, value in left.items()), logs
        [text] = [str(one.message) for one in warned if "on the ranks are not averaged" in str(one.message)]
        assert ": of_each_sample, sometimes. " in text, text


def check_learning_rates() -> None:
    made = model(0)
    made.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(1.0)), loss="mse")
    warmup = hvd.callbacks.LearningRateWarmupCallback(0.08, warmup_epochs=2, verbose=1)
    later = hvd.callbacks.LearningRateScheduleCallback(0.08, lambda epoch: 0.1**epoch, start_epoch=2)
    rates = fit(made, *mine(), BATCH // hvd.size(), [start(), warmup, later], epochs=4).history["lr"]
    size = hvd.size()
    assert np.allclose(rates, [0.08 / size * ((size - 1) / 2 + 1), 0.08, 0.0008, 0.00008], rtol=1e-4), rates
    with raises(ValueError, "initial_lr"):
        hvd.callbacks.LearningRateScheduleCallback(None, 1.0)


def check_the_learning_rate_is_of_rank_0() -> None:
    made = model()
    made.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.25 * (1 + hvd.rank()))), loss="mse")
    hvd.broadcast_model(made)
    assert float(made.optimizer.learning_rate) == 0.25


def check_files_from_rank_0_only() -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = model(0)
        made.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
        writes = hvd.callbacks.BestModelCheckpoint(Path(folder) / "best.keras", monitor="loss")
        fit(made, *mine(), BATCH // hvd.size(), [start(), hvd.callbacks.MetricAverageCallback(), writes])
        assert (Path(folder) / "best.keras").exists() == (hvd.rank() == 0)


class Scale(keras.layers.Layer):
    """Has a weight that its __init__ creates, and `inner`."""

    def __init__(self, inner: Any = None) -> None:
        super().__init__()
        self.scale = self.add_weight(name="scale", shape=(2,), initializer="ones")
        self.inner = inner

    def call(self, x: Any) -> Any:
        return x * self.scale if self.inner is None else self.inner(x * self.scale)


def check_local_layers() -> None:
    made = model(0)
    local = made.layers[-1]
    for unbuilt in (keras.layers.Dense(2), Scale(keras.layers.Dense(2))):
        with raises(ValueError, "local layer", "Build it"):
            hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.05), local_layers=unbuilt)
    for whole in (Scale(), Scale(Scale()), keras.layers.Activation("relu"), keras.layers.Lambda(abs)):
        hvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.05), local_layers=whole)
    made.compile(
        optimizer=hvd.PartialDistributedOptimizer(
            keras.optimizers.SGD(0.05), local_layers=local, scale_local_gradients=False
        ),
        loss="mse",
    )
    fit(made, *mine(), BATCH // hvd.size(), [start()], epochs=1)
    if hvd.size() > 1:
        kernels = hvd.allgather(local.get_weights()[0][None])
        assert not np.allclose(kernels[0], kernels[1])


def check_the_scale_of_local_gradients() -> None:
    """As on one rank, the factor that undoes Keras's division by the passes applies to local gradients too."""
    variable = keras.Variable([1.0, 2.0])
    gradient = keras.ops.convert_to_tensor([3.0, 6.0])
    for shared, divisor in ((False, 1), (True, hvd.size())):
        reduction = Reduction(postscale=4.0, scale_local=shared, local={id(variable): variable})
        [found] = reduction.reduce([gradient], [variable])
        np.testing.assert_allclose(keras.ops.convert_to_numpy(found), np.array([12.0, 24.0]) / divisor)


def check_what_is_wrong_is_refused() -> None:
    with raises(ValueError, "not an optimizer of Keras 3"):
        hvd.DistributedOptimizer(3)
    with raises(ValueError, "set TF_USE_LEGACY_KERAS=1 before"):
        hvd.DistributedOptimizer(type("Adam", (), {"__module__": "tf_keras.src.optimizers.adam"})())
    with raises(ValueError, "already distributed"):
        hvd.DistributedOptimizer(hvd.DistributedOptimizer(keras.optimizers.SGD()))
    with raises(ValueError, "Average or hvd.Sum"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(), op=hvd.Max)
    with raises(ValueError, "compression"):
        hvd.DistributedOptimizer(keras.optimizers.SGD(), compression="zip")


def check_models_that_differ_are_refused() -> None:
    """The broadcast at the start refuses them. Without a broadcast, the first step does. The job goes on."""
    if hvd.size() == 1:
        return
    for callbacks in ([start()], []):
        layers = [keras.Input((6,)), keras.layers.Dense(8 + hvd.rank()), keras.layers.Dense(1)]
        differing = keras.Sequential(layers)
        differing.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
        with raises(Exception, "shapes differ") as caught:
            fit(differing, *mine(), BATCH // hvd.size(), callbacks)
            differing.get_weights()  # JAX raises when a result is read
        error = hvd.error_of(caught[0])
        assert isinstance(error, hvd.Mismatch) and error.usable, caught[0]
    same(distributed(keras.optimizers.SGD(0.05)), alone(keras.optimizers.SGD(0.05)))


def check_nan_of_one_rank_is_everybodys() -> None:
    made = model(0)
    made.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
    images, labels = mine()
    if hvd.rank() == 0:
        labels[0] = np.nan
    fit(made, images, labels, BATCH // hvd.size(), [start()], epochs=1)
    assert all(np.isnan(weight).all() for weight in made.get_weights())


def check_a_rank_without_batches_joins() -> None:
    made = model(0)
    made.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
    images, labels = mine()
    part = BATCH // hvd.size()
    fewer = hvd.rank() == hvd.size() - 1
    rows = len(labels) - part * fewer
    fit(made, images[:rows], labels[:rows], part, [start()], epochs=1)
    assert hvd.join() in range(hvd.size())
    assert int(made.optimizer.iterations) == ROWS // BATCH - fewer


def check_values() -> None:
    size, rank = hvd.size(), hvd.rank()
    value = keras.ops.convert_to_tensor(np.full(2, float(rank), np.float32))
    assert hvd.allreduce(value, op=hvd.Sum).tolist() == [sum(range(size))] * 2
    assert hvd.allgather(value).tolist() == [float(one) for one in range(size) for _ in range(2)]
    assert hvd.broadcast(value, 0).tolist() == [0.0, 0.0]
    for small in (hvd.Compression.fp16, arrays.Compression.fp16):
        assert hvd.allreduce(value + 2.0**-20, op=hvd.Max, compression=small).tolist() == [max(size - 1, 2.0**-20)] * 2
    rows = keras.ops.convert_to_tensor(np.arange(2.0 * size, dtype=np.float32).reshape(size, 2) + rank)
    wanted = [size * 2.0 * rank + sum(range(size)), size * (2.0 * rank + 1) + sum(range(size))]
    assert hvd.reducescatter(rows, op=hvd.Sum).tolist() == [wanted]
    assert hvd.broadcast_object({"rank": rank}, size - 1) == {"rank": size - 1}
    assert hvd.allgather_object({"rank": rank}) == [{"rank": other} for other in range(size)]
    with raises(RuntimeError, "broadcast_model"):
        hvd.broadcast_global_variables(0)


def check_barrier() -> None:
    """After the barrier, a rank sees the files that the others made before it."""
    folder = hvd.broadcast_object(tempfile.mkdtemp(prefix="distrun-test-") if hvd.rank() == 0 else None, 0)
    if hvd.rank() > 0:
        time.sleep(0.2)
    (Path(folder) / str(hvd.rank())).touch()
    hvd.barrier()
    assert len(list(Path(folder).iterdir())) == hvd.size()
    hvd.barrier()
    if hvd.rank() == 0:
        shutil.rmtree(folder)


def check_horovods_names() -> None:
    """In Horovod's order. Arguments that only distrun has come after them, or have a default."""
    reduced = "name average prescale_factor postscale_factor op compression"
    wanted = {
        "DistributedOptimizer": "optimizer name device_dense device_sparse compression sparse_as_dense "
        "gradient_predivide_factor op backward_passes_per_step average_aggregated_gradients num_groups groups "
        "process_set scale_local_gradients",
        "allreduce": f"value {reduced}",
        "allgather": "value name",
        "broadcast": "value root_rank name",
        "reducescatter": "value name op",
        "broadcast_global_variables": "root_rank",
        "load_model": "filepath custom_optimizers custom_objects compression legacy_opts",
        "init": "comm process_sets",
    }
    for name, expected in wanted.items():
        found = list(inspect.signature(getattr(hvd, name)).parameters)
        assert found[: len(expected.split())] == expected.split(), (name, found)
    modules = "callbacks elastic Compression PartialDistributedOptimizer ProcessSet global_process_set"
    queries = (
        "rank size local_rank local_size cross_rank cross_size shutdown is_initialized start_timeline stop_timeline"
    )
    built = "mpi_built gloo_built nccl_built ddl_built ccl_built cuda_built rocm_built sycl_built"
    reductions = "Average Sum Adasum Min Max Product"
    others = "mpi_enabled gloo_enabled mpi_threads_supported add_process_set remove_process_set"
    names = f"{modules} {queries} {built} {reductions} {others}".split()
    assert [name for name in names if not hasattr(hvd, name) or (name != "elastic" and name not in hvd.__all__)] == []
    callbacks = (
        "BroadcastGlobalVariablesCallback MetricAverageCallback LearningRateScheduleCallback "
        "LearningRateWarmupCallback BestModelCheckpoint"
    )
    assert [name for name in callbacks.split() if not hasattr(hvd.callbacks, name)] == []


if __name__ == "__main__":
    print(keras.backend.backend(), file=sys.stderr)
    hvd.init()
    assert _session.is_open()
    run(globals())
