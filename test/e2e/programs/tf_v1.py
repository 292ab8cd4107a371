"""distrun.tensorflow in v1 graphs: sessions, hooks, optimizers, local aggregation."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import tensorflow as tf
from tf_every_operation import check_operations, equal, every_operation, raises
from tf_gradients import gradients_in_a_graph

import distrun.tensorflow as hvd

tf.get_logger().setLevel("CRITICAL")  # TensorFlow logs an error with its traces for each refusal in vectorized_map
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


def the_other_operations() -> None:
    with tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [2])
        results = every_operation(x)
        own = hvd.ProcessSet([SIZE - 1])
        hvd.add_process_set(own)
        if own.included():
            results["of_a_set"] = hvd.allreduce(x, op=hvd.Sum, process_set=own)
        for _ in range(2):
            found = session.run(results, {x: np.array([1.0, 2.0]) * (RANK + 1)})
            check_operations(found)
            equal(found.get("of_a_set", [SIZE, 2 * SIZE]), [SIZE, 2 * SIZE])


def gradients() -> None:
    """The gradients must equal those of an eager tape, which tf_ops.py checks."""
    functions = [
        (lambda v: hvd.grouped_allreduce([v, v], op=hvd.Sum)[1], lambda rank: MEAN * SIZE),
        (hvd.allgather, lambda rank: MEAN * SIZE),
        (lambda v: hvd.allgather(v, gradient="horovod"), lambda rank: MEAN),
        (lambda v: hvd.broadcast(v, SIZE - 1), lambda rank: MEAN * SIZE * (rank == SIZE - 1)),
        (lambda v: hvd.alltoall(v, [1] * SIZE)[0], lambda rank: np.arange(1, SIZE + 1)[:, None]),
        (lambda v: hvd.reducescatter(v, op=hvd.Sum), lambda rank: np.arange(1, SIZE + 1)[:, None]),
        (lambda v: hvd.reducescatter(v), lambda rank: np.arange(1, SIZE + 1)[:, None] / SIZE),
    ]
    for function, wanted in functions:
        with tf.Graph().as_default(), tf1.Session() as session:
            x = tf1.placeholder(tf.float32, [SIZE, 2])
            (gradient,) = tf1.gradients(tf.reduce_sum(function(x) * (RANK + 1.0)), [x])
            equal(session.run(gradient, {x: np.ones([SIZE, 2])}), np.ones([SIZE, 2]) * wanted(RANK))


def uneven_batches_and_join() -> None:
    with tf.Graph().as_default(), tf1.Session() as session:
        total, joined = hvd.allreduce(tf.ones([3]), op=hvd.Sum), hvd.join()
        for number in range(RANK + 2):
            equal(session.run(total), [sum(1 for rank in range(SIZE) if rank + 2 > number)] * 3)
        assert session.run(joined) in range(SIZE)
        equal(session.run(total), [SIZE] * 3)


def loops() -> None:
    """Independent iterations: ordered with parallel_iterations=1. If they may overlap, there is one warning."""

    def body(i, found):  # type: ignore[no-untyped-def]
        return i + 1, found.write(i, hvd.allreduce(tf.cast(i, tf.float32), op=hvd.Sum))

    def loop(parallel_iterations: int):  # type: ignore[no-untyped-def]
        start = (tf.constant(0), tf.TensorArray(tf.float32, 20))
        return tf1.while_loop(lambda i, _: i < 20, body, start, parallel_iterations=parallel_iterations)[1].stack()

    for enable in (tf1.disable_control_flow_v2, tf1.enable_control_flow_v2):
        enable()
        with tf.Graph().as_default(), tf1.Session() as session:
            equal(session.run(loop(1)), np.arange(20) * SIZE)
    tf1.disable_control_flow_v2()
    with warnings.catch_warnings(record=True) as caught, tf.Graph().as_default(), tf1.Session() as session:
        warnings.simplefilter("always")

        def dependent(i, x):  # type: ignore[no-untyped-def]
            return i + 1, hvd.allreduce(hvd.allreduce(x, op=hvd.Sum))

        of_each_other = tf1.while_loop(lambda i, _: i < 5, dependent, (0, 1.0), parallel_iterations=2)[1]
        warned = [str(one.message) for one in caught if "parallel_iterations=1" in str(one.message)]
        assert len(warned) == 1 and "map_fn" in warned[0] and "its iterations may overlap" in warned[0], warned
        loop(2)
        assert sum("parallel_iterations=1" in str(one.message) for one in caught) == 2
        equal(session.run(of_each_other), SIZE**5)
    tf1.enable_control_flow_v2()


def rows() -> None:
    """A graph's vectorized_map and its Jacobian, as in tf_rows.py."""
    from tensorflow.python.ops.parallel_for.gradients import jacobian

    with tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [3, 2])
        summed = tf.vectorized_map(lambda row: hvd.allreduce(row, op=hvd.Sum, name="row"), x)
        start = tf1.placeholder(tf.float32, [2])
        of_sum = jacobian(hvd.allreduce(start * start, op=hvd.Sum), start)
        for step in range(2):
            feed = {x: np.arange(6.0).reshape(3, 2) * (RANK + 1 + step), start: [1.0, 2.0]}
            found = session.run([summed, of_sum], feed)
            equal(found[0], np.arange(6.0).reshape(3, 2) * (MEAN + step) * SIZE)
            equal(found[1], np.diag([2.0, 4.0]) * SIZE)
        raises(NotImplementedError, "on all rows together", tf.vectorized_map, hvd.allgather, x)


def hook_and_optimizer(wrap, gradient: float) -> None:  # type: ignore[no-untyped-def]
    """Different initial values and gradients. All ranks get the last rank's weights and step with the mean gradient."""
    with tf.Graph().as_default():
        weight = tf1.get_variable("weight", initializer=np.full([2], 10.0 + RANK, np.float32))
        table = tf1.get_variable("table", initializer=np.full([SIZE, 2], 1.0 + RANK, np.float32))
        loss = (tf.reduce_sum(weight) + tf.reduce_sum(tf.nn.embedding_lookup(table, [RANK]))) * (RANK + 1.0)
        step = tf1.train.get_or_create_global_step()
        train = wrap(tf1.train.GradientDescentOptimizer(1.0)).minimize(loss, global_step=step)
        hooks = [hvd.BroadcastGlobalVariablesHook(SIZE - 1), tf1.train.StopAtStepHook(last_step=3)]
        seen = []
        with tf1.train.MonitoredTrainingSession(hooks=hooks) as session:
            while not session.should_stop():
                session.run(train)
                if not session.should_stop():
                    seen.append(session.run([weight, table]))
        weights, rows = seen[-1]
        np.testing.assert_allclose(weights, [9.0 + SIZE - len(seen) * gradient] * 2, rtol=1e-5)
        wanted = np.repeat(SIZE - len(seen) * gradient / MEAN * np.arange(1, SIZE + 1)[:, None] / SIZE, 2, 1)
        np.testing.assert_allclose(rows, wanted, rtol=1e-5)


def local_aggregation(average: bool) -> None:
    """The gradients of two passes are added up before they are reduced and applied."""
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


class OnlyWith(tf1.train.GradientDescentOptimizer):
    """An optimizer class of the program, with an additional argument."""

    def apply_gradients(self, grads_and_vars, global_step=None, *, factor):  # type: ignore[no-untyped-def]
        return super().apply_gradients([(factor * grad, var) for grad, var in grads_and_vars], global_step)


def other_arguments(passes: int) -> None:
    """Arguments reach the wrapped optimizer unchanged. global_step, by position or by name, counts every pass."""
    with tf.Graph().as_default():
        weight = tf1.get_variable("weight", initializer=np.zeros([2], np.float32))
        step = tf1.train.get_or_create_global_step()
        for given, named in (((step,), {}), ((), {"global_step": step}), ((), {})):
            optimizer = hvd.DistributedOptimizer(OnlyWith(1.0), backward_passes_per_step=passes)
            pairs = optimizer.compute_gradients(tf.reduce_sum(weight) * (RANK + 1.0), [weight])
            train = optimizer.apply_gradients(pairs, *given, factor=2.0, **named)
            with tf1.Session() as session:
                session.run([tf1.global_variables_initializer(), tf1.local_variables_initializer()])
                for _ in range(2):
                    session.run(train)
                equal(session.run(weight), [-4.0 * MEAN] * 2)
                assert session.run(step) == (2 if given or named else 0)


def gradients_that_nobody_has_reduced() -> None:
    """Gradients from tf.gradients(), which programs with clipping use, give one warning. Those of the optimizer give
    none."""
    with tf.Graph().as_default(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        weight = tf1.get_variable("weight", initializer=np.zeros([2], np.float32))
        loss = tf.reduce_sum(weight) * (RANK + 1.0)
        alone = hvd.add_process_set([0])
        for options in ({}, {"process_set": alone}):
            own = hvd.DistributedOptimizer(tf1.train.GradientDescentOptimizer(1.0), **options)
            clipped = [tf.clip_by_norm(one, 100.0) for one, _ in own.compute_gradients(loss, [weight])]
            own.apply_gradients(zip(clipped, [weight], strict=True))
        others = hvd.DistributedOptimizer(tf1.train.GradientDescentOptimizer(1.0), process_set=alone)
        others.apply_gradients([(tf1.gradients(loss, [weight])[0], weight)])
        warned = [str(one.message) for one in caught if "nothing would be reduced" in str(one.message)]
        assert warned == [], warned
        others = hvd.DistributedOptimizer(tf1.train.GradientDescentOptimizer(1.0))
        for _ in range(2):
            others.apply_gradients([(tf1.gradients(loss, [weight])[0], weight)])
        warned = [one for one in caught if "compute_gradients(loss)" in str(one.message)]
        assert [one.filename for one in warned] == [__file__], warned
        hvd.remove_process_set(alone)


def variables_of_a_ranks_own() -> None:
    """Ranks have different numbers of local variables, before the variables that all ranks have."""
    for options in ({}, {"backward_passes_per_step": 2}, {"scale_local_gradients": False}):
        with tf.Graph().as_default(), tf1.Session() as session:
            zeros = np.zeros([2], np.float32)
            weights = [tf1.get_variable(f"table_{number}", initializer=zeros) for number in range(RANK + 3)]
            optimizer = hvd.DistributedOptimizer(tf1.train.GradientDescentOptimizer(1.0), **options)
            for weight in weights[:-2]:
                optimizer.register_local_var(weight)
            parts = [tf.reduce_sum(weight) * (number + 1.0) for number, weight in enumerate(reversed(weights))]
            train = optimizer.minimize(tf.add_n(parts) * (RANK + 1.0))
            session.run([tf1.global_variables_initializer(), tf1.local_variables_initializer()])
            passes = options.get("backward_passes_per_step", 1)
            for _ in range(passes):
                session.run(train)
            equal(session.run(weights[-2:]), [[-2.0 * MEAN * passes] * 2, [-MEAN * passes] * 2])
            shared_by = SIZE if options.get("scale_local_gradients", True) else 1
            equal(session.run(weights[0]), [-(RANK + 3.0) * (RANK + 1.0) * passes / shared_by] * 2)


def two_aggregations() -> None:
    """Two optimizers in one graph, in a scope that reuses variables. Each has separate sums and counters."""
    with tf.Graph().as_default():
        names = ["fast", "slow"]
        weights = [tf1.get_variable(name, initializer=np.zeros([2], np.float32)) for name in names]
        x = tf1.placeholder(tf.float32, [])
        with tf1.variable_scope("trained", reuse=True):
            optimizers = [
                hvd.DistributedOptimizer(
                    tf1.train.GradientDescentOptimizer(1.0), name=name, backward_passes_per_step=passes
                )
                for name, passes in zip(names, (2, 3), strict=True)
            ]
            steps = [
                optimizer.minimize(tf.reduce_sum(weight) * x, var_list=[weight])
                for optimizer, weight in zip(optimizers, weights, strict=True)
            ]
            try:
                optimizers[0].compute_gradients(tf.reduce_sum(weights[0]), [weights[0]])
            except ValueError as error:
                assert "for each loss" in str(error)
            else:
                raise AssertionError("two losses of one optimizer were not refused")
        with tf1.Session() as session:
            session.run([tf1.global_variables_initializer(), tf1.local_variables_initializer()])
            for number in range(1, 7):
                session.run(steps, {x: float(RANK + 1)})
                found = session.run(weights)
                np.testing.assert_allclose(found[0], [-MEAN * (number - number % 2)] * 2, rtol=1e-5)
                np.testing.assert_allclose(found[1], [-MEAN * (number - number % 3)] * 2, rtol=1e-5)


def every_pass_is_a_global_step() -> None:
    """StopAtStepHook must end a job after as many passes as with Horovod."""
    for of_tensorflow_1 in (False, True):
        if of_tensorflow_1:
            tf1.disable_resource_variables()
            tf1.disable_control_flow_v2()
        with tf.Graph().as_default():
            weight = tf1.get_variable("weight", initializer=np.zeros([2], np.float32))
            step = tf1.train.get_or_create_global_step()
            optimizer = hvd.DistributedOptimizer(tf1.train.GradientDescentOptimizer(1.0), backward_passes_per_step=3)
            train = optimizer.minimize(tf.reduce_sum(weight), global_step=step)
            passes = 0
            hooks = [tf1.train.StopAtStepHook(last_step=7)]
            with tf1.train.MonitoredTrainingSession(hooks=hooks) as session:
                while not session.should_stop():
                    session.run(train)
                    passes += 1
            assert passes == 7, passes
    tf1.enable_resource_variables()
    tf1.enable_control_flow_v2()


def copies() -> None:
    """A new optimizer can be copied. One that belongs to a graph cannot, and the error says what to do."""
    for options in ({}, {"backward_passes_per_step": 2}):
        with tf.Graph().as_default():
            weight = tf1.get_variable("weight", initializer=np.zeros([2], np.float32))
            own = hvd.DistributedOptimizer(tf1.train.MomentumOptimizer(1.0, 0.9), **options)
            again = pickle.loads(pickle.dumps(copy.deepcopy(own)))
            train = again.minimize(tf.reduce_sum(weight) * (RANK + 1.0))
            for copied in (copy.deepcopy, pickle.dumps):
                raises(
                    TypeError, "in a graph, because its variables belong to the graph. Create another", copied, again
                )
                raises(TypeError, "in a graph, because", copied, {"optimizer": again})
            with tf1.Session() as session:
                session.run([tf1.global_variables_initializer(), tf1.local_variables_initializer()])
                for _ in range(2 if options else 1):
                    session.run(train)
                equal(session.run(weight), [-MEAN * (2 if options else 1)] * 2)


def kept_and_dropped() -> None:
    """Optimizers that a program has dropped, or keeps without using, do not change the next training."""
    kept = []
    for fold in range(3):
        with tf.Graph().as_default():
            weight = tf1.get_variable("weight", initializer=np.zeros([2], np.float32))
            loss = tf.reduce_sum(weight) * (RANK + 1.0)
            unused = hvd.DistributedOptimizer(tf1.train.MomentumOptimizer(1.0, 0.9))
            unused.compute_gradients(loss)
            kept += [unused] if fold else []
            train = hvd.DistributedOptimizer(tf1.train.MomentumOptimizer(1.0, 0.9)).minimize(loss)
            with tf1.Session() as session:
                session.run(tf1.global_variables_initializer())
                session.run(train)
                equal(session.run(weight), [-MEAN] * 2)


operations()
the_other_operations()
gradients()
gradients_in_a_graph()
uneven_batches_and_join()
loops()
rows()
hook_and_optimizer(hvd.DistributedOptimizer, MEAN)
hook_and_optimizer(lambda optimizer: hvd.DistributedOptimizer(optimizer, sparse_as_dense=True), MEAN)
local_aggregation(average=False)
local_aggregation(average=True)
other_arguments(passes=1)
other_arguments(passes=2)
gradients_that_nobody_has_reduced()
variables_of_a_ranks_own()
two_aggregations()
every_pass_is_a_global_step()
copies()
kept_and_dropped()
momentum = hvd.DistributedOptimizer(tf1.train.MomentumOptimizer(1.0, 0.9))
assert momentum.get_slot_names() is not None and isinstance(momentum, hvd._DistributedOptimizer)
raises(ValueError, "Keras optimizer", hvd.DistributedOptimizer, "sgd")
print("all checks passed", flush=True)
