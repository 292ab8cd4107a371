"""Loops over datasets in one tf.function. TensorFlow gives their bodies the same name, and does not order loops that
use different variables. An operation of one loop must not match another rank's operation of the other loop."""

from __future__ import annotations

import time

import tensorflow as tf
from tf_every_operation import equal

import distrun.tensorflow as hvd

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


def later(value, rank: int):  # type: ignore[no-untyped-def]
    """`value`, delayed on one rank."""

    def wait(given):  # type: ignore[no-untyped-def]
        time.sleep(0.02 * (rank == RANK))
        return given

    return tf.ensure_shape(tf.numpy_function(wait, [value], value.dtype), value.shape)


def train(name: str | None) -> None:
    first, second = tf.Variable(0.0), tf.Variable(0.0)
    ones, tens = (tf.data.Dataset.from_tensor_slices([value] * 3) for value in (1.0, 10.0))

    @tf.function
    def epoch():  # type: ignore[no-untyped-def]
        for x in ones:
            first.assign_add(hvd.allreduce(later(x, 0), op=hvd.Sum, name=name))
        for x in tens:
            second.assign_add(hvd.allreduce(later(x, SIZE - 1), op=hvd.Sum, name=name))

    graph = epoch.get_concrete_function().graph.as_graph_def()
    nodes = [node for function in graph.library.function for node in function.node_def]
    used = [str(node.attr["tensor_name"]) for node in nodes if node.op.startswith("Distrun")]
    assert len(used) == 2 and len(set(used)) == 2, used
    for _ in range(3):
        epoch()
    equal([first, second], [9 * SIZE, 90 * SIZE])


train("loss")
train(None)
print("all checks passed", flush=True)
