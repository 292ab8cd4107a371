"""distrun.mxnet with the real MXNet, on any number of ranks: arrays, trainers and optimizers."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import mxnet as mx
import numpy as np
from checks import raises, run

import distrun.mxnet as hvd
from distrun.mxnet._adapter import collective

DTYPES = ("uint8", "int8", "int32", "int64", "float16", "float32", "float64")


def mine(shape: tuple[int, ...], dtype: str = "float32", rank: int | None = None) -> Any:
    """Values that every rank can compute for all ranks. Small, so that all sums are exact."""
    rank = hvd.rank() if rank is None else rank
    return mx.nd.array((np.arange(np.prod(shape)).reshape(shape) % 5 + rank + 1), dtype=dtype)


def everyone(shape: tuple[int, ...], dtype: str = "float32") -> Any:
    return np.stack([mine(shape, dtype, rank).asnumpy() for rank in range(hvd.size())])


def equal(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-6)


def check_allreduce() -> None:
    for dtype in DTYPES:
        found = hvd.allreduce(mine((3, 4), dtype), op=hvd.Sum)
        assert found.dtype == np.dtype(dtype)
        equal(found, everyone((3, 4), dtype).sum(axis=0, dtype=dtype))
    equal(hvd.allreduce(mine((5,))), everyone((5,)).mean(axis=0))
    equal(hvd.allreduce(mine((5,)), op=hvd.Max), everyone((5,)).max(axis=0))
    equal(hvd.allreduce(mine((5,)), op=hvd.Sum, prescale_factor=0.5), everyone((5,)).sum(axis=0) / 2)


def check_in_place_and_async() -> None:
    array = mine((4, 4))
    assert hvd.allreduce_(array, op=hvd.Sum) is array
    equal(array, everyone((4, 4)).sum(axis=0))
    handles = [hvd.allreduce_async(mine((3,)) * factor, op=hvd.Sum) for factor in (1, 2, 3)]
    for factor, handle in enumerate(handles, 1):
        equal(hvd.synchronize(handle), everyone((3,)).sum(axis=0) * factor)
        assert hvd.poll(handle)
    with raises(ValueError, "in-place"):
        hvd.allreduce_(np.ones(3))


def check_what_the_engine_has_not_computed_yet() -> None:
    left = mx.nd.ones((300, 300)) * (hvd.rank() + 1)
    product = mx.nd.dot(left, mx.nd.ones((300, 300)))
    total = sum(range(1, hvd.size() + 1)) * 300.0
    handle = hvd.allreduce_async_(product, op=hvd.Sum)
    assert float((hvd.synchronize(handle) + 1).min().asscalar()) == total + 1
    equal(product[0, :3], [total] * 3)


def check_rows() -> None:
    rank, size = hvd.rank(), hvd.size()
    equal(hvd.allgather(mine((rank + 1, 2))), np.concatenate([mine((r + 1, 2), rank=r).asnumpy() for r in range(size)]))
    equal(hvd.broadcast(mine((3,)), size - 1), mine((3,), rank=size - 1).asnumpy())
    array = mine((3,), "int32")
    assert hvd.broadcast_(array, 0) is array
    equal(array, mine((3,), "int32", 0).asnumpy())
    equal(
        hvd.reducescatter(mine((2 * size, 3)), op=hvd.Sum), everyone((2 * size, 3)).sum(axis=0)[2 * rank : 2 * rank + 2]
    )
    equal(hvd.alltoall(mx.nd.arange(size) + 10 * rank), [rank + 10 * other for other in range(size)])
    output, rows = hvd.alltoall(mx.nd.ones((size * 2, 1)), splits=mx.nd.array([2] * size, dtype="int32"))
    equal(output, np.ones((2 * size, 1)))
    assert rows.asnumpy().tolist() == [2] * size
    sent = [to + 1 for to in range(size)]  # the number of rows that each rank gets from every rank
    output, rows = hvd.alltoall(mine((sum(sent), 2)), splits=mx.nd.array(sent, dtype="int32"))
    of_all = everyone((sum(sent), 2))
    equal(output, np.concatenate([of_all[sender, sum(sent[:rank]) : sum(sent[: rank + 1])] for sender in range(size)]))
    assert rows.asnumpy().tolist() == [rank + 1] * size


def check_more_rows_than_int32_counts() -> None:
    """alltoall returns these numbers of rows. At that time the data have moved, so this must not fail."""
    for rows, dtype in (((3, 2**31 - 1), np.int32), ((3, 2**31), np.int64)):
        counts = collective.adapter.integers(rows)
        assert counts.dtype == dtype and counts.asnumpy().tolist() == list(rows)


def check_shares_without_a_row_are_refused_on_all_ranks() -> None:
    """All ranks refuse before any of them waits for the others."""
    rank, size = hvd.rank(), hvd.size()
    if size == 1:
        return
    few, enough = mine((size - 1, 3)), mine((size, 3))
    for attempt in (lambda: hvd.reducescatter(few), lambda: hvd.grouped_reducescatter([enough, few])):
        with raises(ValueError, f"not enough for {size} ranks", "set_np"):
            attempt()
    equal(hvd.reducescatter(enough, op=hvd.Sum), everyone((size, 3)).sum(axis=0)[rank : rank + 1])
    with mx.util.np_shape(True):
        equal(hvd.reducescatter(few, op=hvd.Sum), everyone((size - 1, 3)).sum(axis=0)[rank : rank + 1])


def check_groups() -> None:
    arrays = [mine((3,)), mine((2, 2), "int64")]
    for found, array in zip(hvd.grouped_allreduce(arrays, op=hvd.Sum), arrays, strict=True):
        equal(found, everyone(array.shape).sum(axis=0))
    rank, size = hvd.rank(), hvd.size()
    for found, array in zip(hvd.grouped_allgather(arrays), arrays, strict=True):
        dtype = np.dtype(array.dtype).name
        equal(found, np.concatenate([mine(array.shape, dtype, other).asnumpy() for other in range(size)]))
    for found, row in zip(hvd.grouped_reducescatter([mine((size, 2)), mine((size, 3))]), (2, 3), strict=True):
        equal(found, everyone((size, row)).mean(axis=0)[rank : rank + 1])
    found = hvd.grouped_allreduce_(arrays, op=hvd.Sum)
    assert all(one is array for one, array in zip(found, arrays, strict=True))
    equal(arrays[0], everyone((3,)).sum(axis=0))


def check_handles() -> None:
    rank, size = hvd.rank(), hvd.size()
    root, array = size - 1, mine((3,))
    handles = [
        hvd.allgather_async(array, name="gather"),
        hvd.broadcast_async(array, root, name="copy"),
        hvd.alltoall_async(mx.nd.arange(size) + 10 * rank, name="exchange"),
        hvd.reducescatter_async(mine((size, 2)), op=hvd.Sum, name="share"),
    ]
    found = [hvd.synchronize(handle) for handle in handles]
    equal(found[0], everyone((3,)).reshape(-1))
    equal(found[1], mine((3,), rank=root).asnumpy())
    equal(found[2], [rank + 10 * other for other in range(size)])
    equal(found[3], everyone((size, 2)).sum(axis=0)[rank : rank + 1])
    equal(array, mine((3,)).asnumpy())
    assert hvd.synchronize(hvd.broadcast_async_(array, root)) is array
    equal(array, mine((3,), rank=root).asnumpy())


def check_numpy_arrays_of_mxnet() -> None:
    array = mx.np.ones((2, 3))
    found = hvd.allreduce(array, op=hvd.Sum)
    assert isinstance(found, mx.np.ndarray) and float(found.sum()) == 6 * hvd.size()


def check_mismatch_and_what_cannot_travel() -> None:
    if hvd.size() > 1:
        with raises(hvd.Mismatch, "shape"):
            hvd.allreduce(mx.nd.ones((hvd.rank() + 2,)), name="odd")
    with raises(ValueError, "storage type"):
        hvd.allreduce(mx.nd.ones((2, 2)).tostype("csr"), name="sparse")


def check_objects_and_process_sets() -> None:
    assert hvd.broadcast_object({"from": hvd.rank()}, 0) == {"from": 0}
    assert hvd.allgather_object({"from": hvd.rank()}) == [{"from": rank} for rank in range(hvd.size())]
    if hvd.size() == 1:
        return
    alone = [hvd.add_process_set([rank]) for rank in range(hvd.size())]
    equal(hvd.allreduce(mine((3,)), op=hvd.Sum, process_set=alone[hvd.rank()]), mine((3,)).asnumpy())
    hvd.barrier()
    for each in alone:
        hvd.remove_process_set(each)


def data() -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    return random.normal(size=(24, 6)).astype(np.float32), random.integers(0, 3, 24).astype(np.float32)


def network(seed: int) -> Any:
    """Its first layer gets its number of inputs from the first batch."""
    mx.random.seed(seed)
    net = mx.gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(mx.gluon.nn.Dense(5, activation="tanh"), mx.gluon.nn.Dense(3, in_units=5))
    net.initialize(mx.init.Xavier(), force_reinit=True)
    return net


def train(trainer_of: Any, share: slice, broadcast: bool) -> list[Any]:
    inputs, labels = (part[share] for part in data())
    net = network(hvd.rank() if broadcast else 0)
    if broadcast:
        hvd.broadcast_parameters(net.collect_params(), root_rank=0)
    trainer = trainer_of(net.collect_params())
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    for _ in range(4):
        with mx.autograd.record():
            loss = loss_of(net(mx.nd.array(inputs)), mx.nd.array(labels))
        loss.backward()
        trainer.step(len(labels))
    return [value.data().asnumpy() for _, value in sorted(net.collect_params().items())]


def check_trainer_is_sample_exact() -> None:
    """Ranks with shares of the batch get the result of one process with the whole batch."""
    adam = ("adam", {"learning_rate": 0.05})
    expected = train(lambda params: mx.gluon.Trainer(params, *adam, kvstore=None), slice(None), broadcast=False)
    share = 24 // hvd.size()
    mine_ = slice(hvd.rank() * share, (hvd.rank() + 1) * share)
    ways = ({}, {"gradient_predivide_factor": 2.0}) if 24 % hvd.size() == 0 else ()
    for options in ways:
        found = train(lambda params, o=options: hvd.DistributedTrainer(params, *adam, **o), mine_, broadcast=True)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    fp16 = {"compression": hvd.Compression.fp16}
    found = train(lambda params: hvd.DistributedTrainer(params, *adam, **fp16), mine_, broadcast=True)
    for one, other in zip(found, expected, strict=True):
        if ways:
            np.testing.assert_allclose(one, other, rtol=0.02, atol=0.02)
        np.testing.assert_array_equal(hvd.broadcast(mx.nd.array(one), 0).asnumpy(), one)


def check_gradients_between_reduction_and_update_are_the_sum() -> None:
    """As in Horovod, where programs clip gradients at this point."""
    for predivide in (1.0, 2.0):
        weight = mx.gluon.Parameter("weight", shape=(3,), init="zeros")
        weight.initialize()
        options = {"learning_rate": 1.0}
        trainer = hvd.DistributedTrainer([weight], "sgd", options, gradient_predivide_factor=predivide)
        with mx.autograd.record():
            loss = (weight.data() * mine((3,))).sum()
        loss.backward(retain_graph=True)
        trainer.allreduce_grads()
        equal(weight.grad(), everyone((3,)).sum(axis=0) / predivide)
        trainer.update(2)
        equal(weight.data(), -everyone((3,)).mean(axis=0) / 2)
        loss.backward()
        trainer.step(2)
        equal(weight.data(), -everyone((3,)).mean(axis=0))


def check_a_compressed_gradient_does_not_overflow_as_a_sum() -> None:
    """For backends that average in float32. 65,504 is the largest float16."""
    if not hvd.shm_enabled():
        return
    weight = mx.gluon.Parameter("wide", shape=(3,), init="zeros")
    weight.initialize()
    trainer = hvd.DistributedTrainer([weight], "sgd", {"learning_rate": 1.0}, compression=hvd.Compression.fp16)
    with mx.autograd.record():
        loss = (weight.data() * 40000).sum()
    loss.backward()
    trainer.allreduce_grads()
    equal(weight.grad(), np.full(3, 40000.0 * hvd.size(), np.float32))
    with raises(ValueError, "such as hvd.Compression.fp16", "'fp16'"):
        hvd.DistributedTrainer([weight], "sgd", compression="fp16")


def check_trainer_takes_what_is_inside_a_distributed_optimizer() -> None:
    plain = mx.optimizer.SGD()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        trainer = hvd.DistributedTrainer(network(0).collect_params(), hvd.DistributedOptimizer(plain))
    assert trainer.optimizer is plain
    assert ["inside this one" in str(one.message) for one in warned] == [True]


def check_options_of_optimizers_and_trainers() -> None:
    sgd, params = mx.optimizer.SGD, network(0).collect_params()
    for wrong in ("sgd", sgd, None, 5):
        with raises(TypeError, "optimizer must be one of mx.optimizer", "mx.optimizer.create('sgd')", repr(wrong)[:60]):
            hvd.DistributedOptimizer(wrong)
    for wrong in (sgd, None, 5):
        with raises(TypeError, "optimizer must be a name", repr(wrong)[:60]):
            hvd.DistributedTrainer(params, wrong)
    with raises(ValueError, "already distributed"):
        hvd.DistributedOptimizer(hvd.DistributedOptimizer(sgd()))
    for kind, text, options in (
        (TypeError, "gradient_predivide_factor must be one number, not '2'", {"gradient_predivide_factor": "2"}),
        (ValueError, "gradient_predivide_factor must be a finite number", {"gradient_predivide_factor": 0}),
        (TypeError, "num_groups must be a whole number, not 'x'", {"num_groups": "x"}),
        (ValueError, "num_groups must be at least 0, not -1", {"num_groups": -1}),
        (TypeError, "from add_process_set", {"process_set": [0]}),
    ):
        with raises(kind, text):
            hvd.DistributedOptimizer(sgd(), **options)
        with raises(kind, text):
            hvd.DistributedTrainer(params, "sgd", **options)
    for prefix, kind, text in ((5, TypeError, "prefix must be a str"), ("a\nb", ValueError, "prefix must be one line")):
        with raises(kind, text):
            hvd.DistributedTrainer(params, "sgd", prefix=prefix)
    for wrong in ("fp16", None, hvd.Compression):
        with raises(ValueError, "such as hvd.Compression.fp16", repr(wrong)):
            hvd.DistributedTrainer(params, "sgd", compression=wrong)


def check_optimizer() -> None:
    optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=1.0))
    updater = mx.optimizer.get_updater(optimizer)
    weight, gradient = mx.nd.zeros((3,)), mine((3,))
    updater(0, gradient, weight)
    equal(weight, -everyone((3,)).mean(axis=0))
    optimizer.set_learning_rate(0.5)
    assert optimizer.learning_rate == 0.5


def check_what_is_set_on_an_optimizer_is_the_wrapped_ones() -> None:
    plain = mx.optimizer.SGD(learning_rate=1.0)
    optimizer = hvd.DistributedOptimizer(plain)
    optimizer.rescale_grad = 0.5
    optimizer.idx2name = {0: "frozen"}
    optimizer.set_lr_mult({"frozen": 0.0})
    assert (plain.rescale_grad, optimizer.rescale_grad, plain.lr_mult) == (0.5, 0.5, {"frozen": 0.0})
    for again in (copy.copy(optimizer), copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        weight = mx.nd.zeros((3,))
        mx.optimizer.get_updater(again)(1, mine((3,)), weight)
        equal(weight, -0.5 * everyone((3,)).mean(axis=0))


def check_copies_of_trainers_continue() -> None:
    """MXNet copies a network and its trainer without the gradients. Then the program creates these anew."""
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()

    def step(net: Any, trainer: Any) -> Any:
        share = slice(hvd.rank(), 24, hvd.size())
        inputs, labels = (mx.nd.array(part[share]) for part in data())
        with mx.autograd.record():
            loss = loss_of(net(inputs), labels)
        loss.backward()
        trainer.step(len(labels))
        return net

    for copied in (copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))):
        net = network(0)
        net(mx.nd.array(data()[0]))
        options = {"gradient_predivide_factor": 2.0, "prefix": "own."}
        trainer = hvd.DistributedTrainer(net.collect_params(), "adam", {"learning_rate": 0.05}, **options)
        step(net, trainer)
        other, its = copied((net, trainer))
        for request in ("null", "write"):
            other.collect_params().setattr("grad_req", request)
        for _ in range(2):
            step(net, trainer), step(other, its)
        for one, two in zip(net.collect_params().values(), other.collect_params().values(), strict=True):
            np.testing.assert_array_equal(one.data().asnumpy(), two.data().asnumpy())


def check_trainers_that_are_kept_or_dropped() -> None:
    """The next training of the network does not depend on them."""
    options = ("sgd", {"learning_rate": 0.5})
    expected = train(lambda params: hvd.DistributedTrainer(params, *options), slice(None), broadcast=True)
    kept = []

    def third(params: Any) -> Any:
        hvd.DistributedTrainer(params, *options)
        kept.append(hvd.DistributedTrainer(params, "adam"))
        kept.append(hvd.DistributedOptimizer(mx.optimizer.Adam()))
        return hvd.DistributedTrainer(params, *options)

    for one, other in zip(train(third, slice(None), broadcast=True), expected, strict=True):
        np.testing.assert_array_equal(one, other)


def check_an_optimizer_of_a_process_set_leaves_other_ranks_alone() -> None:
    if hvd.size() == 1:
        return
    members = hvd.add_process_set(list(range(hvd.size() - 1)))
    optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=1.0), process_set=members)
    own = mine((3,)).asnumpy()
    wanted = everyone((3,))[:-1].mean(axis=0) if members.included() else own
    for update in (optimizer.update, optimizer.update_multi_precision):
        weight, gradient = mx.nd.zeros((3,)), mine((3,))
        update(0, weight, gradient, optimizer.create_state(0, weight))
        equal(gradient, wanted)
        equal(weight, -wanted)
    hvd.barrier()
    hvd.remove_process_set(members)


def check_the_module_that_horovod_has_the_operations_in() -> None:
    from distrun.mxnet.mpi_ops import allreduce_, rank

    assert allreduce_ is hvd.allreduce_ and hvd.mpi_ops.rank is rank


def check_parameters_in_a_dict() -> None:
    arrays = {"b": mine((2,)), "a": mine((3, 1))}
    hvd.broadcast_parameters(arrays, root_rank=hvd.size() - 1, prefix="other.")
    equal(arrays["a"], mine((3, 1), rank=hvd.size() - 1).asnumpy())
    with raises(ValueError, "dict"):
        hvd.broadcast_parameters([mine((2,))])
    by_number = {1: mine((2,)), "a": mine((1,))}
    hvd.broadcast_parameters(by_number)
    equal(by_number[1], mine((2,), rank=0).asnumpy())


def check_what_is_no_parameter() -> None:
    """Refused before anything is sent, with any other values in the dict."""
    array = mine((2,))
    for wrong in (5, "x", np.ones(2), {"b": array}, None):
        with raises(
            TypeError, "parameter 'own.b' is of type", "not an array of MXNet or a Parameter", "broadcast_object"
        ):
            hvd.broadcast_parameters({"a": array, "b": wrong}, prefix="own.")
    for prefix, kind, text in ((5, TypeError, "prefix must be a str"), ("a\nb", ValueError, "prefix must be one line")):
        with raises(kind, text):
            hvd.broadcast_parameters({"a": array}, prefix=prefix)
    with raises(ValueError, "the name of a parameter must not contain a NUL"):
        hvd.broadcast_parameters({"a\0b": array})
    for wrong, kind in (("0", TypeError), (0.0, TypeError), (1 << 32, ValueError)):
        for given in ({"a": array}, network(0).collect_params()):
            with raises(kind, "root_rank must be", f"not {wrong!r}"):
                hvd.broadcast_parameters(given, wrong)
    equal(array, mine((2,)).asnumpy())


def check_arguments_of_operations() -> None:
    array = mine((hvd.size(),))
    reductions = (hvd.allreduce, hvd.allreduce_, hvd.reducescatter)
    for name, kind, text in (
        (5, TypeError, "name must be a str"),
        ("a\0b", ValueError, "name must not contain a NUL"),
        ("a\nb", ValueError, "name must be one line of text"),
    ):
        for call in (*reductions, hvd.allgather, hvd.alltoall):
            with raises(kind, text):
                call(array, name=name)
        for call in (hvd.grouped_allreduce, hvd.grouped_allreduce_, hvd.grouped_allgather, hvd.grouped_reducescatter):
            with raises(kind, text):
                call([array], name=name)
        with raises(kind, text):
            hvd.broadcast(array, 0, name=name)
    for call in (*reductions, hvd.allgather, hvd.alltoall):
        with raises(TypeError, "from add_process_set", "[0]"):
            call(array, process_set=[0])
    for call in reductions:
        for argument in ("prescale_factor", "postscale_factor"):
            with raises(TypeError, f"{argument} must be one number, not '2'"):
                call(array, **{argument: "2"})
    with raises(TypeError, "postscale_factor must be one number, not '2'"):
        hvd.grouped_reducescatter([array], postscale_factor="2")
    with raises(TypeError, "root_rank must be", "'0'"):
        hvd.broadcast(array, "0")
    factor = mx.np.array(0.5)
    equal(hvd.allreduce(array, op=hvd.Sum, prescale_factor=factor), everyone(array.shape).sum(axis=0) / 2)


def check_what_mxnet_makes_no_array_of() -> None:
    for wrong in (None, "text", object(), {"a": 1}, 1j):
        with raises(TypeError, "can make an array of, not", repr(wrong)):
            hvd.allreduce(wrong)
    for wrong in (2**24 + 1, np.array([1, 2**53 + 1]), 2**63 - 1):
        with raises(ValueError, "do not fit into float32", "dtype='int64'"):
            hvd.allreduce(wrong)
    for right in (3, True, 2.5, [1, 2], np.ones(2, np.uint16), np.float64(1), 2**40):
        equal(hvd.allreduce(right), np.asarray(right, np.float32))


if __name__ == "__main__":
    run(globals())
