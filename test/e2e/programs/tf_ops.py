"""distrun.tensorflow's operations on 1, 2 or 3 ranks: eager, in tf.function, with gradients, and refused calls."""

from __future__ import annotations

import hashlib
import os
import sys
import time
import warnings
from pathlib import Path

os.environ.setdefault("TF_CONFIG", '{"cluster": {"worker": ["localhost:1"]}, "task": {"type": "worker", "index": 0}}')

import numpy as np
import tensorflow as tf
from tf_every_operation import check_class_of_tensorflow, check_operations, equal, every_operation, raises
from tf_gradients import gradients_of_one_process, other_gradients_are_refused
from tf_local_layers import local_layers
from tf_moves import more_rows_than_sizes_can_say, what_only_moves
from tf_sets import gradients_in_a_set

import distrun.numpy as arrays
import distrun.tensorflow as hvd
from distrun.tensorflow import _native

tf.get_logger().setLevel("ERROR")  # it warns of many traces, which are intended here
SLOWER = sys.argv[1:] == ["slower"]
if SLOWER:  # as with a TensorFlow that does not fit the op library

    def not_this_one() -> None:
        raise _native.Unavailable("it is of the year 2030")

    _native.load = not_this_one
    warnings.filterwarnings("ignore", "distrun.tensorflow uses its slower path.*it is of the year 2030")
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
TYPES = [tf.uint8, tf.int8, tf.int16, tf.int32, tf.int64, tf.float16, tf.bfloat16, tf.float32, tf.float64]


def every_dtype_and_shape(allreduce) -> None:  # type: ignore[no-untyped-def]
    for dtype in TYPES:
        for shape in ([2, 3], [5], [], [0, 4]):
            value = tf.cast(tf.fill(shape, RANK + 1), dtype)
            result = allreduce(value)
            assert result.dtype == dtype and result.shape == value.shape
            equal(tf.cast(result, tf.float64), np.full(shape, sum(range(1, SIZE + 1))))


def static_shapes() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, 3]), tf.TensorSpec(None)])
    def traced(known, unknown):  # type: ignore[no-untyped-def]
        assert hvd.allreduce(known).shape.as_list() == [None, 3]
        assert hvd.allgather(tf.ones([4, 3])).shape.as_list() == [None, 3]
        assert hvd.allgather(unknown).shape.rank is None
        return hvd.reducescatter(tf.ones([4, 3])).shape.rank

    traced(tf.ones([1, 3]), tf.ones([1]))


def gradients(wrap) -> None:  # type: ignore[no-untyped-def]
    x = tf.Variable(tf.ones([SIZE, 2]) * (RANK + 1.0))

    def gradient_of(function):  # type: ignore[no-untyped-def]
        def work():  # type: ignore[no-untyped-def]
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(function(x * 1.0) * (RANK + 1.0))
            return tape.gradient(loss, x)

        return wrap(work)()

    total, ones = SIZE * (SIZE + 1) / 2, np.ones([SIZE, 2])
    equal(gradient_of(lambda v: hvd.allreduce(v, op=hvd.Sum)), ones * total)
    equal(gradient_of(lambda v: hvd.allreduce(v)), ones * total / SIZE)
    equal(gradient_of(lambda v: hvd.grouped_allreduce([v, v], op=hvd.Sum)[1]), ones * total)
    equal(gradient_of(hvd.allgather), ones * total)
    equal(gradient_of(lambda v: hvd.grouped_allgather([v, v])[1]), ones * total)
    for root in {0, SIZE - 1}:
        found = gradient_of(lambda v, root=root: hvd.broadcast(v, root))
        equal(found, ones * total * (root == RANK))
    equal(gradient_of(hvd.alltoall), np.arange(1, SIZE + 1)[:, None] * np.ones([1, 2]))
    equal(gradient_of(lambda v: hvd.alltoall(v, [1] + [0] * (SIZE - 1))[0]), ([[1, 1]] + [[0, 0]] * (SIZE - 1)))
    owners = ones * np.arange(1, SIZE + 1)[:, None]
    factors = {"prescale_factor": 2.0, "postscale_factor": 0.25}
    equal(gradient_of(lambda v: hvd.reducescatter(v, op=hvd.Sum)), owners)
    equal(gradient_of(lambda v: hvd.reducescatter(v, op=hvd.Sum, **factors)), owners / 2)
    equal(gradient_of(lambda v: hvd.reducescatter(v, **factors)), owners / 2 / SIZE)
    raises(NotImplementedError, "no gradient", gradient_of, lambda v: hvd.allreduce(v, op=hvd.Max))


def gradient_from_outside() -> None:
    """Gradients of a function, and of a loop in a function, for a tape around the call."""
    x = tf.Variable(RANK + 1.0)

    @tf.function
    def once(v):  # type: ignore[no-untyped-def]
        return hvd.allreduce(v, op=hvd.Sum)

    @tf.function
    def loop(v):  # type: ignore[no-untyped-def]
        for _ in tf.range(3):
            v = hvd.allreduce(v, op=hvd.Sum) + v
        return v

    for function, wanted in ((once, SIZE), (loop, (SIZE + 1) ** 3)):
        with tf.GradientTape() as tape:
            result = function(x * 1.0)
        equal(tape.gradient(result, x), wanted)


def sparse_and_tape() -> None:
    table = tf.Variable(tf.ones([SIZE + 1, 2]))
    bias = tf.Variable(tf.zeros([2]))
    unused = tf.Variable(1.0)
    local = tf.Variable(1.0)

    def step(as_dense: bool, **options):  # type: ignore[no-untyped-def]
        with tf.GradientTape() as tape:
            picked = tf.gather(table, [RANK, SIZE])
            loss = (tf.reduce_sum(picked) + tf.reduce_sum(bias)) * (RANK + 1.0) + local * SIZE
        tape = hvd.DistributedGradientTape(tape, sparse_as_dense=as_dense, **options)
        tape.register_local_source(local)
        return tape.gradient(loss, [table, bias, unused, local])

    mean = (SIZE + 1) / 2
    wanted = np.array([[(r + 1) / SIZE] * 2 for r in range(SIZE)] + [[mean] * 2])
    for run in (step, tf.function(step)):
        for as_dense in (False, True):
            of_table, of_bias, nothing, own = run(as_dense)
            assert nothing is None
            assert as_dense == (not isinstance(of_table, tf.IndexedSlices))
            equal(tf.convert_to_tensor(of_table), wanted)
            equal(of_bias, [mean] * 2)
            equal(own, 1.0)
    equal(step(True, groups=2, gradient_predivide_factor=2.0)[1], [mean] * 2)
    equal(step(True, groups=[[bias]], compression=hvd.Compression.bf16)[1], [mean] * 2)
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([RANK]), tf.constant([SIZE, 2]))
    equal(tf.convert_to_tensor(hvd.allreduce(slices, op=hvd.Sum)), np.ones([SIZE, 2]))
    raises(NotImplementedError, "Sum or Average", hvd.allreduce, slices, op=hvd.Max)
    options = {"op": hvd.Sum, "prescale_factor": 4.0, "postscale_factor": 0.5, "compression": hvd.Compression.bf16}
    # 1.003 becomes 1.0 in bfloat16
    slices = tf.IndexedSlices(slices.values * 1.003, slices.indices, slices.dense_shape)
    for found in (*hvd.grouped_allreduce([slices, tf.ones([SIZE, 2])], **options), hvd.allreduce(slices, **options)):
        assert found.dtype == tf.float32
        equal(tf.convert_to_tensor(found), np.ones([SIZE, 2]) * (2 * SIZE if isinstance(found, tf.Tensor) else 2))
    with tf.GradientTape(persistent=True) as tape:
        loss = bias * (RANK + 1.0)
    total, average = (hvd.DistributedGradientTape(tape, op=op) for op in (hvd.Sum, hvd.Average))
    total.register_local_source(unused)
    equal(total.gradient(loss, bias), [mean * SIZE] * 2)
    equal(average.gradient(loss, bias), [mean] * 2)
    assert total._reduction.local and not average._reduction.local
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = bias * (RANK + 1.0)
    equal(tape.gradient(loss, bias), [mean] * 2)
    raises(ValueError, "op != Average", hvd.DistributedGradientTape, tf.GradientTape(), op=hvd.Sum,
           gradient_predivide_factor=2.0)  # fmt: skip


def variables_and_objects() -> None:
    variables = [tf.Variable(tf.ones([3]) * RANK, name="same"), tf.Variable(RANK, name="same")]
    hvd.broadcast_variables(variables, SIZE - 1)
    equal(variables[0], np.ones(3) * (SIZE - 1))
    equal(variables[1], SIZE - 1)
    variables[0].assign(tf.ones([3]) * RANK)
    tf.function(lambda: hvd.broadcast_(variables, 0, name="again"))()
    equal(variables[0], np.zeros(3))
    assert hvd.broadcast_object({"epoch": RANK}, 0) == {"epoch": 0}
    assert hvd.broadcast_object_fn(0)([RANK]) == [0]
    assert hvd.allgather_object(RANK) == list(range(SIZE))
    raises(RuntimeError, "broadcast_variables", hvd.broadcast_global_variables, 0)


def loops_and_pruning() -> None:
    @tf.function
    def loop(x):  # type: ignore[no-untyped-def]
        """Independent iterations, which TensorFlow would run in parallel."""
        total = tf.TensorArray(tf.float32, 20)
        for i in tf.range(20):
            total = total.write(i, hvd.allreduce(x * tf.cast(i, tf.float32), op=hvd.Sum))
        return total.stack()

    equal(loop(tf.constant(1.0)), np.arange(20) * SIZE)

    @tf.function
    def only_rank_0_looks(x):  # type: ignore[no-untyped-def]
        reduced = hvd.allreduce(x, op=hvd.Sum, name="looked.at")
        return reduced if hvd.rank() == 0 else x

    for _ in range(3):
        only_rank_0_looks(tf.ones([4]))
    # If a rank had dropped the operation whose result it does not use, the others would wait for it here.
    equal(hvd.allreduce(tf.ones([4]), op=hvd.Sum, name="looked.at"), np.ones(4) * SIZE)

    @tf.function
    def constants():  # type: ignore[no-untyped-def]
        return hvd.allreduce(tf.constant(1.0), op=hvd.Sum), hvd.allreduce(tf.constant(1.0), op=hvd.Sum)

    for _ in range(2):
        equal(constants()[1], SIZE)


def nan_travels() -> None:
    value = tf.constant([np.nan if RANK == 0 else 1.0, 1.0])
    result = hvd.allreduce(value).numpy()
    assert np.isnan(result[0]) and result[1] == 1.0


def overflow_on_one_rank() -> None:
    """Gradients are reduced before the check for overflow, so all ranks skip the step together."""
    weight = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones", dtype="mixed_float16")
    weight.build([None, 1])
    inner = tf.keras.optimizers.SGD(0.5)
    optimizer = tf.keras.mixed_precision.LossScaleOptimizer(inner, initial_scale=4.0)
    scaled = getattr(optimizer, "scale_loss", None) or optimizer.get_scaled_loss  # Keras 3, Keras 2
    unscaled = getattr(optimizer, "get_unscaled_gradients", None) or (lambda gradients: gradients)

    @tf.function
    def step(x):  # type: ignore[no-untyped-def]
        with tf.GradientTape() as tape:
            loss = scaled(tf.reduce_sum(tf.cast(weight(x), tf.float32)))
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, weight.trainable_variables)
        optimizer.apply_gradients(zip(unscaled(gradients), weight.trainable_variables, strict=True))

    for x, wanted in ((1.0, 0.5), (6e4 if RANK == 0 else 1.0, 0.5), (1.0, 0.0)):
        step(tf.constant([[x]]))
        equal(weight.trainable_variables[0], [[wanted]])


def mismatches() -> None:
    if SIZE == 1:
        return
    shape = [3] if RANK == 0 else [4]
    error = raises(hvd.Mismatch, "bad.shape", hvd.allreduce, tf.ones(shape), name="bad.shape")
    assert error.usable and error.tensor.endswith("bad.shape")
    check_class_of_tensorflow(error)

    @tf.function
    def graph(x):  # type: ignore[no-untyped-def]
        return hvd.allreduce(x, name="bad.in.graph")

    kind = tf.errors.UnknownError if SLOWER else tf.errors.FailedPreconditionError
    failure = raises(kind, "bad.in.graph", graph, tf.ones(shape))
    assert isinstance(hvd.distrun_error(failure), hvd.Mismatch)
    dtype = tf.float32 if RANK == 0 else tf.float64
    raises(hvd.Mismatch, "dtype", hvd.allreduce, tf.ones([2], dtype), name="bad.dtype")
    raises(hvd.Mismatch, "", hvd.broadcast, tf.ones([2]), root_rank=RANK, name="bad.root")
    raises(hvd.DistrunError, "", hvd.broadcast, tf.ones([2]), root_rank=SIZE + 3)
    variable = tf.Variable(1.0)
    with tf.GradientTape() as tape:
        loss = variable * 1.0
    tape = hvd.DistributedGradientTape(tape, gradient_predivide_factor=2.0 if RANK == 0 else 4.0)
    error = raises(hvd.Mismatch, "prescale factors differ", tape.gradient, loss, variable)
    assert "0.5" in str(error) and "0.25" in str(error), error
    equal(hvd.allreduce(tf.ones([2]), op=hvd.Sum), [SIZE] * 2)
    raises(hvd.InvalidArgument, "splits", hvd.alltoall, tf.ones([SIZE]), splits=[SIZE + 1] * SIZE)
    raises(tf.errors.InvalidArgumentError, "splits", hvd.alltoall, tf.ones([SIZE]), splits=[SIZE + 1] * SIZE)
    raises(ValueError, "one line", hvd.allreduce, tf.ones([2]), name="two\nlines")
    assert hvd.distrun_error(ValueError("mine")) is None


def a_variable_that_one_rank_lacks() -> None:
    """The stall report names the variable. The others go on when rank 0 leaves the step, here by submitting it
    later."""
    if SIZE == 1:
        return
    names = ["a", "b"] if RANK == 0 else ["a", "b", "odd"]
    variables = [tf.Variable(float(RANK), name=name) for name in names]
    if RANK == 0:
        hvd.broadcast_variables(variables, 0)
        time.sleep(3.0)  # until the stall report, which the test sets to half a second
        hvd.broadcast(tf.constant(7.0), 0, name="variable.odd")
    else:
        hvd.broadcast_variables(variables, 0)
        equal(variables[2], 7.0)


def layers_that_one_rank_has_more_of() -> None:
    """Keras numbers the layers of a process, and names variables after these numbers."""
    if RANK == 0:
        tf.keras.layers.Dense(1), hvd.SyncBatchNormalization()
    dense, normal = tf.keras.layers.Dense(1), hvd.SyncBatchNormalization()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(dense(normal(tf.ones([2, 1]) * RANK, training=True)))
    gradients = hvd.DistributedGradientTape(tape, op=hvd.Sum).gradient(loss, dense.trainable_variables)
    equal(gradients[1], [2 * SIZE])
    hvd.broadcast_variables(dense.trainable_variables, 0)
    assert len(set(hvd.allgather(tf.reshape(dense.kernel, [-1])).numpy())) == 1


def process_sets_and_join() -> None:
    if SIZE > 2:
        last = hvd.add_process_set([SIZE - 2, SIZE - 1])
        if last.included():
            for wrap in (lambda f: f, tf.function):
                equal(wrap(lambda: hvd.allreduce(tf.ones([2]) * RANK, process_set=last))(), [SIZE - 1.5] * 2)
                count, mine = wrap(
                    lambda: (hvd.size_op(last.process_set_id), hvd.process_set_included_op(last.process_set_id))
                )()
                assert int(count) == 2 and int(mine) == 1
                shares = wrap(lambda: hvd.reducescatter(tf.ones([3]), op=hvd.Sum, process_set=last))()
                equal(shares, [2.0] * (2 if last.rank() == 0 else 1))
                gradients_in_a_set(last, wrap)
                gradients_of_one_process(last, wrap)
        else:
            assert int(hvd.process_set_included_op(last.process_set_id)) == 0

        @tf.function
        def of_some_and_of_all(x):  # type: ignore[no-untyped-def]
            some = hvd.allreduce(x, op=hvd.Sum, process_set=last) if last.included() else 2.0
            return some, hvd.allreduce(x * 2.0, op=hvd.Sum)

        some, everyone = of_some_and_of_all(tf.constant(1.0))
        equal(some, 2.0)
        equal(everyone, 2.0 * SIZE)
        weight = tf.Variable(1.0)

        @tf.function
        def gradients_of_some_and_of_all():  # type: ignore[no-untyped-def]
            with tf.GradientTape(persistent=True) as tape:
                loss = weight * (RANK + 1.0)
            some = hvd.DistributedGradientTape(tape, process_set=last).gradient(loss, weight)
            return some, hvd.DistributedGradientTape(tape).gradient(loss, weight)

        some, everyone = gradients_of_some_and_of_all()
        equal(some, SIZE - 0.5 if last.included() else RANK + 1.0)
        equal(everyone, (SIZE + 1) / 2)
        hvd.barrier()
        assert hvd.remove_process_set(last)
        raises(ValueError, "no process set", hvd.size_op, last.process_set_id)

    @tf.function
    def step(x):  # type: ignore[no-untyped-def]
        return hvd.allreduce(x, op=hvd.Sum)

    for number in range(RANK + 2):  # the ranks have different numbers of batches
        have = sum(1 for r in range(SIZE) if r + 2 > number)
        equal(step(tf.ones([3])), [have] * 3)
        equal(hvd.allreduce(tf.ones([1]), op=hvd.Sum), [have])
    assert int(hvd.join()) in range(SIZE)
    equal(hvd.allreduce(tf.ones([1]), op=hvd.Sum), [SIZE])
    # A join through another front end also makes the ranks' numbers of unnamed operations equal again.
    for _ in range(RANK + 1):
        hvd.allreduce(tf.ones([2]))
    assert arrays.join() in range(SIZE)
    equal(hvd.allreduce(tf.ones([2]), op=hvd.Sum), [SIZE, SIZE])
    tf.function(hvd.barrier)()
    hvd.barrier()


def batch_norm() -> None:
    layer, plain = hvd.SyncBatchNormalization(momentum=0.0), tf.keras.layers.BatchNormalization()
    data = tf.reshape(tf.range(12 * SIZE, dtype=tf.float32) ** 1.5, [SIZE, 4, 3])
    factors = tf.reshape(tf.range(12 * SIZE, dtype=tf.float32) % 5.0, data.shape)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(data)
        result = layer(data[RANK], training=True)
        of_one_process = plain(tf.reshape(data, [-1, 3]), training=True)
        own = tf.reduce_sum(result * factors[RANK])
        everybodys = tf.reduce_sum(of_one_process * tf.reshape(factors, [-1, 3]))
    found, wanted = (tape.gradient(loss, data)[RANK] for loss in (own, everybodys))
    assert np.allclose(found, wanted, atol=1e-4 * float(tf.reduce_max(tf.abs(wanted)))), (found, wanted)
    whole = tf.reshape(data, [-1, 3])
    mean, variance = tf.nn.moments(whole, 0)
    equal(layer.moving_mean, mean)
    equal(layer.moving_variance, variance)
    assert np.allclose(result, (data[RANK] - mean) / tf.sqrt(variance + layer.epsilon), atol=1e-4)
    raises(ValueError, "fused", hvd.SyncBatchNormalization, fused=True)
    again = tf.keras.layers.deserialize(tf.keras.layers.serialize(layer))  # as a model's file does
    assert type(again) is hvd.SyncBatchNormalization and again.momentum == 0.0

    # Two layers without a name must not share one.
    keras_layers = [hvd.SyncBatchNormalization(momentum=0.0) for _ in range(2)]
    model = tf.keras.Sequential(keras_layers)
    equal(tf.function(lambda x: model(x, training=True))(data[RANK]), result)

    # Images: Keras 2 has a special kernel for them.
    images = tf.random.stateless_normal([SIZE, 2, 4, 4, 3], [1, 2])
    mean, variance = tf.nn.moments(tf.reshape(images, [-1, 3]), 0)
    of_images = hvd.SyncBatchNormalization(momentum=0.0)
    result = of_images(images[RANK], training=True)
    equal(of_images.moving_mean, mean)
    assert np.allclose(result, (images[RANK] - mean) / tf.sqrt(variance + of_images.epsilon), atol=1e-4)


def later(x, rank: int):  # type: ignore[no-untyped-def]
    """x in a graph, delayed on that rank."""

    def wait(value):  # type: ignore[no-untyped-def]
        time.sleep(0.2 * (rank == RANK))
        return value

    result = tf.py_function(wait, [x], tf.float32)
    result.set_shape(x.shape)
    return result


def names_in_one_function() -> None:
    """Operations with the same name in one graph do not mix, in whatever order TensorFlow starts them on each rank."""

    @tf.function
    def both(x):  # type: ignore[no-untyped-def]
        first = hvd.allreduce(later(x, 0), op=hvd.Sum, name="one")
        return first, hvd.allreduce(later(10.0 * x, SIZE - 1), op=hvd.Sum, name="one")

    first, second = both(tf.ones([2]))
    equal(first, [SIZE] * 2)
    equal(second, [10 * SIZE] * 2)
    variable = tf.Variable([1.0, 2.0])

    @tf.function
    def two_losses():  # type: ignore[no-untyped-def]
        with tf.GradientTape(persistent=True) as tape:
            one = tf.reduce_sum(later(variable * 1.0, 0) * (RANK + 1.0))
            other = tf.reduce_sum(later(variable * 1.0, SIZE - 1) * (RANK + 10.0))
        reducing = hvd.DistributedGradientTape(tape, op=hvd.Sum)
        return reducing.gradient(one, [variable])[0], reducing.gradient(other, [variable])[0]

    @tf.function
    def weighted(x, late: int):  # type: ignore[no-untyped-def]
        return hvd.allreduce(later(x * variable, late), op=hvd.Sum)

    @tf.function
    def weighted_after(x, late: int):  # type: ignore[no-untyped-def]
        return hvd.allreduce(later(x, late), op=hvd.Sum) * variable

    @tf.function
    def around(x, late: int):  # type: ignore[no-untyped-def]
        return inner(x, late) * variable

    @tf.function
    def inner(x, late: int):  # type: ignore[no-untyped-def]
        return hvd.allreduce(later(x, late), op=hvd.Sum)

    def two_traces(function):  # type: ignore[no-untyped-def]
        """TensorFlow may run these calls in any order: they only read the variable that they share."""
        # two traces, also on one rank
        return function(tf.constant(1.0), 0), function(tf.constant(10.0), max(1, SIZE - 1))

    for function in (weighted, weighted_after, around):
        equal(tf.function(two_traces)(function), np.array([[1.0, 2.0], [10.0, 20.0]]) * SIZE)
    for _ in range(3):
        one, other = two_losses()
        equal(one, [sum(rank + 1 for rank in range(SIZE))] * 2)
        equal(other, [sum(rank + 10 for rank in range(SIZE))] * 2)


def functions_of_functions() -> None:
    """TensorFlow reuses the trace of an inner function. Rank 0 traces the outer functions again, because it has fewer
    rows."""

    @tf.function
    def average(x):  # type: ignore[no-untyped-def]
        return hvd.allreduce(x)

    @tf.function
    def total(x):  # type: ignore[no-untyped-def]
        return hvd.allreduce(x, op=hvd.Sum, name="total")

    @tf.function
    def largest(x):  # type: ignore[no-untyped-def]
        return hvd.allreduce(x, op=hvd.Max, name="total")

    made: list[tf.Variable] = []

    @tf.function
    def train_step(batch):  # type: ignore[no-untyped-def]
        if not made:  # TensorFlow traces a function that creates variables twice
            made.append(tf.Variable(0.0))
        loss = average(made[0] + tf.reduce_max(batch))
        summed = hvd.allreduce(tf.reduce_sum(batch), op=hvd.Sum)
        named = hvd.allreduce(tf.reduce_sum(batch) + 1.0, op=hvd.Sum, name="total")
        return loss, summed, total(tf.reduce_sum(batch)), largest(tf.reduce_max(batch) + 1.0), named

    @tf.function
    def parts(batch):  # type: ignore[no-untyped-def]
        """One function, called on parts that have equal lengths on some ranks only."""
        return tf.reduce_sum(total(tf.reduce_sum(batch[:2]))), total(tf.reduce_sum(batch[2:]))

    for rows in (4, 4 - (RANK == 0)):
        have = tf.ones([rows])
        counted = hvd.allreduce(tf.reduce_sum(have), op=hvd.Sum, name="counted")
        for found, wanted in zip(train_step(have), (1, counted, counted, 2, counted + SIZE), strict=True):
            equal(found, wanted)
        equal(parts(have), [2 * SIZE, counted - 2 * SIZE])

    @tf.function
    def evaluate(x):  # type: ignore[no-untyped-def]
        """`total` got its numbers when another function traced it."""
        return total(later(x, 0)), hvd.allreduce(later(x, SIZE - 1), op=hvd.Max, name="total")

    equal(evaluate(tf.constant(1.0)), [SIZE, 1])


def factors_of_numpy() -> None:
    """The text of such a factor differs from that of a plain number. The result must not."""
    x = tf.Variable([2.0])
    for wrap in (lambda function: function, tf.function):
        with tf.GradientTape() as tape:
            found = wrap(lambda: hvd.allreduce(x, op=hvd.Sum, prescale_factor=np.float64(0.25)))()
        equal(found, [SIZE / 2])
        equal(tape.gradient(found, x), [SIZE / 4])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(x * 3)
    tape = hvd.DistributedGradientTape(tape, gradient_predivide_factor=np.sqrt(np.float32(SIZE)))
    equal(tape.gradient(loss, [x])[0], [3.0])


def results_keep_their_memory(wrap, mebibytes: int):  # type: ignore[no-untyped-def]
    """A result stays unchanged while others come and go. The returned results stay valid after shutdown."""
    x = tf.range(mebibytes << 18, dtype=tf.float32)
    total = sum(range(1, SIZE + 1))
    reduce = wrap(lambda factor: hvd.allreduce(x * factor, op=hvd.Sum))
    reduce_as_it_is = wrap(lambda: (hvd.allreduce(x, op=hvd.Sum), hvd.broadcast(x, 0), hvd.reducescatter(x)))
    gather = wrap(lambda factor: hvd.allgather(x * factor))
    exchange = wrap(lambda factor: hvd.alltoall(tf.repeat(x[None] * factor, SIZE, 0)))
    kept = []
    for step in range(4):
        factor = tf.constant(step + 1.0) * (RANK + 1)
        found = (reduce(factor), gather(factor), exchange(factor), *reduce_as_it_is())
        kept = [*kept[-2:], (step + 1.0, found)]
        del found
        for scale, (summed, gathered, exchanged, plain, sent, share) in kept:
            np.testing.assert_allclose(summed, x * scale * total, rtol=1e-5)
            for rank in range(SIZE):
                one = x * scale * (rank + 1.0)
                np.testing.assert_allclose(gathered[rank * len(x) : (rank + 1) * len(x)], one, rtol=1e-5)
                np.testing.assert_allclose(exchanged[rank], one, rtol=1e-5)
            np.testing.assert_allclose(plain, x * SIZE, rtol=1e-5)
            np.testing.assert_allclose(sent, x)
            rows = [len(x) // SIZE + (rank < len(x) % SIZE) for rank in range(SIZE)]
            np.testing.assert_array_equal(share, x[sum(rows[:RANK]) : sum(rows[: RANK + 1])])
    return kept[-1][1][1], np.concatenate([x * (4.0 * (rank + 1)) for rank in range(SIZE)])


def names_of_other_releases() -> None:
    """Names of Horovod that programs use although it does not document them."""
    equal(hvd.mpi_ops._allreduce(start), hvd.allreduce(start, op=hvd.Sum))
    equal(hvd._allreduce(start, "named", hvd.Average, 2.0, 0.5, process_set=hvd.global_process_set),
          hvd.allreduce(start))  # fmt: skip
    assert hvd.keras.callbacks.MetricAverageCallback is sys.modules["distrun.keras"].callbacks.MetricAverageCallback


def starts_again() -> None:
    gathered, wanted = results_keep_their_memory(lambda function: function, 1)
    hvd.shutdown()
    np.testing.assert_allclose(gathered + 1, wanted + 1, rtol=1e-5)
    raises(hvd.NotInitialized, "init", hvd.allreduce, tf.ones([1]))
    hvd.init()
    equal(hvd.allreduce(tf.ones([1]), op=hvd.Sum), [SIZE])


def hash_of_the_library() -> str:
    maps = Path("/proc/self/maps").read_text().split()
    (file,) = {word for word in maps if word.endswith("/libdistrun_tensorflow.so")}
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


assert "TF_CONFIG" not in os.environ
every_dtype_and_shape(lambda value: hvd.allreduce(value, op=hvd.Sum))
every_dtype_and_shape(tf.function(lambda value: hvd.allreduce(value, op=hvd.Sum)))
assert bool(hvd.allreduce(tf.constant([True]), op=hvd.Max)[0])
start = tf.constant([1.0, 2.0]) * (RANK + 1)
check_operations(every_operation(start))
compiled = tf.function(every_operation)
for _ in range(2):
    check_operations(compiled(start))
static_shapes()
gradients(lambda function: function)
gradients(tf.function)
gradients_of_one_process(hvd.global_process_set, lambda function: function)
gradients_of_one_process(hvd.global_process_set, tf.function)
other_gradients_are_refused()
gradient_from_outside()
sparse_and_tape()
local_layers()
what_only_moves()
if not SLOWER:
    more_rows_than_sizes_can_say()
variables_and_objects()
loops_and_pruning()
nan_travels()
overflow_on_one_rank()
mismatches()
a_variable_that_one_rank_lacks()
layers_that_one_rank_has_more_of()
process_sets_and_join()
batch_norm()
names_in_one_function()
functions_of_functions()
factors_of_numpy()
names_of_other_releases()
results_keep_their_memory(tf.function, 3)
raises(NotImplementedError, "Adasum", hvd.allreduce, start, op=hvd.Adasum)
raises(NotImplementedError, "elastic", lambda: hvd.elastic.TensorFlowState())
starts_again()
if not SLOWER:
    print(f"TensorFlow {tf.__version__} uses {hash_of_the_library()}", flush=True)
print("all checks passed", flush=True)
