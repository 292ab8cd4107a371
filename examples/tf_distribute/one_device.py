"""OneDeviceStrategy on MNIST digits, or the default strategy with --device default.

    distrun -np 1 python examples/tf_distribute/one_device.py --device /gpu:0

It is one process. distrun starts it, on another host with -H, and shows its output.
"""

from __future__ import annotations

import argparse

import tensorflow as tf
from mnist_training import Training

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", default="/cpu:0", help='as in "/gpu:0"; "default": the default strategy')
parser.add_argument("--epochs", type=int, default=4)
options = parser.parse_args()

if options.device == "default":
    strategy = tf.distribute.get_strategy()
else:
    strategy = tf.distribute.OneDeviceStrategy(options.device)
training = Training(strategy)
report = training.report()
for number in range(options.epochs):
    training.epoch(number + 1, report)
report.accuracy(training.accuracy())
