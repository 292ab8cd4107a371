"""fit, evaluate and predict of Keras 3 with two workers give the results of one process on the whole batches.

An unmodified script: distrun --tf-keras3-mwms patches Keras. With the word "alone" it is this one process, and also
checks what the patch refuses. Both print their results.
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any
from unittest import mock

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.tensorflow import trainer

ALONE = sys.argv[1:] == ["alone"]
strategy = None if ALONE else tf.distribute.MultiWorkerMirroredStrategy()


class Ends(keras.callbacks.Callback):
    """Counts the calls of callbacks that have the metrics."""

    epochs = 0

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.epochs += "loss" in logs


def dense() -> Any:
    layers = [keras.Input((5,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)]
    return keras.Sequential(layers)


def late() -> Any:
    """The shapes are known after the first batch."""
    return keras.Sequential([keras.layers.Dense(6, activation="tanh"), keras.layers.Dense(1)])


def convolution() -> Any:
    return keras.Sequential(
        [
            keras.Input((5,)),
            keras.layers.Reshape((5, 1)),
            keras.layers.Conv1D(4, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
    )


def check_other_kerases() -> None:
    """A Keras with another kind of trainer is refused. A Keras without the faults is left unchanged."""
    from distrun.tensorflow import patch_keras_mwms

    known = trainer._collective_all_reduce_multi_worker
    del trainer._collective_all_reduce_multi_worker
    try:
        patch_keras_mwms()
    except RuntimeError as refusal:
        assert "patch_keras_mwms() does not know" in str(refusal) and "use Keras 3.15" in str(refusal)
    else:
        raise AssertionError("an unknown Keras was not refused")
    trainer._collective_all_reduce_multi_worker = known
    sound = mock.patch.object(trainer.TensorFlowTrainer, "_maybe_symbolic_build", lambda self: None)
    with sound, mock.patch.object(trainer, "reduce_per_replica", lambda values, strategy, reduction: values):
        assert not patch_keras_mwms()
    assert patch_keras_mwms() and patch_keras_mwms()


def by_position(values: Any) -> list[float]:
    """The sum of the absolute values, and a sum that changes if values change places. Signed values could cancel each
    other, which would need a tolerance."""
    sizes = np.abs(np.asarray(values, np.float64)).ravel()
    return [float(sizes.sum()), float(sizes @ np.arange(1, len(sizes) + 1))]


rng = np.random.default_rng(0)
inputs = rng.random((320, 5), np.float32)
labels = inputs.sum(1, keepdims=True)
whole = tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(64)
results: dict[str, Any] = {}
for make in (dense, late, convolution):
    keras.utils.set_random_seed(1)
    with strategy.scope() if strategy else contextlib.nullcontext():
        model = make()
        model.compile(loss="mse", optimizer=keras.optimizers.SGD(0.05), metrics=["mae"])
    ends = Ends()
    history = model.fit(whole, epochs=3, verbose=0, callbacks=[ends]).history
    assert ends.epochs == 3
    results[make.__name__] = [
        *history["loss"],
        *history["mae"],
        *model.evaluate(whole, verbose=0),
        *by_position(model.predict(whole, verbose=0)),
        *[one for weight in model.get_weights() for one in by_position(weight)],
    ]
if ALONE:
    check_other_kerases()
print(json.dumps(results), flush=True)
