"""Every data operation on one small tensor, and the expected results. For tf_ops.py and tf_v1.py."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import tensorflow as tf

import distrun.tensorflow as hvd


def equal(found, wanted) -> None:  # type: ignore[no-untyped-def]
    np.testing.assert_allclose(np.asarray(found).astype(np.float64), np.asarray(wanted).astype(np.float64), rtol=1e-3)


def every_operation(x):  # type: ignore[no-untyped-def]
    """x has shape [2] and the value [1, 2] times rank + 1."""
    size = hvd.size()
    rows = tf.repeat(x[None], hvd.rank() + 1, 0)
    back, received = hvd.alltoall(tf.repeat(x[None], size, 0), splits=[1] * size)
    return {
        "average": hvd.allreduce(x),
        "max": hvd.allreduce(x, op=hvd.Max),
        "scaled": hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=1 / 3),
        "fp16": hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.fp16),
        "group": hvd.grouped_allreduce([x, tf.cast(x, tf.int32), tf.cast(x, tf.float64)], op=hvd.Sum),
        "gather": hvd.allgather(rows),
        "gathers": hvd.grouped_allgather([rows, tf.cast(rows, tf.int64)]),
        "broadcast": hvd.broadcast(x, size - 1),
        "alltoall": back,
        "received": received,
        "equal_alltoall": hvd.alltoall(tf.repeat(x[None], size, 0)),
        "scatter": hvd.reducescatter(tf.repeat(x[None], size + 1, 0), op=hvd.Sum),
        "scatters": hvd.grouped_reducescatter([tf.repeat(x[None], size, 0)] * 2),
        "world": [hvd.rank_op(), hvd.size_op(), hvd.local_rank_op(), hvd.local_size_op()],
        "included": hvd.process_set_included_op(),
    }


def check_operations(results) -> None:  # type: ignore[no-untyped-def]
    rank, size = hvd.rank(), hvd.size()
    one, total = np.array([1.0, 2.0]), size * (size + 1) / 2
    stairs = np.concatenate([np.tile(one * (r + 1), (r + 1, 1)) for r in range(size)])
    ranks = np.stack([one * (r + 1) for r in range(size)])
    equal(results["average"], one * total / size)
    equal(results["max"], one * size)
    equal(results["scaled"], one * total / 6)
    equal(results["fp16"], one * total)
    for result, dtype in zip(results["group"], (tf.float32, tf.int32, tf.float64), strict=True):
        assert result.dtype == dtype
        equal(result, one * total)
    equal(results["gather"], stairs)
    equal(results["gathers"][0], stairs)
    equal(results["gathers"][1], stairs)
    equal(results["broadcast"], one * size)
    equal(results["alltoall"], ranks)
    equal(results["equal_alltoall"], ranks)
    equal(results["received"], np.ones(size))
    equal(results["scatter"], np.tile(one * total, (2 if rank == 0 else 1, 1)))
    equal(results["scatters"][1], one[None] * total / size)
    equal(results["world"], [rank, size, hvd.local_rank(), hvd.local_size()])
    equal(results["included"], 1)


def raises(kind, text: str, function, *arguments, **options):  # type: ignore[no-untyped-def]
    try:
        function(*arguments, **options)
    except kind as error:
        assert text in str(error), f"{text!r} is not in {error}"
        return error
    raise AssertionError(f"{kind} was not raised")


def check_class_of_tensorflow(error: Any) -> None:
    """An eager Mismatch. Programs catch TensorFlow's class, and a pickle of it has distrun's."""
    assert isinstance(error, tf.errors.FailedPreconditionError) and error.op is None and error.error_code == 9
    assert error.message == str(error) and error.tensor in repr(error)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is hvd.Mismatch and str(again) == str(error) and again.ranks == error.ranks
