"""ParameterServerStrategy on MNIST digits: the chief schedules steps on the workers; the servers store the variables.

    distrun -np 4 --tf-roles chief=1,worker=2,ps=1 python examples/tf_distribute/parameter_server.py
    distrun -np 5 --tf-roles chief=1,worker=2,ps=1,evaluator=1 python examples/tf_distribute/parameter_server.py \
        --checkpoints DIR

Chief and evaluator run this program. In the other ranks distrun runs a TensorFlow server, so this file has no line for
it; distrun ends them with the chief. The evaluator evaluates the checkpoints that the chief writes after each epoch.
"""

from __future__ import annotations

import argparse
from typing import Any

import keras
import tensorflow as tf
from mnist_training import build_model, loss_of, mnist_data, share_of_right

BATCH = 100


def evaluate(folder: str, epochs: int) -> None:
    """Evaluates each new checkpoint, until that of the last epoch."""
    _, _, images, labels = mnist_data.load()
    model = build_model()
    done = tf.Variable(0)
    for path in tf.train.checkpoints_iterator(folder, timeout=120):
        tf.train.Checkpoint(model=model, epochs=done).restore(path).expect_partial()
        print(f"evaluator: accuracy {share_of_right(model, images, labels):.3f} after epoch {int(done)}", flush=True)
        if int(done) == epochs:
            return


def train(resolver: Any, folder: str | None, epochs: int) -> None:
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    images, labels, test_images, test_labels = mnist_data.load()
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = build_model()
        optimizer = keras.optimizers.Adam(2e-3)
        optimizer.build(model.trainable_variables)
        done = tf.Variable(0, trainable=False)

    def dataset() -> Any:
        data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(4000).repeat()
        return data.batch(BATCH, drop_remainder=True)

    batches = iter(coordinator.create_per_worker_dataset(dataset))

    @tf.function
    def step(iterator: Any) -> Any:
        def replica(images: Any, labels: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = loss_of(labels, model(images, training=True), BATCH)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        return strategy.reduce("SUM", strategy.run(replica, next(iterator)), axis=None)

    steps = len(labels) // BATCH
    report = mnist_data.Report(0, steps, BATCH)
    manager = folder and tf.train.CheckpointManager(tf.train.Checkpoint(model=model, epochs=done), folder, 2)
    for number in range(1, epochs + 1):
        # TensorFlow gives a step to any free worker. If a worker dies, the others do its steps.
        losses = [coordinator.schedule(step, args=(batches,)) for _ in range(steps)]
        total = 0.0
        for index, loss in enumerate(losses):
            total += float(loss.fetch())
            report.step(index + 1)
        coordinator.join()
        report.epoch(number, total / steps)
        done.assign(number)
        if manager:
            manager.save()
    report.accuracy(share_of_right(model, test_images, test_labels))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--checkpoints", help="folder for checkpoints, which the evaluator needs")
    options = parser.parse_args()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type == "evaluator":
        if not options.checkpoints:
            parser.error("an evaluator needs --checkpoints")
        evaluate(options.checkpoints, options.epochs)
    else:
        train(resolver, options.checkpoints, options.epochs)


main()
