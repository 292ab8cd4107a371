"""distrun.jax: gradients must equal those of one process that computes the sum of all ranks' losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from checks import raises, run

import distrun.jax as hvd

WAYS = {"now": lambda function: function, "compiled": jax.jit}
REDUCED: list[dict[str, Any]] = [
    {"op": hvd.Sum},
    {"op": hvd.Average},
    {"op": hvd.Sum, "prescale_factor": 2.0, "postscale_factor": 0.25},
    {"op": hvd.Average, "prescale_factor": 3.0, "postscale_factor": 0.5},
]
Case = tuple[str, Callable[[Any], Any], Callable[[list[Any], int], Any]]


def given(rank: int, rows: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(rank).normal(size=(rows, 2)), jnp.float32)


def loss_of(output: Any, rank: int) -> jax.Array:
    """A loss that differs between the ranks. Its gradient depends on the output."""
    return jnp.sin(output).sum() * (rank + 2) + jnp.square(output).sum()


def cases(ranks: list[int], members: hvd.ProcessSet, **options: Any) -> Iterator[Case]:
    """Yields a name, an operation, and a function that computes its result from all members' arrays for the member at a
    place."""
    every, last = len(ranks) + 1, ranks[-1]

    def share(total: Any, place: int) -> Any:
        return jnp.array_split(total, len(ranks))[place]  # the first shares are longer, as in distrun

    def scale(how: dict[str, Any]) -> float:
        average = 1 / len(ranks) if how["op"] == hvd.Average else 1.0
        return float(how.get("prescale_factor", 1.0) * how.get("postscale_factor", 1.0) * average)

    yield "gather", lambda x: hvd.allgather(x, process_set=members, **options), lambda xs, _: jnp.concatenate(xs)
    yield (
        "gather of a pytree",
        lambda x: hvd.allgather({"a": x[:1], "b": x}, process_set=members, **options)["b"],
        lambda xs, _: jnp.concatenate(xs),
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
            lambda xs, place, how=how: share(sum(x[:every] for x in xs), place) * scale(how),
        )
        if not options:
            yield (
                f"reduce {how}",
                lambda x, how=how: hvd.allreduce(x[:2], process_set=members, **how),
                lambda xs, _, how=how: sum(x[:2] for x in xs) * scale(how),
            )


def compare(members: hvd.ProcessSet, ranks: list[int]) -> None:
    mine = ranks.index(hvd.rank())
    for uneven in (False, True):
        rows = [len(ranks) + 2 + (rank if uneven else 0) for rank in ranks]
        for options in ({}, {"gradient": "horovod"}):
            for name, operation, whole in cases(ranks, members, **options):
                if uneven and "gather" not in name:
                    continue

                def total(xs: list[Any], whole: Any = whole) -> Any:
                    return sum(loss_of(whole(xs, place), rank) for place, rank in enumerate(ranks))

                wanted = jax.grad(total)([given(rank, count) for rank, count in zip(ranks, rows, strict=True)])[mine]
                if options:
                    wanted = wanted * (len(ranks) if "share" in name else 1 / len(ranks))
                ours = jax.grad(lambda x, operation=operation: loss_of(operation(x), hvd.rank()))
                for kind, way in WAYS.items():
                    if uneven and kind == "compiled":
                        continue  # in compiled programs every rank must send the same number of rows
                    found = way(ours)(given(hvd.rank(), rows[mine]))
                    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-5, err_msg=f"{name} {kind}")


def check_against_one_process() -> None:
    compare(hvd.global_process_set, list(range(hvd.size())))


def check_in_a_process_set() -> None:
    if hvd.size() < 3:
        return
    ranks = list(range(1, hvd.size()))
    members = hvd.add_process_set(ranks)
    if hvd.rank() in ranks:
        compare(members, ranks)
    hvd.remove_process_set(members)


def check_a_compiled_training_step() -> None:
    """With value_and_grad, vmap, and integers in the same operation."""

    def loss(w: Any, x: Any) -> Any:
        features, numbers = hvd.allgather((x @ w, jnp.arange(2)), gradient="horovod")
        return features.sum() + numbers.sum()

    w, x = jnp.ones((2, 2)), given(hvd.rank(), 3)
    slope = jax.jit(jax.grad(loss))(w, x)
    np.testing.assert_allclose(slope, jnp.broadcast_to(x.sum(0)[:, None], (2, 2)), rtol=1e-5)
    rows = jax.vmap(jax.grad(lambda row: hvd.broadcast(row, 0, gradient="horovod").sum()))(x)
    np.testing.assert_allclose(rows, jnp.full_like(x, float(hvd.rank() == 0)))


def check_other_words_are_refused() -> None:
    x = jnp.ones((hvd.size(), 2))
    for call in (hvd.allgather, hvd.grouped_allgather, hvd.reducescatter, hvd.grouped_reducescatter):
        with raises(ValueError, "gradient must be 'exact' or 'horovod', not 'mean'"):
            call(x, gradient="mean")
    with raises(ValueError, "gradient must be 'exact' or 'horovod', not None"):
        hvd.broadcast(x, 0, gradient=None)


run(globals())
