"""MirroredStrategy on MNIST digits: one process with a replica on each GPU, or on two logical CPUs without a GPU.

    distrun -np 1 python examples/tf_distribute/mirrored.py
    distrun -np 1 --gpus-per-rank 4 python examples/tf_distribute/mirrored.py --reduce one-device --fit

It is one process. distrun starts it, on another host with -H, gives it its GPUs, and shows its output.
"""

from __future__ import annotations

import argparse
from typing import Any

import keras
import tensorflow as tf
from mnist_training import Progress, Training, compiled_model, devices, mnist_data

REDUCTIONS = {
    "hierarchical": tf.distribute.HierarchicalCopyAllReduce,
    "one-device": tf.distribute.ReductionToOneDevice,
}


def fit(strategy: Any, epochs: int, batch: int = 100) -> None:
    images, labels, test_images, test_labels = mnist_data.load()
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = compiled_model()
    report = mnist_data.Report(0, len(labels) // batch, batch)
    model.fit(images, labels, batch, epochs, verbose=0, callbacks=[Progress(report)])
    report.accuracy(model.evaluate(test_images, test_labels, verbose=0, return_dict=True)["accuracy"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reduce", choices=REDUCTIONS, default="hierarchical")
    parser.add_argument("--fit", action="store_true", help="Keras's fit() instead of a custom loop")
    parser.add_argument("--epochs", type=int, default=4)
    options = parser.parse_args()

    strategy = tf.distribute.MirroredStrategy(devices(), cross_device_ops=REDUCTIONS[options.reduce]())
    print(f"{strategy.num_replicas_in_sync} replicas", flush=True)
    if options.fit:
        fit(strategy, options.epochs)
        return
    training = Training(strategy)
    report = training.report()
    for number in range(options.epochs):
        training.epoch(number + 1, report)
    report.accuracy(training.accuracy())


main()
