"""Bad arguments, and objects that are distributed twice. Refused with argument and value, eagerly and in graphs."""

from __future__ import annotations

import copy
import pickle
import unittest.mock

import numpy as np
import tensorflow as tf
from tf_every_operation import equal, raises

import distrun.tensorflow as hvd

hvd.init()
SIZE = hvd.size()
X = tf.ones([SIZE, 2])
SLICES = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), tf.constant([2, 2]))
REDUCTIONS = [
    lambda **options: hvd.allreduce(X, **options),
    lambda **options: hvd.allreduce(X, compression=hvd.Compression.bf16, **options),
    lambda **options: hvd.allreduce(SLICES, **options),
    lambda **options: hvd.grouped_allreduce([X, X], **options),
    lambda **options: hvd.grouped_allreduce([SLICES, X], **options),
    lambda **options: hvd.reducescatter(X, **options),
    lambda **options: hvd.grouped_reducescatter([X, X], **options),
]
ALL = [
    *REDUCTIONS,
    lambda **options: hvd.allgather(X, **options),
    lambda **options: hvd.grouped_allgather([X, X], **options),
    lambda **options: hvd.broadcast(X, 0, **options),
    lambda **options: hvd.alltoall(X, **options),
    lambda **options: hvd.broadcast_([tf.Variable(X)], 0, **options),
]


def refused(kind, texts, operation, **options) -> None:  # type: ignore[no-untyped-def]
    for wrap in (lambda function: function, tf.function):
        error = raises(kind, texts[0], wrap(lambda: operation(**options) and None))
        for text in texts[1:]:
            assert text in str(error), f"{text!r} is not in {error}"


def names_and_sets() -> None:
    for operation in ALL:
        refused(TypeError, ("name must be a str", "not 5"), operation, name=5)
        refused(TypeError, ("name must be a str", "not b'x'"), operation, name=b"x")
        refused(ValueError, ("name must not contain a NUL", r"'a\x00b'"), operation, name="a\0b")
        for name in ("two\nlines", "two\rlines", ""):
            refused(ValueError, ("name must be one line of text", repr(name)), operation, name=name)
        refused(TypeError, ("process_set must be a ProcessSet", "not [0]"), operation, process_set=[0])
    raises(TypeError, "process_set must be a ProcessSet", hvd.join, [0])
    raises(TypeError, "process_set must be a ProcessSet", hvd.barrier, "all")


def factors_and_compression() -> None:
    for operation in REDUCTIONS:
        for argument in ("prescale_factor", "postscale_factor"):
            refused(TypeError, (f"{argument} must be one number", "not '2'"), operation, **{argument: "2"})
            refused(TypeError, (f"{argument} must be one number", "not None"), operation, **{argument: None})
            refused(
                TypeError,
                (f"{argument} must be a number, not a tensor", "tf.Tensor"),
                operation,
                **{argument: tf.constant(2.0)},
            )
        if operation is not REDUCTIONS[1]:
            words = ("compression must be a class with compress", "not 'fp16'")
            refused(ValueError, words, operation, compression="fp16")
        refused(ValueError, ("op must be Sum", "'sum'"), operation, op="sum")
    for factor in (np.array(2.0), np.float32(2.0)):  # numbers; the first one is not hashable
        equal(hvd.allreduce(X, prescale_factor=factor), X * 2)


def plain_factors_are_cheap() -> None:
    """tf.is_tensor takes as long as a small operation, so plain numbers must not need it."""
    with unittest.mock.patch.object(tf, "is_tensor", wraps=tf.is_tensor) as asked:
        for operation in REDUCTIONS:
            operation()
    assert not asked.called


def arrays_that_are_more_than_numbers() -> None:
    rows = np.ma.ones(2 * hvd.size())
    for operation in (hvd.allreduce, hvd.allgather, hvd.alltoall, hvd.reducescatter, lambda x: hvd.broadcast(x, 0)):
        raises(ValueError, "a masked array", operation, rows)
    raises(ValueError, "a masked array", hvd.grouped_allreduce, [X, rows])


def roots_and_variables() -> None:
    one = tf.Variable(X)
    for root, kind, text in ((1 << 32, ValueError, "not 4294967296"), ("0", TypeError, "'0'"), (0.5, TypeError, "0.5")):
        for broadcast in (
            lambda root_rank: hvd.broadcast(X, root_rank),
            lambda root_rank: hvd.broadcast_variables([one], root_rank),
            lambda root_rank: hvd.broadcast_([one], root_rank),
        ):
            refused(kind, ("root_rank must be", text), broadcast, root_rank=root)
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    for given, text in (
        (model, "such as model.variables, not Sequential"),
        (one, "not ResourceVariable"),
        ({"one": one}, "not dict"),
        ("one", "not str"),
        ([one, X], "number 1 is EagerTensor"),
        ([one, "x"], "number 1 is str"),
    ):
        raises(TypeError, text, hvd.broadcast_variables, given, 0)
        raises(TypeError, text, hvd.broadcast_, given, 0)


def gradients() -> None:
    """Bad arguments are refused where the tape or optimizer is made, not later in a step."""
    one = tf.Variable(1.0)
    plain = tf.compat.v1.train.GradientDescentOptimizer(1.0)
    for make in (
        lambda **options: hvd.DistributedGradientTape(tf.GradientTape(), **options),
        lambda **options: hvd.PartialDistributedGradientTape(tf.GradientTape(), **options),
        lambda **options: hvd.DistributedOptimizer(plain, **options),
    ):
        raises(ValueError, "such as hvd.Compression.fp16, not 'fp16'", make, compression="fp16")
        for factor in (0, float("nan")):
            raises(ValueError, "gradient_predivide_factor must be a finite", make, gradient_predivide_factor=factor)
        raises(TypeError, "gradient_predivide_factor must be one number, not '2'", make, gradient_predivide_factor="2")
        raises(TypeError, "process_set must be a ProcessSet", make, process_set=[0])
        for groups in ("abc", -1, 1.5, [one], [[one], "ab"]):
            raises(ValueError, "list of lists of tf.Variable, not", make, groups=groups)
        raises(ValueError, "lists of tf.Variable, not of str", make, groups=[["a"]])
        raises(ValueError, "more than one of the groups", make, groups=[[one], [one]])
        make(groups=[[one]])
        make(groups=2)
        make(groups=np.int64(2))
        make(num_groups=None)


def twice() -> None:
    """Objects that would reduce twice are refused."""
    v1 = tf.compat.v1.train
    optimizer = hvd.DistributedOptimizer(v1.GradientDescentOptimizer(1.0))
    around = v1.experimental.MixedPrecisionLossScaleOptimizer(optimizer, 2.0)
    for one in (optimizer, around):
        raises(ValueError, "optimizer is already distributed", hvd.DistributedOptimizer, one)
    tape = hvd.DistributedGradientTape(tf.GradientTape())
    for again in (hvd.DistributedGradientTape, hvd.PartialDistributedGradientTape):
        raises(ValueError, "tape is already distributed", again, tape)


def copies() -> None:
    """Optimizers continue; what cannot be copied is refused at the copy, with the cure."""
    own = tf.constant(hvd.rank() + 1.0)
    for copied in (copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))):
        weight = tf.Variable(0.0)
        optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.MomentumOptimizer(1.0, 0.5), op=hvd.Sum)
        total = SIZE * (SIZE + 1) / 2
        for moved in (1.0, 2.5):  # the momentum adds a half
            optimizer.apply_gradients(optimizer.compute_gradients(lambda weight=weight: weight * own, [weight]))
            equal(weight, -moved * total)
            optimizer = copied(optimizer) if copied is copy.deepcopy else optimizer
        again = copied(optimizer)
        assert again._reduction.op == hvd.Sum and again._reduction.process_set is hvd.global_process_set
        again.register_local_var(weight)
        raises(TypeError, "variables of one rank only (register_local_var) cannot be copied", copied, again)
        tape = hvd.DistributedGradientTape(tf.GradientTape())
        with tape:
            loss = weight * own
        for holder in (tape, {"tape": tape}):
            raises(TypeError, "Create it where the gradients are computed: hvd.Distrib", copied, holder)
        equal(tape.gradient(loss, weight), (SIZE + 1) / 2)


names_and_sets()
factors_and_compression()
plain_factors_are_cheap()
arrays_that_are_more_than_numbers()
roots_and_variables()
gradients()
twice()
copies()
TEXT = tf.constant(["a"])
for call in (hvd.allreduce, tf.function(hvd.allreduce)):
    raises(ValueError, "tensor 'allreduce.t': allreduce of dtype string is not", call, TEXT, op=hvd.Sum, name="t")
for call in (hvd.grouped_allgather, tf.function(hvd.grouped_allgather)):
    raises(ValueError, "tensor 'allgather.t_2of2': allgather of dtype string", call, [X, TEXT], name="t")
for dtype, cure in (
    (tf.string, "Send text with broadcast_object or allgather_object, as a list of bytes."),
    (tf.qint8, "To send its bytes, pass tf.bitcast(tensor, tf.int8)."),
    (tf.quint16, "To send its bytes, pass tf.bitcast(tensor, tf.uint16)."),
):
    unusual = TEXT if dtype == tf.string else tf.bitcast(tf.zeros([2], cure.split("tf.")[-1].rstrip(").")), dtype)
    raises(ValueError, f"dtype {dtype.name} is not supported. {cure}", hvd.broadcast, unusual, 0, name="unusual")
many = [tf.zeros([])] * 4097
raises(
    hvd.InvalidArgument,
    "'many' has 4097 tensors, but a group can have at most 4096",
    hvd.grouped_allreduce,
    many,
    name="many",
)
equal(hvd.allreduce(X, op=hvd.Sum), X * SIZE)  # all ranks have refused the same call, so they are still in step
print("all checks passed", flush=True)
