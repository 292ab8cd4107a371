"""Keras 3's fit, evaluate and predict of two workers are those of one process on the whole batches.

With the word "alone" it is that process; both print what they end with.
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from distrun.tensorflow import patch_keras_mwms

ALONE = sys.argv[1:] == ["alone"]
assert patch_keras_mwms() and patch_keras_mwms()
strategy = None if ALONE else tf.distribute.MultiWorkerMirroredStrategy()


class Ends(keras.callbacks.Callback):
    """Counts what callbacks are told."""

    epochs = 0

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.epochs += "loss" in logs


def dense() -> Any:
    layers = [keras.Input((5,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)]
    return keras.Sequential(layers)


def late() -> Any:
    """Its shapes are known with the first batch."""
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
        float(np.sum(model.predict(whole, verbose=0))),
        *[float(np.abs(weight).sum()) for weight in model.get_weights()],
    ]
print(json.dumps(results), flush=True)
