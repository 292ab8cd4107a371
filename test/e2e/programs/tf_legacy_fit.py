"""Legacy Keras's fit() under MultiWorkerMirroredStrategy, unmodified, with BackupAndRestore in the folder argv[1].

With "dies", worker 1 is killed in epoch 3 of 4. After a second start without it, all workers continue from the backup.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

os.environ["TF_USE_LEGACY_KERAS"] = "1"
import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
me = strategy.cluster_resolver.task_id
rng = np.random.default_rng(0)
inputs = rng.random((64, 4), np.float32)
tf.keras.utils.set_random_seed(0)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(4,))])
    model.compile(loss="mse", optimizer=tf.keras.optimizers.SGD(0.1))
assert "tf_keras" in tf.keras.Model.__module__


class Epochs(tf.keras.callbacks.Callback):
    """Prints each epoch when it begins."""

    current = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.current = epoch + 1
        print(f"task {me} epoch {self.current}", flush=True)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Ends after a batch of both workers, so the other one has already written its backup of epoch 2."""
        if self.current == 3 and me == 1 and "dies" in sys.argv:
            os.kill(os.getpid(), signal.SIGKILL)


data = tf.data.Dataset.from_tensor_slices((inputs, inputs.sum(1, keepdims=True))).batch(16)
callbacks = [tf.keras.callbacks.BackupAndRestore(sys.argv[1]), Epochs()]
history = model.fit(data, epochs=4, verbose=0, callbacks=callbacks).history
weights = float(sum(np.abs(one).sum() for one in model.get_weights()))
print(f"task {me} ends with {weights:.6f} after {len(history['loss'])} epochs", flush=True)
