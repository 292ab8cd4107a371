"""Keras 3's fit() with tf.distribute's MultiWorkerMirroredStrategy on MNIST digits, on any number of workers.

    distrun -np 2 --tf python examples/tf_distribute/mwms_keras_fit.py

distrun writes TF_CONFIG. The line marked (1) is needed as long as Keras 3 fails with several workers. The option
distrun --tf-keras3-mwms does the same without this line.
"""

from __future__ import annotations

import argparse

import keras
import tensorflow as tf
from mnist_training import Progress, compiled_model, mnist_data

import distrun.tensorflow as hvd

BATCH = 100  # images of all workers together; the strategy divides it

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--epochs", type=int, default=4)
options = parser.parse_args()

hvd.patch_keras_mwms()  # (1)
strategy = tf.distribute.MultiWorkerMirroredStrategy()
images, labels, test_images, test_labels = mnist_data.load()
keras.utils.set_random_seed(0)
with strategy.scope():
    model = compiled_model()
train = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(4000, seed=1).batch(BATCH, drop_remainder=True)
test = tf.data.Dataset.from_tensor_slices((test_images, test_labels)).batch(BATCH)
report = mnist_data.Report(0 if strategy.extended.should_checkpoint else 1, len(train), BATCH)
model.fit(train, epochs=options.epochs, verbose=0, callbacks=[Progress(report)])
report.accuracy(model.evaluate(test, verbose=0, return_dict=True)["accuracy"])
