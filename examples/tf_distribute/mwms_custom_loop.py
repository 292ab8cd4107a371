"""A custom training loop with MultiWorkerMirroredStrategy on MNIST digits, on any number of workers.

    distrun -np 2 --tf python examples/tf_distribute/mwms_custom_loop.py
    distrun -np 2 --tf-roles chief=1,worker=1 python examples/tf_distribute/mwms_custom_loop.py --communication auto

There is no line for distrun, because it writes TF_CONFIG. With --checkpoints DIR, a folder that all workers see, a
restarted program continues after the last whole epoch. Every worker must save. Only the file of the chief is kept
(of worker 0 without a chief); the others write to a folder of their own that is deleted.
"""

from __future__ import annotations

import argparse
import tempfile

import tensorflow as tf
from mnist_training import Training

IMPLEMENTATIONS = {
    "ring": tf.distribute.experimental.CommunicationImplementation.RING,
    "auto": tf.distribute.experimental.CommunicationImplementation.AUTO,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--communication", choices=IMPLEMENTATIONS, default="ring")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--checkpoints", help="folder for checkpoints")
    options = parser.parse_args()

    # TensorFlow requires this before all other calls.
    strategy = tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(
            implementation=IMPLEMENTATIONS[options.communication]
        )
    )
    chief = strategy.extended.should_checkpoint
    training = Training(strategy)
    with strategy.scope():
        epochs = tf.Variable(0, trainable=False)
    with tempfile.TemporaryDirectory() as scratch:
        checkpoint = tf.train.Checkpoint(model=training.model, optimizer=training.optimizer, epochs=epochs)
        folder = options.checkpoints if chief and options.checkpoints else scratch
        manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=2)
        if options.checkpoints and (latest := tf.train.latest_checkpoint(options.checkpoints)):
            checkpoint.restore(latest)
        report = training.report(chief)
        for number in range(int(epochs.numpy()) + 1, options.epochs + 1):
            training.epoch(number, report)
            epochs.assign(number)
            if options.checkpoints:
                manager.save()
    report.accuracy(training.accuracy())


main()
