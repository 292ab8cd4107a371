"""The gradients of the operations must equal those of one process that computes the sum of all ranks' losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from checks import raises, run

import distrun.torch as hvd

Tensors = list[torch.Tensor]
Operation = Callable[[torch.Tensor, str, hvd.ProcessSet], torch.Tensor]
Whole = Callable[[Tensors, int], torch.Tensor]  # computes the result of the member at a place from all members' tensors

REDUCED = [
    {"op": hvd.Sum},
    {"op": hvd.Average},
    {"op": hvd.Sum, "prescale_factor": 2.0, "postscale_factor": 0.25},
    {"op": hvd.Average, "prescale_factor": 3.0, "postscale_factor": 0.5},
]


def given(rank: int, rows: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(rows, 3, generator=generator, dtype=torch.float64)


def loss_of(output: torch.Tensor, rank: int) -> torch.Tensor:
    """A loss that differs between the ranks. Its gradient depends on the output."""
    return output.sin().sum() * (rank + 2) + output.square().sum()


def factor_of(options: dict[str, Any], members: int) -> float:
    average = 1.0 / members if options["op"] == hvd.Average else 1.0
    return float(options.get("prescale_factor", 1.0) * options.get("postscale_factor", 1.0) * average)


def shares(total: torch.Tensor, place: int, members: int) -> torch.Tensor:
    return torch.tensor_split(total, members)[place]  # the first shares are longer, as in distrun


def operations(ranks: Sequence[int], **options: Any) -> list[tuple[str, Operation, Whole]]:
    """Operations on tensors whose numbers of rows may differ between the ranks."""
    last, every = ranks[-1], len(ranks) + 1  # makes shares differ
    cases: list[tuple[str, Operation, Whole]] = [
        (
            "allgather",
            lambda x, name, members: hvd.allgather(x, name=name, process_set=members, **options),
            lambda xs, place: torch.cat(xs),
        ),
        (
            "grouped_allgather",
            lambda x, name, members: torch.cat(
                hvd.grouped_allgather([x, x[:1] * 2], name=name, process_set=members, **options)
            ),
            lambda xs, place: torch.cat([*xs, *(x[:1] * 2 for x in xs)]),
        ),
        (
            "broadcast",
            lambda x, name, members: hvd.broadcast(x[:2], last, name=name, process_set=members, **options),
            lambda xs, place: xs[-1][:2],
        ),
    ]
    for number, how in enumerate(REDUCED):
        cases += [
            (
                f"reducescatter {how}",
                lambda x, name, members, how=how, number=number: hvd.reducescatter(
                    x[:every], name=f"{name}{number}", process_set=members, **how, **options
                ),
                lambda xs, place, how=how: shares(sum(x[:every] for x in xs), place, len(xs)) * factor_of(how, len(xs)),
            ),
            (
                f"grouped_reducescatter {how}",
                lambda x, name, members, how=how, number=number: hvd.grouped_reducescatter(
                    [x[:1], x[:every]], name=f"{name}{number}", process_set=members, **how, **options
                )[1],
                lambda xs, place, how=how: shares(sum(x[:every] for x in xs), place, len(xs)) * factor_of(how, len(xs)),
            ),
        ]
    return cases


def others(ranks: Sequence[int]) -> list[tuple[str, Operation, Whole]]:
    """Operations that have only one kind of gradient."""
    cases: list[tuple[str, Operation, Whole]] = [
        (
            "alltoall",
            lambda x, name, members: hvd.alltoall(x, [1] * len(ranks), name=name, process_set=members)[0],
            lambda xs, place: torch.cat([x[place : place + 1] for x in xs]),
        ),
    ]
    for number, how in enumerate(REDUCED):
        cases.append(
            (
                f"allreduce {how}",
                lambda x, name, members, how=how, number=number: hvd.allreduce(
                    x[:2], name=f"{name}{number}", process_set=members, **how
                ),
                lambda xs, place, how=how: sum(x[:2] for x in xs) * factor_of(how, len(xs)),
            )
        )
    return cases


def in_one_process(whole: Whole, ranks: Sequence[int], rows: dict[int, int]) -> dict[int, torch.Tensor]:
    xs = [given(rank, rows[rank]).requires_grad_() for rank in ranks]
    losses = [loss_of(whole(xs, place), rank) for place, rank in enumerate(ranks)]
    sum(losses, torch.zeros(())).backward()
    return {rank: torch.zeros_like(x) if x.grad is None else x.grad for rank, x in zip(ranks, xs, strict=True)}


def here(operation: Operation, name: str, members: hvd.ProcessSet, rows: int) -> torch.Tensor:
    x = given(hvd.rank(), rows).requires_grad_()
    loss_of(operation(x, name, members), hvd.rank()).backward()
    assert x.grad is not None
    return x.grad


def compare(members: hvd.ProcessSet, ranks: Sequence[int]) -> None:
    rows = {rank: 3 + len(ranks) + rank for rank in ranks}
    if hvd.rank() not in ranks:
        return
    for name, operation, whole in operations(ranks) + others(ranks):
        expected = in_one_process(whole, ranks, rows)[hvd.rank()]
        found = here(operation, name.replace(" ", "."), members, rows[hvd.rank()])
        torch.testing.assert_close(found, expected, msg=lambda text, name=name: f"{name}: {text}")
    for name, operation, whole in operations(ranks, gradient="horovod"):
        scale = float(len(ranks)) if "reducescatter" in name else 1.0 / len(ranks)
        expected = in_one_process(whole, ranks, rows)[hvd.rank()] * scale
        found = here(operation, f"as.horovod.{name}".replace(" ", "."), members, rows[hvd.rank()])
        torch.testing.assert_close(found, expected, msg=lambda text, name=name: f"horovod {name}: {text}")


def check_against_one_process() -> None:
    compare(hvd.global_process_set, range(hvd.size()))


def check_in_a_process_set() -> None:
    if hvd.size() < 3:
        return
    ranks = list(range(1, hvd.size()))
    members = hvd.add_process_set(ranks)
    compare(members, ranks)
    hvd.remove_process_set(members)


def check_the_gradient_of_a_gradient() -> None:
    """Also of the sum of all ranks' losses, with losses that are polynomials of the gathered rows."""
    for options in ({}, {"gradient": "horovod"}):
        x = given(hvd.rank(), 2).requires_grad_()
        gathered = hvd.allgather(x, **options)
        (first,) = torch.autograd.grad((gathered**3).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        scale = 1.0 if not options else 1.0 / hvd.size()
        torch.testing.assert_close(first.detach(), 3 * x.detach() ** 2 * hvd.size() * scale)
        torch.testing.assert_close(second, 6 * x.detach() * hvd.size() * scale**2)


def check_compiled() -> None:
    """As in eager mode, in one graph."""
    root = hvd.size() - 1
    for options in ({}, {"gradient": "horovod"}):
        for step in (
            lambda x, options=options: hvd.allgather(x * 2, **options),
            lambda x, options=options: hvd.broadcast(x * 2, root, **options),
            lambda x, options=options: hvd.reducescatter(x * 2, op=hvd.Sum, **options),
        ):
            results = []
            for way in (step, torch.compile(step, fullgraph=True, backend="aot_eager")):
                x = given(hvd.rank(), 2 * hvd.size()).requires_grad_()
                loss_of(way(x), hvd.rank()).backward()
                results.append(x.grad)
            torch.testing.assert_close(results[1], results[0])


def check_compression_and_narrow_numbers() -> None:
    x = given(hvd.rank(), hvd.size() + 1).to(torch.float32).requires_grad_()
    hvd.reducescatter(x, op=hvd.Average, compression=hvd.Compression.fp16).sum().backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, 1.0 / hvd.size()), rtol=1e-3, atol=0.0)
    half = given(hvd.rank(), 2).to(torch.bfloat16).requires_grad_()
    hvd.allgather(half, gradient="horovod").sum().backward()
    assert half.grad is not None and half.grad.dtype == torch.bfloat16
    torch.testing.assert_close(half.grad, torch.ones_like(half))
    whole = hvd.allgather(torch.arange(2), gradient="horovod")
    assert whole.dtype == torch.int64 and len(whole) == 2 * hvd.size()


def check_other_words_are_refused() -> None:
    x = torch.ones(hvd.size(), 2)
    calls: list[Callable[..., Any]] = [
        lambda **options: hvd.allgather(x, **options),
        lambda **options: hvd.grouped_allgather([x], **options),
        lambda **options: hvd.broadcast(x, 0, **options),
        lambda **options: hvd.reducescatter(x, **options),
        lambda **options: hvd.grouped_reducescatter([x], **options),
    ]
    for call in calls:
        for word in ("average", "Exact", None, 1):
            with raises(ValueError, "gradient must be 'exact' or 'horovod'", repr(word)):
                call(gradient=word)
    with raises(TypeError, "gradient"):
        hvd.allgather_async(x, gradient="exact")


run(globals())
