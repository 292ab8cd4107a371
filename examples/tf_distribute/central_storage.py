"""CentralStorageStrategy on MNIST digits: the variables on the CPU, the computation on all GPUs or two logical CPUs.

    distrun -np 1 python examples/tf_distribute/central_storage.py

It is one process. distrun starts it, on another host with -H, and shows its output.
"""

from __future__ import annotations

import argparse

import tensorflow as tf
from mnist_training import Training, devices

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=4)
options = parser.parse_args()

strategy = tf.distribute.experimental.CentralStorageStrategy(devices(), parameter_device="/cpu:0")
training = Training(strategy)
report = training.report()
for number in range(options.epochs):
    training.epoch(number + 1, report)
report.accuracy(training.accuracy())
