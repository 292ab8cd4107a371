"""Operations in tf.vectorized_map and in Jacobians run once for all rows, or are refused. On 1 to 3 ranks."""

from __future__ import annotations

import json
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import tensorflow as tf
from tf_every_operation import equal, raises

import distrun.tensorflow as hvd
from distrun.tensorflow import _native

tf.get_logger().setLevel("CRITICAL")  # TensorFlow logs an error with its traces for each refusal of a converter
SLOWER = sys.argv[2:] == ["slower"]
if SLOWER:  # as with a TensorFlow that does not fit the op library

    def not_this_one() -> None:
        raise _native.Unavailable("it is of the year 2030")

    _native.load = not_this_one
    warnings.filterwarnings("ignore", "distrun.tensorflow uses its slower path.*it is of the year 2030")
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
TOTAL = SIZE * (SIZE + 1) / 2
TRACE = Path(sys.argv[1])  # path of the timeline
ONE = np.arange(15.0).reshape(5, 3)  # five rows; each rank has a multiple of them
MINE = tf.constant(ONE * (RANK + 1), tf.float32)


def eager(function):  # type: ignore[no-untyped-def]
    return function


def of_a_row(row):  # type: ignore[no-untyped-def]
    """Results that depend on the row, results that do not, and a group of both."""
    first, second = hvd.grouped_allreduce([row * 2.0, tf.constant(RANK + 1)], op=hvd.Sum)
    return {
        "sum": hvd.allreduce(row, op=hvd.Sum),
        "max": hvd.allreduce(tf.reduce_sum(row), op=hvd.Max, name="largest"),
        "same": hvd.allreduce(tf.ones([2]) * (RANK + 1.0), op=hvd.Sum),
        "narrow": hvd.allreduce(row, op=hvd.Sum, compression=hvd.Compression.bf16, prescale_factor=0.5),
        "root": hvd.broadcast(row, SIZE - 1),
        "group": [first, second],
    }


def check_rows(found) -> None:  # type: ignore[no-untyped-def]
    equal(found["sum"], ONE * TOTAL)
    equal(found["max"], ONE.sum(1) * SIZE)
    equal(found["same"], np.full([5, 2], TOTAL))
    np.testing.assert_allclose(found["narrow"], ONE * TOTAL / 2, rtol=0.02)
    equal(found["root"], ONE * SIZE)
    equal(found["group"][0], ONE * TOTAL * 2)
    equal(found["group"][1], np.full([5], TOTAL))


def rows() -> None:
    for wrap in (eager, tf.function):
        for rows_at_once in (of_a_row, tf.function(of_a_row)):
            work = wrap(lambda rows_at_once=rows_at_once: tf.vectorized_map(rows_at_once, MINE))
            for _ in range(2):
                check_rows(work())

    @tf.function
    def in_a_loop():  # type: ignore[no-untyped-def]
        total = tf.zeros([5, 3])
        for i in tf.range(4):
            total += tf.vectorized_map(lambda row: hvd.allreduce(row, op=hvd.Sum), MINE * tf.cast(i, tf.float32))
        return total

    def loop_in_it(row):  # type: ignore[no-untyped-def]
        for _ in tf.range(2):
            row = hvd.allreduce(row, op=hvd.Sum)
        return row

    equal(in_a_loop(), ONE * TOTAL * 6)
    equal(tf.function(lambda: tf.vectorized_map(tf.function(loop_in_it), MINE))(), ONE * TOTAL * SIZE)
    with tf.GradientTape() as tape:
        tape.watch(MINE)
        loss = tf.reduce_sum(tf.vectorized_map(lambda row: hvd.allreduce(row * row, op=hvd.Sum), MINE))
    equal(tape.gradient(loss, MINE), 2 * MINE * SIZE)

    def result_that_another_operation_takes(row):  # type: ignore[no-untyped-def]
        largest.assign(tf.maximum(largest, hvd.allreduce(row[0], op=hvd.Sum)))
        return hvd.allreduce(row, op=hvd.Sum)

    largest = tf.Variable(0.0)
    equal(tf.function(lambda: tf.vectorized_map(result_that_another_operation_takes, MINE))(), ONE * TOTAL)


def jacobians() -> None:
    """The rows of a Jacobian are the gradients that the tape gives for each element."""
    x = tf.Variable([1.0, 2.0, 3.0])
    matrix = tf.Variable(tf.reshape(tf.range(6.0), [2, 3]))
    own = RANK + 1.0

    def of_allreduce(wrap, **options):  # type: ignore[no-untyped-def]
        def work():  # type: ignore[no-untyped-def]
            with tf.GradientTape(persistent=True) as tape:
                y = hvd.allreduce(x * x * own, op=hvd.Sum) * own + hvd.allreduce(x * 10.0)
            return tape.jacobian(y, x, **options)

        return wrap(work)()

    wanted = np.diag([2.0, 4.0, 6.0]) * own * TOTAL + np.eye(3) * 10
    for wrap in (eager, tf.function):
        equal(of_allreduce(wrap), wanted)
        equal(of_allreduce(wrap, parallel_iterations=2), wanted)
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            y = hvd.allreduce(x * x * own, op=hvd.Sum)
        first = inner.jacobian(y, x)
    second = np.zeros([3, 3, 3])
    second[range(3), range(3), range(3)] = 2 * own * SIZE
    equal(outer.jacobian(first, x), second)
    with tf.GradientTape(persistent=True) as tape:
        of_rows = hvd.allreduce(matrix * own, op=hvd.Sum) ** 2
        gathered = hvd.allgather(x * own)
        sent = hvd.broadcast(x * own, SIZE - 1)
        scattered = hvd.reducescatter(tf.repeat(x, SIZE) * own, op=hvd.Sum)
        loss = x * own
    summed = np.arange(6.0).reshape(2, 3) * TOTAL
    found = np.array(tape.batch_jacobian(of_rows, matrix))
    equal(found, [np.diag(2 * row) * own * SIZE for row in summed])
    all_ask = np.eye(3) * own * SIZE  # every rank asks for the same element
    equal(tape.jacobian(gathered, x), np.concatenate([all_ask * (rank == RANK) for rank in range(SIZE)]))
    equal(tape.jacobian(sent, x), all_ask * (RANK == SIZE - 1))
    equal(hvd.DistributedGradientTape(tape).jacobian(loss, x), np.eye(3) * TOTAL / SIZE)
    raises(NotImplementedError, "experimental_use_pfor=False", tape.jacobian, scattered, x)
    # owners of the elements in the shares
    owners = [[(3 * rank + index) // SIZE for rank in range(SIZE)] for index in range(3)]
    by_element = [own * np.bincount(one, minlength=3) for one in owners]
    equal(tape.jacobian(scattered, x, experimental_use_pfor=False), by_element)


def refused() -> None:
    """All ranks refuse alike, before anything is sent. Afterwards the ranks are still in step."""
    operations = {
        "allgather": hvd.allgather,
        "alltoall": lambda row: hvd.alltoall(tf.repeat(row, SIZE)),
        "reducescatter": lambda row: hvd.reducescatter(tf.repeat(row, SIZE)),
        "join": lambda row: row + tf.cast(hvd.join(), tf.float32),
    }
    for wrap in (eager, tf.function):
        for word, operation in operations.items():
            error = raises(NotImplementedError, "use tf.map_fn", wrap(lambda f=operation: tf.vectorized_map(f, MINE)))
            assert re.search(rf"{word} '\w+\.\d' in tf\.vectorized_map", str(error)), error

    @tf.function
    def some_rows(row):  # type: ignore[no-untyped-def]
        return hvd.allreduce(row, op=hvd.Sum) if row[0] > 4.0 else row

    raises(NotImplementedError, "only some rows run", lambda: tf.vectorized_map(some_rows, MINE))
    if SIZE > 1:  # the ranks have different numbers of rows
        more = MINE[: 2 + (RANK == 0)]
        kind = tf.errors.UnknownError if SLOWER else tf.errors.FailedPreconditionError
        raises(kind, "rank 0 (localhost) has (3, 3)", lambda: tf.vectorized_map(lambda row: hvd.allreduce(row), more))
    equal(tf.map_fn(lambda row: hvd.allgather(row)[:3], MINE), ONE)


def each_runs_once() -> None:
    """Counts operations in the timeline, which rank 0 writes."""
    hvd.barrier()
    hvd.start_timeline(str(TRACE))
    tf.vectorized_map(lambda row: hvd.allreduce(row, op=hvd.Sum, name="counted") + hvd.broadcast(row, 0), MINE)
    hvd.stop_timeline()
    hvd.barrier()
    if RANK == 0:
        made = [event for event in json.loads(TRACE.read_text()) if event["name"] in ("ALLREDUCE", "BROADCAST")]
        names = sorted(event["args"]["tensor"] for event in made if event["pid"] == 0)
        assert [re.sub("#2", "", name) for name in names] == ["allreduce.counted", "broadcast.f.0"], names


rows()
jacobians()
refused()
if not SLOWER:
    each_runs_once()
print("all checks passed", flush=True)
