"""Keras 3's fit() with tf.distribute's MultiWorkerMirroredStrategy on MNIST digits, on any number of workers.

    distrun -np 2 --tf python examples/tf_distribute/mwms_keras_fit.py

distrun writes TF_CONFIG; the line marked (1) is needed as long as Keras 3 fails with several workers by itself.
"""

from __future__ import annotations

import sys
from pathlib import Path

import keras
import tensorflow as tf

import distrun.tensorflow as hvd

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import mnist_data

hvd.patch_keras_mwms()  # (1)
strategy = tf.distribute.MultiWorkerMirroredStrategy()
images, labels, test_images, test_labels = mnist_data.load()
keras.utils.set_random_seed(0)
with strategy.scope():
    model = keras.Sequential(
        [
            keras.Input((28, 28)),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(2e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
# Batches of all workers together: the strategy cuts them.
train = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(4000, seed=1).batch(100, drop_remainder=True)
test = tf.data.Dataset.from_tensor_slices((test_images, test_labels)).batch(100)
history = model.fit(train, epochs=4, verbose=0).history
accuracy = model.evaluate(test, verbose=0, return_dict=True)["accuracy"]
if strategy.cluster_resolver.task_id == 0:
    for number, loss in enumerate(history["loss"]):
        print(f"epoch {number + 1}: loss {loss:.4f}")
    print(f"accuracy: {accuracy:.3f}", flush=True)
