"""alltoall, reducescatter and join, on arrays and torch tensors, with gradients, on any number of ranks."""

from __future__ import annotations

from itertools import zip_longest

import numpy as np
import torch
from checks import raises, run

import distrun.numpy as nhvd
import distrun.torch as hvd
from distrun import _collectives


def rows_to(sender: int, receiver: int) -> int:
    """The number of rows that one rank sends to another. Differs between pairs, and is sometimes 0."""
    return (sender + 2 * receiver) % 3


def check_alltoall_with_splits() -> None:
    rank, size = hvd.rank(), hvd.size()
    splits = [rows_to(rank, to) for to in range(size)]
    blocks = [torch.full((rows, 2), 10.0 * rank + to) for to, rows in enumerate(splits)]
    spare = torch.full((2, 2), -1.0)  # goes to no rank
    expected = torch.cat([torch.full((rows_to(sender, rank), 2), 10.0 * sender + rank) for sender in range(size)])
    received = [rows_to(sender, rank) for sender in range(size)]
    lists = [[np.int64(rows) for rows in splits], [torch.tensor(rows) for rows in splits]]
    for given in (splits, torch.tensor(splits, dtype=torch.int32), np.array(splits), *lists):
        output, sizes = hvd.alltoall(torch.cat([*blocks, spare]), splits=given)
        assert torch.equal(output, expected)
        assert sizes.dtype == torch.int32 and sizes.tolist() == received
    array, counts = nhvd.alltoall(torch.cat(blocks).numpy(), splits=splits)
    assert np.array_equal(array, expected.numpy()) and counts.tolist() == received


def check_alltoall_equal_shares() -> None:
    rank, size = hvd.rank(), hvd.size()
    for dtype in (torch.uint8, torch.bool, torch.float16, torch.bfloat16, torch.int64, torch.float64):
        tensor = torch.arange(2 * size).remainder(2 + rank).to(dtype)
        expected = [torch.arange(2 * size).remainder(2 + r).to(dtype)[2 * rank : 2 * rank + 2] for r in range(size)]
        assert torch.equal(hvd.alltoall(tensor), torch.cat(expected))
    assert hvd.alltoall(torch.empty(0, 3)).shape == (0, 3)
    columns = torch.arange(4.0 * size).reshape(2, 2 * size).t()  # not contiguous
    assert torch.equal(hvd.alltoall(columns), torch.cat([columns[2 * rank : 2 * rank + 2]] * size))
    assert nhvd.synchronize(nhvd.alltoall_async(np.ones(size), name="a")).tolist() == [1.0] * size


def check_alltoall_async_gives_a_pair() -> None:
    """As in Horovod, with splits and without."""
    size = hvd.size()
    for splits in (None, [1] * size, torch.ones(size, dtype=torch.int64)):
        output, received = hvd.synchronize(hvd.alltoall_async(torch.ones(size), splits, name="a"))
        assert output.tolist() == [1.0] * size
        assert received.dtype == torch.int32 and received.tolist() == [1] * size


def check_reducescatter() -> None:
    rank, size = hvd.rank(), hvd.size()
    for rows in (0, 1, 2 * size, 2 * size + 1):
        share = rows // size + (1 if rank < rows % size else 0)
        begin = rank * (rows // size) + min(rank, rows % size)
        tensor = torch.arange(3.0 * rows).reshape(rows, 3) + rank
        whole = sum(torch.arange(3.0 * rows).reshape(rows, 3) + r for r in range(size))
        total = whole[begin : begin + share] if rows else torch.empty(0, 3)
        assert torch.equal(hvd.reducescatter(tensor, op=hvd.Sum), total)
        torch.testing.assert_close(hvd.reducescatter(tensor), total / size)
        torch.testing.assert_close(hvd.reducescatter(tensor, compression=hvd.Compression.fp16), total / size)
        assert np.array_equal(nhvd.reducescatter(tensor.numpy(), op=nhvd.Sum), total.numpy())
        scaled = hvd.reducescatter(tensor, op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.25)
        torch.testing.assert_close(scaled, total / 2)
        assert torch.equal(hvd.reducescatter(tensor, op=hvd.Max), tensor[begin : begin + share] - rank + size - 1)
    pair = hvd.grouped_reducescatter([torch.ones(size), torch.ones(2 * size, dtype=torch.int32)], op=hvd.Sum)
    assert pair[0].tolist() == [float(size)] and pair[1].tolist() == [size] * 2
    arrays = nhvd.grouped_reducescatter([np.ones(size), np.ones(size)], op=nhvd.Sum)
    assert [array.tolist() for array in arrays] == [[float(size)]] * 2


def check_errors_on_every_rank() -> None:
    if hvd.size() > 1:
        with raises(ValueError, "the splits"):
            hvd.alltoall(torch.ones(4), splits=[9] * hvd.size() if hvd.rank() == 1 else None, name="wrong")
    with raises(ValueError, "0 dimensions"):
        hvd.alltoall(torch.tensor(1.0))
    with raises(ValueError, "0 dimensions"):
        hvd.reducescatter(torch.tensor(1.0))
    with raises(ValueError, "whole numbers"):
        hvd.alltoall(torch.ones(2), splits=[0.5])
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()


def check_gradients() -> None:
    rank, size = hvd.rank(), hvd.size()
    tensor = torch.ones(size + 1, requires_grad=True)
    output, _ = hvd.alltoall(tensor, splits=[1] * size, name="to")
    (output * torch.arange(1.0, size + 1)).sum().backward()
    # Rank r got the element from this rank as its element number `rank`.
    assert tensor.grad is not None and tensor.grad.tolist() == [rank + 1.0] * size + [0.0]
    # The exact gradient is of the sum of all ranks' losses. Horovod's is larger by the number of ranks.
    for gradient, larger in (("exact", 1), ("horovod", size)):
        for op, factor in ((hvd.Sum, larger), (hvd.Average, larger / size)):
            tensor = torch.ones(size + 1, requires_grad=True)
            share = hvd.reducescatter(tensor, op=op, name="part", gradient=gradient)
            (share * (rank + 1)).sum().backward()
            expected = [1.0, *(float(r + 1) for r in range(size))]  # rank 0 has two rows
            assert tensor.grad is not None
            torch.testing.assert_close(tensor.grad, factor * torch.tensor(expected))
    tensor = torch.ones(size, requires_grad=True)
    share = hvd.reducescatter(tensor, op=hvd.Average, prescale_factor=2.0, postscale_factor=0.25)
    (share * (rank + 1)).sum().backward()
    assert tensor.grad is not None
    torch.testing.assert_close(tensor.grad, torch.arange(1.0, size + 1) / (2 * size))


def check_gradients_and_samples_of_a_set() -> None:
    if hvd.size() < 3:
        return
    ours = hvd.add_process_set([1, 2])
    if ours.included():
        for op, factor in ((hvd.Sum, 1.0), (hvd.Average, 0.5)):
            tensor = torch.ones(3, requires_grad=True)
            share = hvd.reducescatter(tensor, op=op, process_set=ours)
            (share * hvd.rank()).sum().backward()
            assert tensor.grad is not None and tensor.grad.tolist() == [factor, factor, 2 * factor]
        for pad in (True, False):
            samples = list(hvd.DistributedSampler(range(8), pad=pad, process_set=ours))
            both = hvd.allgather_object(samples, process_set=ours)
            assert [len(one) for one in both] == [4, 4] and sorted(both[0] + both[1]) == list(range(8))
    hvd.remove_process_set(ours)


def check_join() -> None:
    rank, size = hvd.rank(), hvd.size()
    for epoch in range(2):
        for step in range(1 + (rank + epoch) % size):
            still = sum(1 for r in range(size) if step < 1 + (r + epoch) % size)
            assert hvd.allreduce(torch.ones(4), op=hvd.Sum).tolist() == [still] * 4
            torch.testing.assert_close(hvd.allreduce(torch.ones(4)), torch.full((4,), still / size))
            assert hvd.allgather(torch.full((1,), float(rank)), name="g").shape == (still,)
            left = [r for r in range(size) if step < 1 + (r + epoch) % size]
            assert hvd.allgather_object({"rank": rank, "step": step}) == [{"rank": r, "step": step} for r in left]
            with raises(TypeError, "object" if left[-1] == rank else f"rank {left[-1]} could not"):
                hvd.allgather_object(object() if left[-1] == rank else 1)
        last = hvd.join()
        assert (last + epoch) % size == size - 1  # the rank with the most steps
    assert nhvd.allreduce(np.ones(2), op=nhvd.Sum).tolist() == [size] * 2
    if size > 1:
        if rank > 0:
            with raises(ValueError, "called join()"):
                hvd.alltoall(torch.ones(size), name="late")
        assert hvd.join() in range(size)
    for join in (hvd.join, lambda gpu: _collectives.join(hvd.global_process_set, gpu)):
        assert join(rank) in range(size)  # each rank may pass another GPU; on a CPU it is ignored


def check_sampler() -> None:
    for count in (hvd.size() * 4, hvd.size() * 4 + 1, 1, 0):
        for shuffle in (True, False):
            sampler = hvd.DistributedSampler(range(count), shuffle=shuffle, pad=False)
            orders = []
            for epoch in (0, 1, 0):
                sampler.set_epoch(epoch)
                mine = list(sampler)
                assert len(mine) == len(sampler)
                everyone = hvd.allgather_object(mine)
                orders.append([index for part in everyone for index in part])
                assert sorted(orders[-1]) == list(range(count))
                assert max(map(len, everyone)) - min(map(len, everyone)) <= 1
            assert orders[0] == orders[2] and (shuffle or orders[0] == orders[1])
    padded = hvd.DistributedSampler(range(hvd.size() + 1))
    assert len(list(padded)) == len(padded) == 2
    assert len(hvd.DistributedSampler(range(hvd.size() + 1), drop_last=True)) == (2 if hvd.size() == 1 else 1)
    with raises(ValueError, "pad=False"):
        hvd.DistributedSampler(range(3), drop_last=True, pad=False)


def check_each_sample_once_with_join() -> None:
    """A dataset that does not divide evenly. The weights are those of one process with the union of the ranks'
    batches."""
    data = torch.randn(5 * hvd.size() + 1, 3, generator=torch.Generator().manual_seed(0)).double()

    def network() -> torch.nn.Module:
        torch.manual_seed(0)
        return torch.nn.Linear(3, 2).double()

    def batches(rank: int, epoch: int) -> list[torch.Tensor]:
        # The last rank has one sample more. It is the root of the following broadcast.
        sampler = hvd.DistributedSampler(data, hvd.size(), hvd.size() - 1 - rank, pad=False)
        sampler.set_epoch(epoch)
        return [data[rows] for rows in torch.tensor(list(sampler)).split(1)]

    model, alone = network(), network()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model.named_parameters(), op=hvd.Sum
    )
    reference = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
    # Stepped after each batch: with different counts, the learning rates of the next epoch would differ.
    longest = max(len(batches(rank, 0)) for rank in range(hvd.size()))
    scheduler, by_reference = (
        torch.optim.lr_scheduler.OneCycleLR(one, max_lr=0.1, total_steps=3 * longest) for one in (optimizer, reference)
    )
    for epoch in range(3):
        for rows in batches(hvd.rank(), epoch):
            everyone = hvd.allreduce(torch.tensor(len(rows)), op=hvd.Sum, name="rows")
            optimizer.zero_grad()
            (model(rows).square().sum() / everyone).backward()
            optimizer.step()
            scheduler.step()
        last = hvd.join()
        assert last == hvd.size() - 1
        hvd.broadcast_parameters(model.state_dict(), root_rank=last)
        hvd.broadcast_optimizer_state(optimizer, root_rank=last)
        scheduler.load_state_dict(hvd.broadcast_object(scheduler.state_dict(), root_rank=last))
        for parts in zip_longest(*(batches(rank, epoch) for rank in range(hvd.size()))):
            rows = torch.cat([part for part in parts if part is not None])
            reference.zero_grad()
            (alone(rows).square().sum() / len(rows)).backward()
            reference.step()
            by_reference.step()
    torch.testing.assert_close(model.state_dict(), alone.state_dict())


if __name__ == "__main__":
    run(globals())
