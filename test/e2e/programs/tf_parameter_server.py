"""A ParameterServerStrategy script whose chief fails after it has used its cluster."""

from __future__ import annotations

import sys

import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    count = tf.Variable(0)


@tf.function
def step() -> None:
    count.assign_add(1)


coordinator.schedule(step)
coordinator.join()
assert count.numpy() == 1 and "/job:ps" in count.device
sys.exit(3)
