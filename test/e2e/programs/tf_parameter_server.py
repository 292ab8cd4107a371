"""An unmodified ParameterServerStrategy script: the chief trains, an evaluator looks on, others never come here."""

from __future__ import annotations

import sys

import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type == "evaluator":
    print("evaluating", flush=True)
    sys.exit()
print(f"program runs as {resolver.task_type} {resolver.task_id}", flush=True)
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    count = tf.Variable(0)


@tf.function
def step() -> None:
    count.assign_add(1)


for _ in range(20):
    coordinator.schedule(step)
coordinator.join()
print(f"count {count.numpy()} on {count.device}", flush=True)
if "fail" in sys.argv:
    sys.exit(3)
