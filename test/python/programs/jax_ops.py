"""distrun.jax on any number of ranks: every operation eagerly and in compiled programs, gradients, errors."""

from __future__ import annotations

import functools
import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from checks import raises, run

import distrun.jax as hvd

WAYS = {"now": lambda function: function, "compiled": jax.jit}


def same(found: Any, expected: Any) -> None:
    """Structure, dtypes and values must be equal."""
    assert jax.tree_util.tree_structure(found) == jax.tree_util.tree_structure(expected), (found, expected)
    for one, other in zip(jax.tree_util.tree_leaves(found), jax.tree_util.tree_leaves(expected), strict=True):
        assert one.dtype == jnp.asarray(other).dtype and one.shape == np.shape(other), (one, other)
        np.testing.assert_allclose(np.asarray(one, np.float64), np.asarray(other, np.float64), rtol=1e-5)


def of(rank: int, shape: tuple[int, ...], dtype: Any = jnp.float32) -> jax.Array:
    """The tensor of a rank: small whole numbers that differ between the ranks."""
    return ((jnp.arange(int(np.prod(shape))).reshape(shape) + 2 * rank) % 5).astype(dtype)


def everybody(shape: tuple[int, ...], dtype: Any = jnp.float32) -> list[jax.Array]:
    return [of(rank, shape, dtype) for rank in range(hvd.size())]


def check_allreduce_of_every_type() -> None:
    dtypes = (jnp.uint8, jnp.int8, jnp.int16, jnp.int32, jnp.float16, jnp.bfloat16, jnp.float32)
    reductions = {hvd.Sum: sum, hvd.Min: functools.partial(functools.reduce, jnp.minimum)}
    for way in WAYS.values():
        for op, expected in reductions.items():
            function = way(functools.partial(hvd.allreduce, op=op))
            tree = {str(dtype): of(hvd.rank(), (2, 3), dtype) for dtype in dtypes}
            same(function(tree), {str(dtype): expected(everybody((2, 3), dtype)).astype(dtype) for dtype in dtypes})
        flags = way(functools.partial(hvd.allreduce, op=hvd.Max))(jnp.array([hvd.rank() == 0, False]))
        assert flags.dtype == jnp.bool_ and flags.tolist() == [True, False]


def check_allreduce_scales_and_compresses() -> None:
    x = of(hvd.rank(), (3,))
    total = sum(everybody((3,)))
    for way in WAYS.values():
        same(way(hvd.allreduce)(x), total / hvd.size())
        scaled = functools.partial(hvd.allreduce, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
        same(way(scaled)(x), 2 * total)
        for small in (hvd.Compression.fp16, hvd.Compression.bf16):
            same(way(functools.partial(hvd.allreduce, compression=small, op=hvd.Sum))(x), total)
            same(way(functools.partial(hvd.allreduce, compression=small))(jnp.full(2, 1 + 2**-12)), jnp.ones(2))


def check_unsigned_integers_and_random_keys() -> None:
    key = jax.random.PRNGKey(hvd.rank())
    for way in WAYS.values():
        same(way(functools.partial(hvd.broadcast, root_rank=0))(key), jax.random.PRNGKey(0))
        same(
            way(functools.partial(hvd.allreduce, op=hvd.Sum))(jnp.array([2**31], jnp.uint32)),
            jnp.array([(2**31 * hvd.size()) % 2**32], jnp.uint32),
        )
        most = jnp.array([2**32 - 1], jnp.uint32)
        same(way(functools.partial(hvd.allreduce, op=hvd.Max))(most), most)
        with raises(Exception, "uint4"):  # JAX has one of them in each byte, XLA has two
            way(functools.partial(hvd.allreduce, op=hvd.Sum))(jnp.full(2, 9, jnp.uint4))


def check_allgather() -> None:
    for way in WAYS.values():
        tree = {"a": of(hvd.rank(), (2, 3)), "b": of(hvd.rank(), (1,), jnp.int32)}
        expected = {"a": jnp.concatenate(everybody((2, 3))), "b": jnp.concatenate(everybody((1,), jnp.int32))}
        same(way(hvd.allgather)(tree), expected)
        same(way(hvd.allgather)(jnp.zeros((0, 2))), jnp.zeros((0, 2)))
    uneven = hvd.allgather(jnp.full((hvd.rank() + 1, 2), float(hvd.rank())))
    same(uneven, jnp.concatenate([jnp.full((rank + 1, 2), float(rank)) for rank in range(hvd.size())]))
    with raises(ValueError, "at least one dimension"):
        jax.jit(hvd.allgather)(jnp.float32(1))


def check_sizes_that_differ_are_refused_in_a_compiled_program() -> None:
    if hvd.size() == 1:
        return
    with raises(Exception, "outside jax.jit", "1, 2"):
        jax.jit(hvd.allgather)(jnp.ones((hvd.rank() + 1, 2))).block_until_ready()
    with raises(ValueError, "outside jax.jit"):
        jax.jit(functools.partial(hvd.alltoall, splits=[1] * hvd.size()))(jnp.ones(hvd.size()))


def check_broadcast() -> None:
    root = hvd.size() - 1
    for way in WAYS.values():
        tree = [of(hvd.rank(), (2,)), of(hvd.rank(), (), jnp.int32)]
        same(way(functools.partial(hvd.broadcast, root_rank=root))(tree), [of(root, (2,)), of(root, (), jnp.int32)])


def check_alltoall() -> None:
    rank, size = hvd.rank(), hvd.size()
    expected = jnp.concatenate([of(sender, (2 * size, 2))[2 * rank : 2 * rank + 2] for sender in range(size)])
    for way in WAYS.values():
        same(way(hvd.alltoall)(of(rank, (2 * size, 2))), expected)
    rows = [to + 1 for to in range(size)]
    output, received = hvd.alltoall(jnp.repeat(jnp.arange(size), np.array(rows)), splits=rows)
    assert output.tolist() == [rank] * (size * (rank + 1)) and received.tolist() == [rank + 1] * size


def check_reducescatter() -> None:
    rank, size = hvd.rank(), hvd.size()
    rows = 2 * size + 1
    total = sum(everybody((rows, 2)))
    before = 2 * rank + min(rank, 1)
    mine = total[before : before + 2 + (rank == 0)]
    for way in WAYS.values():
        same(way(functools.partial(hvd.reducescatter, op=hvd.Sum))(of(rank, (rows, 2))), mine)
        same(way(hvd.reducescatter)([of(rank, (rows, 2))]), [mine / size])
    few = of(rank, (size - 1, 2))
    assert hvd.reducescatter(few).shape == (int(rank < size - 1), 2)
    if size > 1:
        with raises(ValueError, "one row for each"):
            jax.jit(hvd.reducescatter)(few)


def check_groups() -> None:
    """A tree is a group by itself. These are Horovod's functions for groups."""
    rank, size = hvd.rank(), hvd.size()
    pair = [of(rank, (size, 2)), of(rank, (size,), jnp.int32)]
    everyones = [everybody((size, 2)), everybody((size,), jnp.int32)]
    for way in WAYS.values():
        same(way(functools.partial(hvd.grouped_allreduce, op=hvd.Sum))(pair), [sum(each) for each in everyones])
        same(way(hvd.grouped_allgather)(pair), [jnp.concatenate(each) for each in everyones])
        shares = way(functools.partial(hvd.grouped_reducescatter, op=hvd.Sum))(pair)
        same(shares, [sum(each)[rank : rank + 1] for each in everyones])


def check_barrier() -> None:
    """After the barrier, a rank sees the files that the others made before it."""
    folder = Path(hvd.broadcast_object(tempfile.mkdtemp(prefix="distrun-test-") if hvd.rank() == 0 else None, 0))
    if hvd.rank() > 0:
        time.sleep(0.2)
    (folder / str(hvd.rank())).touch()
    hvd.barrier()
    assert len(list(folder.iterdir())) == hvd.size()
    hvd.barrier()
    if hvd.rank() == 0:
        shutil.rmtree(folder)


def check_gradients() -> None:
    """As in distrun.torch: the gradients of the sum of all ranks' losses."""
    rank, size = hvd.rank(), hvd.size()
    x = of(rank, (size + 1, 2))
    weights = jnp.arange(1.0, 2 * (size + 1) + 1).reshape(size + 1, 2)
    owners = jnp.repeat(jnp.arange(1.0, size + 1), np.array([2] + [1] * (size - 1)))[:, None] * jnp.ones_like(x)
    halved = functools.partial(hvd.reducescatter, prescale_factor=2.0, postscale_factor=0.25)
    for way in WAYS.values():
        summed = way(jax.grad(lambda x: (hvd.allreduce(x, op=hvd.Sum) * weights).sum()))(x)
        same(summed, weights * size)
        same(way(jax.grad(lambda x: (hvd.allreduce(x) * weights * (rank + 1)).sum()))(x), weights * (size + 1) / 2)
        sent = way(jax.grad(lambda x: (hvd.broadcast(x, size - 1) * weights).sum()))(x)
        same(sent, weights * size if rank == size - 1 else jnp.zeros_like(weights))
        scattered = way(jax.grad(lambda x: hvd.reducescatter(x, op=hvd.Sum).sum() * (rank + 1)))(x)
        same(scattered, owners)
        same(way(jax.grad(lambda x: halved(x).sum() * (rank + 1)))(x), owners / 2 / size)
        gathered = way(jax.grad(lambda x: (hvd.allgather(x) * (rank + 1)).sum()))(x)
        same(gathered, jnp.full_like(x, size * (size + 1) / 2))
        exchanged = way(jax.grad(lambda x: (hvd.alltoall(x) * (rank + 1)).sum()))(jnp.ones(size))
        same(exchanged, jnp.arange(1.0, size + 1))
        with raises(NotImplementedError, "has no gradient", "Max"):
            way(jax.grad(lambda x: hvd.allreduce(x, op=hvd.Max).sum()))(x)


def check_gradients_where_sizes_differ() -> None:
    rank, size = hvd.rank(), hvd.size()
    x = jnp.ones((rank + 1, 1))
    back = jax.grad(lambda x: (hvd.allgather(x) * (rank + 1)).sum())(x)
    same(back, jnp.full_like(x, size * (size + 1) / 2))
    rows = [to + 1 for to in range(size)]
    x = jnp.ones((sum(rows) + 2,))
    back = jax.grad(lambda x: (hvd.alltoall(x, splits=rows)[0] * (rank + 1)).sum())(x)
    same(back, jnp.concatenate([jnp.repeat(jnp.arange(1.0, size + 1), np.array(rows)), jnp.zeros(2)]))


def check_transformations() -> None:
    rank, size = hvd.rank(), hvd.size()
    x = of(rank, (4, 3))
    mean = sum(everybody((4, 3))) / size
    for way in WAYS.values():
        same(way(jax.vmap(hvd.allreduce))(x), mean)
        same(way(jax.vmap(hvd.allgather))(x), jnp.concatenate(everybody((4, 3)), axis=1))
        same(way(lambda x: jax.lax.scan(lambda c, row: (c + hvd.allreduce(row), None), x[0] * 0, x)[0])(x), mean.sum(0))
        same(way(lambda x: jax.lax.cond(True, hvd.allreduce, lambda x: x, x))(x), mean)
        same(way(jax.grad(lambda x: jax.grad(lambda y: (hvd.allreduce(y) ** 3).sum())(x).sum()))(x), 6 * mean)
    same(jax.checkpoint(hvd.allreduce)(x), mean)
    donated = jax.jit(hvd.allreduce, donate_argnums=0)
    same(donated(of(rank, (1000,))), sum(everybody((1000,))) / size)


def check_many_operations_in_one_program() -> None:
    """The operations run one after the other. In an order chosen by XLA, the ranks would wait for each other."""

    @jax.jit
    def many(xs: list[jax.Array]) -> list[jax.Array]:
        return [hvd.allreduce(x, op=hvd.Sum) for x in xs]

    xs = [of(hvd.rank() + index, (300,)) for index in range(60)]
    expected = [sum(of(rank + index, (300,)) for rank in range(hvd.size())) for index in range(60)]
    for _ in range(5):
        same(many(xs), expected)


def check_operations_of_a_function_keep_their_order() -> None:
    """With any shapes, also under grad and vmap: XLA runs small programs strictly in its own order."""

    def step(w: jax.Array, x: jax.Array) -> Any:
        def loss(w: jax.Array) -> Any:
            h = jnp.tanh(x @ w)
            largest = jax.vmap(functools.partial(hvd.allreduce, name="largest"))(h.max(0))
            return hvd.allreduce((h**2).mean(), name="loss"), (h.sum(0), largest)

        (value, (total, largest)), gradient = jax.value_and_grad(loss, has_aux=True)(w)
        return hvd.allgather(total, name="total"), hvd.allreduce(gradient, name="gradient"), value, largest

    names = ["allreduce.largest", "allreduce.loss", "allreduce.loss.grad", "allgather.total", "allreduce.gradient"]
    for rows in (1, 2, 5, 64, 4000):
        text = jax.jit(step).lower(jnp.ones((8, 4)), jnp.ones((rows, 8))).compile().as_text()
        assert re.findall(r'name = "([^"]*)"', text) == names, (rows, text)


def check_order_in_transformed_functions() -> None:
    """A value of one function must not get into another, and a value without a batch must not get one."""
    size, x, w = hvd.size(), of(hvd.rank(), (4, 3)), jnp.ones(5)
    total = functools.partial(hvd.allreduce, op=hvd.Sum)

    def two(x: jax.Array, w: jax.Array) -> jax.Array:
        return (total(x) ** 2).sum() + (total(w) ** 3).sum()

    def loops(x: jax.Array, w: jax.Array) -> jax.Array:
        carry, each = jax.lax.scan(lambda carry, row: (carry + two(row, w), total(row)), 0.0, x)
        chosen = jax.lax.cond(each.sum() >= 0, two, lambda x, w: total(x.sum()), x, w)
        return total(carry) + total(chosen)

    with jax.check_tracer_leaks(size == 1):  # collects garbage after every trace; ranks of every world trace alike
        for function in (two, jax.jit(two), jax.checkpoint(two)):
            for way in WAYS.values():
                by_x, by_w = way(jax.grad(function, (0, 1)))(x, w)
                same(by_x, 2.0 * size * sum(everybody((4, 3))))
                same(by_w, jnp.full(5, 3.0 * size**3))
        found = [way(jax.grad(loops))(x, w) for way in WAYS.values()]
        same(found[0], found[1])
        mapped = jax.jit(jax.vmap(jax.jit(two), (0, None)))
        same(mapped(x, w), (sum(everybody((4, 3))) ** 2).sum(1) + 5.0 * size**3)
    shapes = re.findall(r"custom_call @distrun_collective.* : \((.*)\) ->", mapped.lower(x, w).as_text())
    assert shapes == ["tensor<4x3xf32>", "tensor<5xf32>, tensor<f32>"], shapes


def check_one_name_for_several_operations_of_a_program() -> None:
    """They get numbers, the same in every trace. So do the operations of a vjp that is called several times."""
    from distrun.jax import _names

    def step(x: jax.Array) -> Any:
        metrics = [hvd.allreduce(x + index, op=hvd.Sum, name="metric") for index in range(12)]
        _, back = jax.vjp(functools.partial(hvd.allreduce, op=hvd.Sum, name="twice"), x)
        return metrics, [back(x + index)[0] for index in range(2)]

    names = ["allreduce.metric", *(f"allreduce.metric#{use}" for use in range(2, 13))]
    names += ["allreduce.twice", "allreduce.twice.grad", "allreduce.twice.grad#2"]
    for rows in (3, 4):
        equations = jax.make_jaxpr(step)(jnp.ones((rows, 100))).eqns
        assert sorted(name for one in equations for name in set(_names._names_of(one))) == sorted(names)
    compiled = jax.jit(step)
    expected = [jnp.full((3, 100), (1.0 + index) * hvd.size()) for index in range(12)]
    for _ in range(3):
        hvd.barrier()
        time.sleep(0.02 * hvd.rank())  # the others now have several operations in flight
        same(compiled(jnp.ones((3, 100))), (expected, expected[:2]))


def check_each_equation_is_looked_at_once() -> None:
    """distrun looks at equations for the names of operations. A step may have thousands of both."""
    from distrun.jax import _names

    names_of, looked = _names._names_of, [0]

    def counted(equation: Any) -> Any:
        looked[0] += 1
        return names_of(equation)

    def step(x: jax.Array) -> jax.Array:
        for _ in range(40):
            for _ in range(20):
                x = x + 1
            x = hvd.allreduce(x)
        return x

    _names._names_of = counted
    try:
        made = jax.make_jaxpr(step)(jnp.float32(1))
    finally:
        _names._names_of = names_of
    assert looked[0] < 2 * len(made.eqns), (looked[0], len(made.eqns))


def check_programs_in_flight_at_once() -> None:
    step = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))
    results = [step(jnp.float32(index)) for index in range(50)]
    assert [float(result) for result in results] == [index * hvd.size() for index in range(50)]


def check_one_rank_traces_again() -> None:
    """A batch of another size makes one rank compile again. The names must stay the same."""

    @jax.jit
    def step(batch: jax.Array) -> jax.Array:
        return hvd.allreduce(batch.sum(), op=hvd.Sum) + hvd.allreduce(batch.max(), op=hvd.Max)

    step(jnp.ones(4))
    assert float(step(jnp.ones(3 if hvd.rank() == 0 else 4))) == 4 * hvd.size() - 1 + 1


def check_what_a_function_closes_over_is_its_programs() -> None:
    """Such values travel when the program runs, not when it is traced. One rank may trace more often than others."""
    from distrun.jax import _names

    size, x, total = hvd.size(), of(hvd.rank(), (3,)), functools.partial(hvd.allreduce, op=hvd.Sum)

    @jax.jit
    def step(batch: jax.Array) -> tuple[Any, ...]:
        chosen = jax.lax.cond(batch[0] > 0, lambda: total(x, name="one"), lambda: total(x, name="other"))
        slope = jax.grad(lambda batch: (total(x, name="known") * batch.sum()).sum())(batch)
        return chosen, slope, hvd.broadcast_parameters({"w": x}, size - 1)["w"]

    names = {"allreduce.one", "allreduce.other", "allreduce.known", "broadcast.parameters"}
    assert {name for one in jax.make_jaxpr(step)(jnp.ones(4)).eqns for name in _names._names_of(one)} == names
    everywhere = sum(everybody((3,)))
    for rows in (4, 4 - (hvd.rank() == 0)):
        same(step(jnp.ones(rows)), (everywhere, jnp.full(rows, everywhere.sum()), of(size - 1, (3,))))
        same(hvd.allreduce(jnp.float32(hvd.rank()), op=hvd.Max), jnp.float32(size - 1))


def check_one_rank_traces_again_what_calls_kept_functions() -> None:
    """JAX keeps the traces of inner functions, and uses them when their caller is traced again."""
    size = hvd.size()
    total = jax.jit(functools.partial(hvd.allreduce, op=hvd.Sum))
    largest = jax.jit(functools.partial(hvd.allreduce, op=hvd.Max))
    kept = jax.checkpoint(lambda x: hvd.allreduce(x, op=hvd.Sum))

    def add(carry: jax.Array, row: jax.Array) -> tuple[jax.Array, None]:
        return carry + hvd.allreduce(row, op=hvd.Sum), None

    @jax.jit
    def step(batch: jax.Array, rows: jax.Array) -> tuple[jax.Array, ...]:
        return (
            total(batch.sum()),
            hvd.allreduce(batch.max(), op=hvd.Max),
            jax.lax.scan(add, jnp.float32(0), rows)[0],
            largest(batch.min()),
            total(rows),
            kept(rows[:1]),
            hvd.allreduce(batch.min(), op=hvd.Sum),
        )

    rows = jnp.ones(3)
    for length in (4, 4 - (hvd.rank() == 0)):
        everywhere = hvd.allreduce(jnp.float32(length), op=hvd.Sum)
        found = step(jnp.ones(length), rows)
        same(found, (everywhere, jnp.float32(1), 3.0 * size, jnp.float32(1), rows * size, rows[:1] * size, 1.0 * size))


def check_mismatches_are_everybodys_errors() -> None:
    if hvd.size() == 1:
        return
    for way in WAYS.values():
        with raises(Exception, "tensor 'allreduce.odd'", "shapes differ", "(2,)", "(3,)") as caught:
            way(functools.partial(hvd.allreduce, name="odd"))(jnp.ones(2 + (hvd.rank() == 1))).block_until_ready()
        error = hvd.error_of(caught[0])
        assert isinstance(error, hvd.Mismatch) and error.tensor == "allreduce.odd" and error.usable
        with raises(Exception, "tensor 'broadcast.roots'", "root"):
            jax.block_until_ready(
                way(functools.partial(hvd.broadcast, root_rank=hvd.rank(), name="roots"))(jnp.ones(2))
            )
    assert hvd.error_of(ValueError("something else")) is None
    same(jax.jit(hvd.allreduce)(jnp.ones(2)), jnp.ones(2))


def check_a_variable_that_one_rank_lacks() -> None:
    if hvd.size() == 1:
        return
    for way in WAYS.values():
        for least, expected in ((2, "group of 2"), (1, "'allreduce.params'")):
            params = [jnp.ones(2)] * (least + (hvd.rank() == 1))
            with raises(Exception, f"group of {least + 1}", expected) as caught:
                jax.block_until_ready(way(functools.partial(hvd.allreduce, name="params"))(params))
            assert isinstance(error := hvd.error_of(caught[0]), hvd.Mismatch) and error.usable


def check_elements_that_one_rank_lacks() -> None:
    """XLA drops operations on empty arrays. The other ranks would then wait for this rank's operation."""
    if hvd.size() == 1:
        return
    x = jnp.ones((hvd.size() if hvd.rank() else 0, 3))
    uneven, shapes = "all ranks must send the same number", "shapes differ"
    operations = {hvd.allgather: uneven, hvd.alltoall: uneven, hvd.allreduce: shapes}
    for operation, expected in {**operations, functools.partial(hvd.broadcast, root_rank=1): shapes}.items():
        for function in (operation, jax.grad(lambda x, operation=operation: operation(x).sum())):
            with raises(Exception, expected):
                jax.jit(function)(x).block_until_ready()
    same(jax.jit(hvd.allreduce)(jnp.ones(2)), jnp.ones(2))


def check_nothing_and_what_cannot_travel() -> None:
    for way in WAYS.values():
        same(way(jax.grad(lambda x: hvd.allgather(x).sum()))(jnp.zeros((0, 3))), jnp.zeros((0, 3)))
        assert way(hvd.allreduce)({}) == {}
        same(way(hvd.allreduce)(jnp.zeros((0, 3))), jnp.zeros((0, 3)))
        with raises(ValueError, "int4", "_2of" if way is jax.jit else "allreduce"):
            way(hvd.allreduce)([jnp.ones(1), jnp.ones(1, jnp.int4)])
    same(hvd.allreduce(2.0), jnp.float32(2))


def check_integers_that_jax_would_cut() -> None:
    for way in (hvd.allreduce, functools.partial(hvd.broadcast, root_rank=0), hvd.broadcast_parameters, hvd.alltoall):
        with raises(ValueError, "int64", "jax_enable_x64", "distrun.numpy"):
            way(np.full(hvd.size(), 2**40))
    with raises(ValueError, "uint64"):
        jax.jit(lambda: hvd.allreduce(np.uint64(2**33)))()
    same(hvd.allreduce(np.int64(2**30), op=hvd.Max), jnp.int32(2**30))
    same(hvd.allreduce(np.float64(0.5)), jnp.float32(0.5))


def check_process_sets() -> None:
    if hvd.size() == 1:
        return
    sets = [hvd.add_process_set([rank]) for rank in range(hvd.size())]
    mine = sets[hvd.rank()]
    for way in WAYS.values():
        same(way(functools.partial(hvd.allgather, process_set=mine))(of(hvd.rank(), (2,))), of(hvd.rank(), (2,)))
    for one in sets:
        hvd.remove_process_set(one)


def check_only_the_members_of_a_set_have_its_operations() -> None:
    """In a program of all ranks. The set's operations must not change the names of the others, given or automatic."""
    if hvd.size() == 1:
        return
    size, last = hvd.size(), hvd.size() - 1
    only = hvd.add_process_set([last])

    def slope(x: jax.Array, **arguments: Any) -> jax.Array:
        return jax.grad(lambda y: (hvd.allreduce(y, op=hvd.Sum, **arguments) ** 2).sum())(x)

    @jax.jit
    def step(x: jax.Array) -> tuple[jax.Array, ...]:
        if hvd.rank() == last:
            x = slope(slope(x, name="g", process_set=only), process_set=only)
        named = hvd.allreduce(x, op=hvd.Sum, name="g")
        unnamed = hvd.allreduce(named, op=hvd.Sum)
        return named, unnamed, slope(unnamed, name="g")

    for _ in range(3):
        named, unnamed = size + 3.0, size * (size + 3.0)
        same(step(jnp.ones(3)), tuple(jnp.full(3, one) for one in (named, unnamed, 2 * size**2 * unnamed)))
    hvd.remove_process_set(only)


def check_a_set_of_several_members() -> None:
    rank, size = hvd.rank(), hvd.size()
    if size < 3:
        return
    ours = hvd.add_process_set(range(1, size))
    start, weights = sum(range(rank)), jnp.arange(2.0 * size)
    scatter, gather = (functools.partial(one, process_set=ours) for one in (hvd.reducescatter, hvd.allgather))
    send = functools.partial(hvd.broadcast, root_rank=size - 1, process_set=ours)
    for way in WAYS.values() if rank > 0 else ():
        same(way(functools.partial(scatter, op=hvd.Sum))(jnp.ones(size)), jnp.full(1 + (rank == 1), size - 1.0))
        slope = way(jax.grad(lambda x: scatter(x, op=hvd.Sum).sum() * rank))(jnp.ones(size))
        same(slope, jnp.array([1.0, *range(1, size)]))
        slope = way(jax.grad(lambda x: (gather(x) * weights[: 2 * size - 2]).sum()))(jnp.ones(2))
        same(slope, weights[2 * rank - 2 : 2 * rank] * (size - 1))
        same(way(send)(of(rank, (2,))), of(size - 1, (2,)))
        same(way(jax.grad(lambda x: send(x).sum()))(jnp.ones(2)), jnp.full(2, (size - 1.0) * (rank == size - 1)))
    if rank > 0:
        slope = jax.grad(lambda x: (gather(x) * jnp.arange(sum(range(size)))).sum())(jnp.ones(rank))
        same(slope, jnp.arange(float(start), start + rank) * (size - 1))
    hvd.remove_process_set(ours)


def check_join() -> None:
    step = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum, name="joined"))
    for _ in range(hvd.rank() + 1):
        step(jnp.ones(2)).block_until_ready()
    assert hvd.join() == hvd.size() - 1


def check_a_vmap_by_itself_after_join() -> None:
    """Its operations are counted. The ranks have different counts by then."""
    mapped = jax.vmap(functools.partial(hvd.allreduce, op=hvd.Sum))
    for step in range(hvd.rank() + 2):
        have = sum(1 for rank in range(hvd.size()) if rank + 2 > step)
        same(mapped(jnp.ones((2, 3))), jnp.full((2, 3), float(have)))
    hvd.join()
    same(mapped(jnp.ones((2, 3))), jnp.full((2, 3), float(hvd.size())))


def check_initial_state_from_one_rank() -> None:
    state = {"w": of(hvd.rank(), (2, 2)), "step": hvd.rank(), "key": jax.random.key(hvd.rank()), "name": "adam"}
    everywhere = hvd.broadcast_parameters(state, root_rank=hvd.size() - 1)
    root = hvd.size() - 1
    same(everywhere["w"], of(root, (2, 2)))
    assert everywhere["step"] == root and type(everywhere["step"]) is int and everywhere["name"] == "adam"
    assert jax.random.key_data(everywhere["key"]).tolist() == jax.random.key_data(jax.random.key(root)).tolist()
    assert hvd.broadcast_object({"rank": hvd.rank()}, 0) == {"rank": 0}
    assert hvd.allgather_object({"rank": hvd.rank()}) == [{"rank": rank} for rank in range(hvd.size())]
    moments = hvd.broadcast_optimizer_state(
        {"count": jnp.int32(hvd.rank()), "mu": of(hvd.rank(), (3,))}, root_rank=root
    )
    same(moments, {"count": jnp.int32(root), "mu": of(root, (3,))})


def check_numbers_of_the_root_stay_numbers() -> None:
    """With all their digits: constants of jitted functions, and seeds. An array on the root becomes an array here."""
    mine = {"p": 0.1 + hvd.rank(), "inference": hvd.rank() == 0, "seed": 2**40 + hvd.rank(), "w": of(hvd.rank(), (2,))}
    found = hvd.broadcast_parameters(mine)
    expected = {"p": 0.1, "inference": True, "seed": 2**40}
    assert all(found[name] == value and type(found[name]) is type(value) for name, value in expected.items()), found
    same(found["w"], of(0, (2,)))
    same(hvd.broadcast_parameters([jnp.int32(7) if hvd.rank() == 0 else 0]), [jnp.int32(7)])
    assert hvd.broadcast_parameters([7 if hvd.rank() == 0 else jnp.int32(0)]) == [7]


def check_what_comes_back_may_move_between_devices_as_before() -> None:
    free, bound = jnp.ones(2), jax.device_put(jnp.ones(2), jax.devices()[0])
    for operation in (hvd.allreduce, hvd.allgather, functools.partial(hvd.broadcast, root_rank=0)):
        assert [one.committed for one in operation([free, bound])] == [False, True]
    assert not hvd.broadcast_parameters(free).committed


def check_nan_travels() -> None:
    value = jnp.array([jnp.nan if hvd.rank() == 0 else 1.0, 1.0])
    for way in WAYS.values():
        result = way(hvd.allreduce)(value)
        assert jnp.isnan(result[0]) and result[1] == 1.0


def check_several_devices_of_a_rank() -> None:
    """The test gives the ranks two devices for this check. A program may use one of them."""
    if jax.local_device_count() == 1:
        return
    same(jax.jit(hvd.allreduce)(jnp.ones(2)), jnp.ones(2))
    rows = jnp.ones((jax.local_device_count(), 2))
    same(jax.jit(jax.vmap(hvd.allreduce, axis_name="rows"))(rows), rows)
    same(jax.vmap(hvd.allreduce, axis_name="rows")(rows), rows)
    slope = jax.grad(lambda row: hvd.allreduce(row * row).sum())
    for way in (jax.vmap(slope, axis_name="rows"), jax.vmap(jax.jit(slope), axis_name="rows")):
        same(way(rows), 2 * rows)
    with raises(NotImplementedError, "several devices of one rank", "one rank for each device"):
        jax.pmap(functools.partial(hvd.allreduce, name="mapped"))(rows)


def check_by_callbacks() -> None:
    """This path is used if the native handler cannot be used, for example on a GPU."""
    from distrun.jax import _native

    ready, _native.ready = _native.ready, lambda _: False
    try:
        x = of(hvd.rank(), (3,))
        same(
            jax.jit(lambda t: hvd.allreduce(t, op=hvd.Sum))({"a": x, "b": x}), dict.fromkeys("ab", sum(everybody((3,))))
        )
        same(jax.jit(lambda t: hvd.allgather(t))(x), jnp.concatenate(everybody((3,))))
        same(jax.jit(jax.grad(lambda t: hvd.allreduce(t, op=hvd.Sum).sum()))(x), jnp.full(3, float(hvd.size())))
        check_one_rank_traces_again_what_calls_kept_functions()
        check_allreduce_scales_and_compresses()
        check_broadcast()
        check_reducescatter()
        assert jax.make_jaxpr(lambda t: hvd.allreduce(t))(jnp.ones(0)).effects  # otherwise XLA drops the operation
    finally:
        _native.ready = ready


def check_a_second_session() -> None:
    step = jax.jit(hvd.allreduce)
    same(step(jnp.ones(2)), jnp.ones(2))
    hvd.shutdown()
    with raises(Exception, "init"):
        step(jnp.ones(2)).block_until_ready()
    hvd.init()
    same(step(jnp.ones(2)), jnp.ones(2))


if __name__ == "__main__":
    run(globals())
