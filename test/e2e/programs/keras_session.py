"""Legacy Keras in a session of TensorFlow 1. distrun.keras refuses this at once."""

from __future__ import annotations

import tensorflow as tf

import distrun.tensorflow.keras as hvd

tf.compat.v1.disable_eager_execution()
hvd.init()
try:
    hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))
except ValueError as error:
    assert "Remove disable_eager_execution()" in str(error), error
    print("refused", flush=True)
