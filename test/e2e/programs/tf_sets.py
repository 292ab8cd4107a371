"""Gradients in a process set of two of three ranks. Part of tf_ops.py."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from tf_every_operation import equal

import distrun.tensorflow as hvd


def gradients_in_a_set(members: hvd.ProcessSet, wrap) -> None:  # type: ignore[no-untyped-def]
    """Its two members call this. Roots are ranks of the world. Sums and averages are over the set."""
    rank, (first, second) = hvd.rank(), members.ranks
    x = tf.Variable(tf.ones([3, 2]))
    table, own = tf.Variable(tf.ones([3, 2])), tf.Variable(1.0)

    def gradient_of(function):  # type: ignore[no-untyped-def]
        def work():  # type: ignore[no-untyped-def]
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(function(x * 1.0) * (rank + 1.0))
            return tape.gradient(loss, x)

        return wrap(work)()

    def of_rows():  # type: ignore[no-untyped-def]
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, [members.rank(), 2])) * (rank + 1.0) + own
        tape = hvd.DistributedGradientTape(tape, process_set=members)
        tape.register_local_source(own)
        return tape.gradient(loss, [table, own])

    ones, mean = np.ones([3, 2]), (first + second) / 2 + 1
    owners = np.array([first + 1, first + 1, second + 1])[:, None]
    for root in members.ranks:
        found = gradient_of(lambda v, root=root: hvd.broadcast(v, root, process_set=members))
        equal(found, ones * 2 * mean * (rank == root))
    equal(gradient_of(lambda v: hvd.allgather(v[: members.rank() + 1], process_set=members)),
          ones * 2 * mean * (np.arange(3) <= members.rank())[:, None])  # fmt: skip
    equal(gradient_of(lambda v: hvd.reducescatter(v, op=hvd.Sum, process_set=members)), ones * owners)
    equal(gradient_of(lambda v: hvd.reducescatter(v, process_set=members)), ones * owners / 2)
    for options, scale in (({}, 1), ({"gradient": "horovod"}, 2)):
        found = gradient_of(lambda v, options=options: hvd.reducescatter(v, process_set=members, **options))
        equal(found, ones * owners / 2 * scale)
        found = gradient_of(lambda v, options=options: hvd.broadcast(v, second, process_set=members, **options))
        equal(found, ones * 2 * mean / scale * (rank == second))
    of_table, of_own = wrap(of_rows)()
    equal(of_own, 0.5)
    equal(tf.convert_to_tensor(of_table), np.array([[first + 1] * 2, [second + 1] * 2, [mean * 2] * 2]) / 2)
