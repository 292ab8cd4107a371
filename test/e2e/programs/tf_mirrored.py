"""An unmodified MultiWorkerMirroredStrategy script with a custom loop. Each process prints its result."""

from __future__ import annotations

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
resolver = strategy.cluster_resolver
with strategy.scope():
    weight = tf.Variable(1.0)


@tf.function
def step() -> tf.Tensor:
    def replica() -> tf.Tensor:
        me = tf.distribute.get_replica_context().replica_id_in_sync_group
        return tf.distribute.get_replica_context().all_reduce("SUM", weight * tf.cast(me + 1, tf.float32))

    return strategy.reduce("MEAN", strategy.run(replica), axis=None)


total = float(step())
print(f"task {resolver.task_type} {resolver.task_id} of {strategy.num_replicas_in_sync}: {total}", flush=True)
