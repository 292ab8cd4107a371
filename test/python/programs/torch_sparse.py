"""DistributedOptimizer with tables whose gradients are sparse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from checks import raises, run
from torch import nn
from torch_optimizer import alone, assert_same, sgd, together

import distrun.torch as hvd


def check_sparse_gradients() -> None:
    def train(wrap: Callable[[Any], Any], rows: Callable[[int], torch.Tensor]) -> torch.Tensor:
        torch.manual_seed(0)
        table = nn.Embedding(10, 4, sparse=True)
        optimizer = wrap(torch.optim.SGD(table.parameters(), lr=0.5))
        for step in range(3):
            optimizer.zero_grad()
            table(rows(step)).square().mean(dim=(1, 2)).mean().backward()
            optimizer.step()
        return table.weight.detach()

    def own(step: int, rank: int | None = None) -> torch.Tensor:
        return torch.tensor([[(hvd.rank() if rank is None else rank), 5, step]])

    expected = train(lambda made: made, lambda step: torch.cat([own(step, rank) for rank in range(hvd.size())]))
    for dense in (False, True):
        result = train(lambda made, dense=dense: hvd.DistributedOptimizer(made, sparse_as_dense=dense), own)
        torch.testing.assert_close(result, expected)


def check_a_process_set() -> None:
    """An average is over the set's members, and a mismatch names them."""
    if hvd.size() < 3:
        return
    ours = hvd.add_process_set([1, 2])
    if ours.included():
        entries = torch.tensor([[2.0 * hvd.rank(), 1.0]])
        tensor = torch.sparse_coo_tensor([[hvd.rank()]], entries, (4, 2), check_invariants=True)
        result = hvd.synchronize(hvd.sparse_allreduce_async(tensor, "s", hvd.Average, process_set=ours))
        assert result.to_dense().tolist() == [[0.0, 0.0], [1.0, 0.5], [2.0, 0.5], [0.0, 0.0]]
        longer = torch.sparse_coo_tensor([[0]], entries, (4 + hvd.rank(), 2), check_invariants=True)
        with raises(hvd.Mismatch, "(5, 2) on rank 1", "(6, 2) on rank 2"):
            hvd.synchronize(hvd.sparse_allreduce_async(longer, "longer", hvd.Sum, process_set=ours))
    hvd.remove_process_set(ours)


def check_entries_outside_of_the_tensor() -> None:
    """As if changed in transit. Every rank gets an error with the name and writes no memory. The next sum works."""

    def total(place: list[int], shape: tuple[int, ...]) -> torch.Tensor:
        entries = torch.ones(1, *shape[len(place) :])
        places = torch.tensor(place if hvd.rank() == 1 else [0] * len(place), dtype=torch.int64).reshape(-1, 1)
        tensor = torch.sparse_coo_tensor(places, entries, shape, check_invariants=False)
        return hvd.synchronize(hvd.sparse_allreduce_async(tensor, "outside", hvd.Sum)).to_dense()

    for place, shape, differing in (
        ([4], (4, 2), "4 in dimension 0"),
        ([-1], (4, 2), "-1 in dimension 0"),
        ([1 << 62], (4,), f"{1 << 62} in dimension 0"),
        ([3, -5], (4, 2), "-5 in dimension 1"),
        ([0, 2], (4, 2, 3), "2 in dimension 1"),
    ):
        with raises(hvd.InvalidArgument, "sparse tensor outside", f"shape {shape}", differing) as caught:
            total(place, shape)
        assert caught[0].tensor == "outside"
    assert total([3, 1], (4, 2)).sum().item() == hvd.size()
    assert total([], ()).item() == hvd.size()


def check_sparse_gradients_that_some_ranks_do_not_have() -> None:
    """In the first step, in a later one, in no step before a later one, and after a rank ran out of data."""

    class Tables(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.later = nn.Embedding(6, 2, sparse=True), nn.Embedding(6, 2, sparse=True)
            self.dense = nn.Linear(2, 1)

        def loss(self, step: int, rank: int) -> torch.Tensor:
            used = self.dense(torch.ones(2)).sum()
            if (step + rank) % 2 == 0:
                used = used + self.first(torch.tensor([rank, 5])).square().sum()
            if step >= 2 and rank == step % 2:
                used = used + self.later(torch.tensor([step % 6])).square().sum()
            return used

    joined = (4, 0)  # in this step this rank has no data
    for passes in (1, 2):
        model, expected = Tables(), Tables()
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), backward_passes_per_step=passes
        )
        reference = torch.optim.SGD(expected.parameters(), lr=0.1)
        for step in range(7):
            out_of_data = step == joined[0] and hvd.rank() == joined[1]
            if not out_of_data:
                optimizer.zero_grad()
                for _ in range(passes):
                    (model.loss(step, hvd.rank()) / passes).backward()
                optimizer.step()
                assert model.first.weight.grad is None or model.first.weight.grad.is_sparse
            reference.zero_grad()
            with_data = [rank for rank in range(hvd.size()) if (step, rank) != joined]
            (sum(expected.loss(step, rank) for rank in with_data) / hvd.size()).backward()
            reference.step()
            if step == joined[0]:
                hvd.broadcast_parameters(model.state_dict(), root_rank=hvd.join())
        assert_same(model, expected)


def check_sparse_and_dense_gradients_of_one_parameter() -> None:
    if hvd.size() == 1:
        return
    table = nn.Embedding(4, 2, sparse=hvd.rank() == 0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=0.1), sparse_as_dense=True)
    table(torch.tensor([1])).sum().backward()
    optimizer.step()
    assert_same(together(sgd, 2), alone(sgd, 2))


def check_an_optimizer_that_takes_sparse_gradients_alone() -> None:
    """Its momentum moves only the rows that a step has used, as in one process, with and without sparse_as_dense. In
    the first step no rank uses the second table. In the second step only some ranks use it."""

    def rows(step: int, ranks: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        used = torch.tensor([[rank, 5, step] for rank in ranks])
        later = torch.tensor([[4 - rank, step] for rank in ranks if step == 2 or (step == 1 and rank == 0)])
        return used, later.reshape(-1, 2).long()

    def trained(wrap: Callable[[Any], Any], ranks: list[int]) -> nn.ModuleList:
        torch.manual_seed(0)
        tables = nn.ModuleList([nn.Embedding(10, 4, sparse=True), nn.Embedding(5, 2, sparse=True)])
        optimizer = wrap(torch.optim.SparseAdam(list(tables.parameters()), lr=0.1))
        for step in range(3):
            optimizer.zero_grad()
            used, later = rows(step, ranks)
            loss = tables[0](used).square().sum()
            if len(later) or len(ranks) > 1:  # one process: an unused table counts as zero, as it does here
                loss = loss + tables[1](later).square().sum()
            (loss / len(ranks)).backward()
            optimizer.step()
        return tables

    expected = trained(lambda made: made, list(range(hvd.size())))
    for dense in (False, True):
        wrap = lambda made, dense=dense: hvd.DistributedOptimizer(made, sparse_as_dense=dense)  # noqa: E731
        assert_same(trained(wrap, [hvd.rank()]), expected)


if __name__ == "__main__":
    run(globals())
