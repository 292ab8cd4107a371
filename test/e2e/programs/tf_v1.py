"""distrun.tensorflow in v1 graphs: sessions, hooks, optimizers, local aggregation."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import distrun.tensorflow as hvd

tf1 = tf.compat.v1
tf1.disable_eager_execution()
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
MEAN = (SIZE + 1) / 2


def operations() -> None:
    with tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [None])
        average, gathered = hvd.allreduce(x), hvd.allgather(x)
        copy = hvd.broadcast(x, SIZE - 1)
        (gradient,) = tf1.gradients(tf.reduce_sum(hvd.allreduce(x * x, op=hvd.Sum)), [x])
        for step in range(3):
            feed = {x: [float(RANK + 1 + step)] * 2}
            values = session.run([average, gathered, copy, gradient], feed)
            np.testing.assert_allclose(values[0], [MEAN + step] * 2)
            np.testing.assert_allclose(values[1], np.repeat(np.arange(1, SIZE + 1) + step, 2))
            np.testing.assert_allclose(values[2], [SIZE + step] * 2)
            np.testing.assert_allclose(values[3], [2 * SIZE * (RANK + 1 + step)] * 2)
        session.run(hvd.barrier())


def hook_and_optimizer(wrap, gradient: float) -> None:  # type: ignore[no-untyped-def]
    """Different starts and different gradients: the ranks get equal weights, those of the mean gradient."""
    with tf.Graph().as_default():
        weight = tf1.get_variable("weight", initializer=np.full([2], 10.0 + RANK, np.float32))
        table = tf1.get_variable("table", initializer=np.full([SIZE, 2], 1.0 + RANK, np.float32))
        loss = (tf.reduce_sum(weight) + tf.reduce_sum(tf.nn.embedding_lookup(table, [RANK]))) * (RANK + 1.0)
        step = tf1.train.get_or_create_global_step()
        train = wrap(tf1.train.GradientDescentOptimizer(1.0)).minimize(loss, global_step=step)
        hooks = [hvd.BroadcastGlobalVariablesHook(0), tf1.train.StopAtStepHook(last_step=3)]
        seen = []
        with tf1.train.MonitoredTrainingSession(hooks=hooks) as session:
            while not session.should_stop():
                session.run(train)
                if not session.should_stop():
                    seen.append(session.run([weight, table]))
        weights, rows = seen[-1]
        np.testing.assert_allclose(weights, [10.0 - len(seen) * gradient] * 2, rtol=1e-5)
        wanted = np.repeat(1.0 - len(seen) * gradient / MEAN * np.arange(1, SIZE + 1)[:, None] / SIZE, 2, 1)
        np.testing.assert_allclose(rows, wanted, rtol=1e-5)


def local_aggregation(average: bool) -> None:
    """Two passes are added up before their gradients travel and are applied."""
    with tf.Graph().as_default():
        weight = tf1.get_variable("weight", initializer=np.zeros([2], np.float32))
        x = tf1.placeholder(tf.float32, [])
        optimizer = hvd.DistributedOptimizer(
            tf1.train.GradientDescentOptimizer(1.0),
            backward_passes_per_step=2,
            average_aggregated_gradients=average,
        )
        train = optimizer.minimize(tf.reduce_sum(weight) * x)
        start = [tf1.global_variables_initializer(), tf1.local_variables_initializer()]
        with tf1.Session() as session:
            session.run(start)
            for number in range(1, 5):
                session.run(train, {x: float(RANK + number)})
                done = number - number % 2
                total = sum(MEAN - 1 + one for one in range(1, done + 1)) / (2 if average else 1)
                np.testing.assert_allclose(session.run(weight), [-total] * 2, rtol=1e-5, atol=1e-6)


operations()
hook_and_optimizer(hvd.DistributedOptimizer, MEAN)
hook_and_optimizer(lambda optimizer: hvd.DistributedOptimizer(optimizer, sparse_as_dense=True), MEAN)
local_aggregation(average=False)
local_aggregation(average=True)
assert hvd.DistributedOptimizer(tf1.train.MomentumOptimizer(1.0, 0.9)).get_slot_names() is not None
try:
    hvd.DistributedOptimizer("sgd")
except ValueError as error:
    assert "Keras optimizer" in str(error)
print("all checks passed", flush=True)
