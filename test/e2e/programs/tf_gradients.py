"""Gradients must equal those of one process that computes the sum of all ranks' losses. Part of tf_ops.py and
tf_v1.py."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from tf_every_operation import equal, raises

import distrun.tensorflow as hvd

REDUCED = [
    {"op": hvd.Sum},
    {"op": hvd.Average},
    {"op": hvd.Sum, "prescale_factor": 2.0, "postscale_factor": 0.25},
    {"op": hvd.Average, "prescale_factor": 3.0, "postscale_factor": 0.5},
]


def given(rank: int, rows: int):  # type: ignore[no-untyped-def]
    return np.random.default_rng(rank).normal(size=(rows, 2))


def loss_of(output, rank: int):  # type: ignore[no-untyped-def]
    """A loss that differs between the ranks. Its gradient depends on the output."""
    return tf.reduce_sum(tf.sin(output)) * (rank + 2.0) + tf.reduce_sum(tf.square(output))


def slices_of(x, rank: int):  # type: ignore[no-untyped-def]
    return tf.IndexedSlices(x, tf.range(tf.shape(x)[0]) + rank, tf.constant([100, 2]))


def cases(ranks: list[int], members: hvd.ProcessSet, **options):  # type: ignore[no-untyped-def]
    """Yields a name, an operation, and a function that computes its result from all members' tensors for the member at
    a place. The numbers of rows differ between the ranks."""
    every, last = len(ranks) + 1, ranks[-1]

    def share(total, place: int):  # type: ignore[no-untyped-def]
        first = 2 + place - 1 if place else 0  # the first share is one row longer
        return total[first : 2 + place]

    def scale(how) -> float:  # type: ignore[no-untyped-def]
        average = 1 / len(ranks) if how["op"] == hvd.Average else 1.0
        return how.get("prescale_factor", 1.0) * how.get("postscale_factor", 1.0) * average

    yield "gather", lambda x: hvd.allgather(x, process_set=members, **options), lambda xs, _: tf.concat(xs, 0)
    yield (
        "gathers",
        lambda x: hvd.grouped_allgather([x[:1], x], process_set=members, **options)[1],
        lambda xs, _: tf.concat(xs, 0),
    )
    yield (
        "broadcast",
        lambda x: hvd.broadcast(x[:2], last, process_set=members, **options),
        lambda xs, _: xs[-1][:2],
    )
    for how in REDUCED:
        yield (
            f"share {how}",
            lambda x, how=how: hvd.reducescatter(x[:every], process_set=members, **how, **options),
            lambda xs, place, how=how: share(tf.add_n([x[:every] for x in xs]), place) * scale(how),
        )
        yield (
            f"shares {how}",
            lambda x, how=how: hvd.grouped_reducescatter([x[:every]] * 2, process_set=members, **how, **options)[1],
            lambda xs, place, how=how: share(tf.add_n([x[:every] for x in xs]), place) * scale(how),
        )
        if not options:
            yield (
                f"reduce {how}",
                lambda x, how=how: hvd.allreduce(x[:2], process_set=members, **how),
                lambda xs, _, how=how: tf.add_n([x[:2] for x in xs]) * scale(how),
            )
            yield (
                f"rows {how}",
                lambda x, how=how: hvd.allreduce(slices_of(x, hvd.rank()), process_set=members, **how).values,
                lambda xs, _, how=how: tf.concat(xs, 0) * scale(how),
            )


def in_one_process(whole, ranks: list[int]):  # type: ignore[no-untyped-def]
    xs = [tf.Variable(given(rank, len(ranks) + 2 + rank)) for rank in ranks]
    with tf.GradientTape() as tape:
        tensors = [x * 1.0 for x in xs]
        loss = tf.add_n([loss_of(whole(tensors, place), rank) for place, rank in enumerate(ranks)])
    found = tape.gradient(loss, xs[ranks.index(hvd.rank())], unconnected_gradients="zero")
    return tf.convert_to_tensor(found)


def gradients_of_one_process(members: hvd.ProcessSet, wrap) -> None:  # type: ignore[no-untyped-def]
    """The members of the set call this."""
    ranks = list(members.ranks)
    x = tf.Variable(given(hvd.rank(), len(ranks) + 2 + hvd.rank()))

    def gradient_of(function):  # type: ignore[no-untyped-def]
        with tf.GradientTape() as tape:
            loss = loss_of(function(x * 1.0), hvd.rank())
        return tf.convert_to_tensor(tape.gradient(loss, x))

    for options in ({}, {"gradient": "horovod"}):
        for name, operation, whole in cases(ranks, members, **options):
            factor = 1.0
            if options:
                factor = float(len(ranks)) if "share" in name else 1 / len(ranks)
            found = wrap(lambda operation=operation: gradient_of(operation))()
            np.testing.assert_allclose(found, in_one_process(whole, ranks) * factor, rtol=1e-6, err_msg=name)


def gradients_in_a_graph() -> None:
    """Gradients in a graph of TensorFlow 1."""
    tf1, ranks = tf.compat.v1, list(range(hvd.size()))
    mine = given(hvd.rank(), len(ranks) + 2 + hvd.rank())
    for options in ({}, {"gradient": "horovod"}):
        for name, operation, whole in cases(ranks, hvd.global_process_set, **options):
            factor = 1.0
            if options:
                factor = float(len(ranks)) if "share" in name else 1 / len(ranks)
            with tf.Graph().as_default(), tf1.Session() as session:
                x = tf1.placeholder(tf.float64, mine.shape)
                (slope,) = tf1.gradients(loss_of(operation(x * 1.0), hvd.rank()), [x])
                found = session.run(tf.convert_to_tensor(slope), {x: mine})
            with tf.Graph().as_default(), tf1.Session() as session:
                xs = [tf.constant(given(rank, len(ranks) + 2 + rank)) for rank in ranks]
                loss = tf.add_n([loss_of(whole(xs, place), rank) for place, rank in enumerate(ranks)])
                (slope,) = tf1.gradients(loss, [xs[hvd.rank()]])
                zero = np.zeros_like(mine)
                wanted = zero if slope is None else session.run(tf.convert_to_tensor(slope))
            np.testing.assert_allclose(found, wanted * factor, rtol=1e-6, err_msg=name)


def other_gradients_are_refused() -> None:
    rows = tf.ones([hvd.size(), 2])
    for call in (
        lambda **options: hvd.allgather(rows, **options),
        lambda **options: hvd.grouped_allgather([rows], **options),
        lambda **options: hvd.broadcast(rows, 0, **options),
        lambda **options: hvd.reducescatter(rows, **options),
        lambda **options: hvd.grouped_reducescatter([rows], **options),
    ):
        raises(ValueError, "gradient must be 'exact' or 'horovod', not 'mean'", call, gradient="mean")
    equal(hvd.allgather(tf.range(2), gradient="horovod"), list(range(2)) * hvd.size())
