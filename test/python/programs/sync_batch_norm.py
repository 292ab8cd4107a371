"""SyncBatchNorm on any number of ranks gives the result of torch's BatchNorm in one process with the whole batch."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from checks import raises, run
from torch import nn

import distrun.torch as hvd
import distrun.torch.c10d  # noqa: F401  # registers the backend

CHANNELS = 3
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
Layer = Callable[..., nn.Module]


def rows_of(rank: int) -> int:
    """The number of rows differs between the ranks."""
    return 2 * rank + 1


def cut(whole: torch.Tensor) -> torch.Tensor:
    """This rank's rows of the whole batch."""
    begin = sum(rows_of(rank) for rank in range(hvd.rank()))
    return whole[begin : begin + rows_of(hvd.rank())]


def whole_batch(seed: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Values far from zero, so that their squares are much larger than the variance."""
    rows = sum(rows_of(rank) for rank in range(hvd.size()))
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(rows, CHANNELS, *shape, generator=generator, dtype=torch.float64) * 3 + 10).to(dtype)


def fill(layer: nn.Module) -> nn.Module:
    with torch.no_grad():
        for number, parameter in enumerate(layer.parameters()):
            parameter.copy_(torch.linspace(0.5 + number, 2.0, CHANNELS))
    return layer


def same_layers(mine: nn.Module, alone: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Compares outputs, gradients and statistics in three steps, then in eval mode."""
    for step in range(3):
        whole, weights = whole_batch(step, shape, dtype), whole_batch(step + 10, shape, dtype) - 10
        one, all_of_them = cut(whole).clone().requires_grad_(), whole.clone().requires_grad_()
        mine.zero_grad()
        alone.zero_grad()
        output, expected = mine(one), alone(all_of_them)
        torch.testing.assert_close(output, cut(expected), **CLOSE)
        (output * cut(weights)).sum().backward()
        (expected * weights).sum().backward()
        torch.testing.assert_close(one.grad, cut(all_of_them.grad), **CLOSE)
        for parameter, other in zip(mine.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(hvd.allreduce(parameter.grad, op=hvd.Sum), other.grad, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(mine.state_dict(), alone.state_dict(), **CLOSE)
    mine.eval()
    alone.eval()
    torch.testing.assert_close(mine(cut(whole)), cut(alone(whole)), **CLOSE)


def check_against_one_process() -> None:
    shapes: list[tuple[Layer, tuple[int, ...]]] = [
        (nn.BatchNorm1d, ()),
        (nn.BatchNorm2d, (4, 5)),
        (nn.BatchNorm3d, (2, 1, 3)),
    ]
    for plain, shape in shapes:
        for dtype in (torch.float32, torch.float64):
            same_layers(
                fill(hvd.SyncBatchNorm(CHANNELS, dtype=dtype)), fill(plain(CHANNELS, dtype=dtype)), shape, dtype
            )


def check_options() -> None:
    options: list[dict[str, Any]] = [{"affine": False}, {"momentum": None}, {"eps": 0.1, "momentum": 0.5}]
    for option in options:
        same_layers(
            fill(hvd.SyncBatchNorm(CHANNELS, **option)), fill(nn.BatchNorm2d(CHANNELS, **option)), (2, 2), torch.float32
        )
    unbiased = nn.BatchNorm2d(CHANNELS)
    unbiased.bias = None
    same_layers(fill(hvd.SyncBatchNorm(CHANNELS, bias=False)), fill(unbiased), (2, 2), torch.float32)
    assert [name for name, _ in hvd.SyncBatchNorm(CHANNELS, bias=False).named_parameters()] == ["weight"]
    untracked = hvd.SyncBatchNorm(CHANNELS, track_running_stats=False)
    assert untracked.running_mean is None
    whole = whole_batch(0, (2, 2))
    expected = nn.BatchNorm2d(CHANNELS, track_running_stats=False)(whole)
    torch.testing.assert_close(untracked(cut(whole)), cut(expected), **CLOSE)
    # As in torch: without statistics, eval mode uses those of the rank's own batch and waits for no other rank.
    if hvd.rank() == 0:
        own = nn.BatchNorm2d(CHANNELS, track_running_stats=False)(cut(whole))
        torch.testing.assert_close(untracked.eval()(cut(whole)), own, **CLOSE)


def check_memory_formats_and_narrow_dtypes() -> None:
    whole = whole_batch(0, (4, 4))
    layer = hvd.SyncBatchNorm(CHANNELS)
    expected = cut(nn.BatchNorm2d(CHANNELS)(whole))
    torch.testing.assert_close(layer(cut(whole).contiguous(memory_format=torch.channels_last)), expected, **CLOSE)
    for dtype in (torch.bfloat16, torch.float16):
        near = (whole - 10).to(dtype)
        expected = cut(nn.BatchNorm2d(CHANNELS)(near.float()))
        for made in (hvd.SyncBatchNorm(CHANNELS), hvd.SyncBatchNorm(CHANNELS, dtype=dtype)):
            given = cut(near).requires_grad_()
            output = made(given)
            assert output.dtype == dtype
            torch.testing.assert_close(output.float(), expected, rtol=2e-2, atol=2e-2)
            output.sum().backward()
            assert given.grad is not None and given.grad.dtype == dtype
        # torch computes a float32 bias's gradient in float32, and so must this: no rounding to the activations' dtype.
        made = hvd.SyncBatchNorm(CHANNELS)
        output = made(cut(near))
        gradient = torch.full_like(output, 1000.0)
        output.backward(gradient)
        assert made.bias.grad is not None and torch.equal(made.bias.grad, gradient.float().sum((0, 2, 3)))


def check_statistics_are_not_rounded_as_activations_are() -> None:
    """float16 cannot hold a variance of 160000. It would round a mean of 1000.3 to 1000.5 or 1000."""
    rows = sum(rows_of(rank) for rank in range(hvd.size())) * 8
    noise = torch.randn(rows, CHANNELS, generator=torch.Generator().manual_seed(0))
    begin = 8 * sum(rows_of(rank) for rank in range(hvd.rank()))
    mine = slice(begin, begin + 8 * rows_of(hvd.rank()))
    for whole in ((noise * 400).half(), (noise + 1000.3).half()):
        expected = nn.BatchNorm1d(CHANNELS, affine=False)(whole.float())[mine]
        for made in (hvd.SyncBatchNorm(CHANNELS, affine=False), hvd.SyncBatchNorm(CHANNELS, dtype=torch.float16)):
            given = whole[mine].clone().requires_grad_()
            output = made(given)
            assert output.dtype == torch.float16
            torch.testing.assert_close(output.float(), expected, rtol=2e-3, atol=2e-3)
            output.float().square().sum().backward()
            assert given.grad is not None and bool(given.grad.isfinite().all())


def check_a_rank_without_rows() -> None:
    rows = 0 if hvd.rank() == 0 else 4
    whole = torch.randn(4 * (hvd.size() - 1), CHANNELS, 2, generator=torch.Generator().manual_seed(0))
    begin = 4 * (hvd.rank() - 1) if rows else 0
    layer, alone = hvd.SyncBatchNorm(CHANNELS), nn.BatchNorm1d(CHANNELS)
    given = whole[begin : begin + rows].clone().requires_grad_()
    output = layer(given)
    torch.testing.assert_close(output, alone(whole)[begin : begin + rows], **CLOSE)
    output.square().sum().backward()
    assert given.grad is not None and given.grad.shape == given.shape
    torch.testing.assert_close(layer.state_dict(), alone.state_dict(), **CLOSE)


def check_ranks_that_have_joined() -> None:
    """Uneven numbers of batches. A rank that has joined gives no rows, and takes part in the others' reductions."""
    layer = hvd.SyncBatchNorm(CHANNELS)
    for step in range(2 + hvd.rank()):
        present = [rank for rank in range(hvd.size()) if step < 2 + rank]
        batches = [
            torch.randn(4, CHANNELS, generator=torch.Generator().manual_seed(rank + 10 * step)) for rank in present
        ]
        whole = torch.cat(batches).requires_grad_()
        given = batches[present.index(hvd.rank())].clone().requires_grad_()
        layer(given).square().sum().backward()
        nn.BatchNorm1d(CHANNELS)(whole).square().sum().backward()
        begin = 4 * present.index(hvd.rank())
        torch.testing.assert_close(given.grad, whole.grad[begin : begin + 4], **CLOSE)
    hvd.join()


def check_conversion() -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Sequential(nn.ReLU(), nn.BatchNorm2d(4, affine=False))
    )
    plain(torch.randn(8, 2, 5, 5))
    parameters, state = list(plain.parameters()), copy.deepcopy(plain.state_dict())
    made = hvd.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(plain))
    kinds = [type(layer) for layer in made.modules()]
    assert kinds.count(hvd.SyncBatchNorm) == 2 and nn.BatchNorm2d not in kinds
    torch.testing.assert_close(made.state_dict(), state)
    converted = hvd.SyncBatchNorm.convert_sync_batchnorm(plain.eval())
    assert all(one is other for one, other in zip(converted.parameters(), parameters, strict=True))
    assert not any(layer.training for layer in converted.modules())
    whole = torch.randn(2 * hvd.size(), 2, 5, 5, generator=torch.Generator().manual_seed(1))
    alone = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Sequential(nn.ReLU(), nn.BatchNorm2d(4, affine=False))
    )
    alone.load_state_dict(state)
    mine = slice(2 * hvd.rank(), 2 * hvd.rank() + 2)
    torch.testing.assert_close(made.train()(whole[mine]), alone(whole)[mine], **CLOSE)


def network(kind: Layer) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), kind(8), nn.Tanh(), nn.Linear(8, 5), kind(5), nn.Linear(5, 2)).double()


def train(model: nn.Module, optimizer: Any, rows: slice) -> None:
    for step in range(5):
        whole = torch.randn(4 * hvd.size(), 6, generator=torch.Generator().manual_seed(step)).double()
        optimizer.zero_grad()
        model(whole[rows]).square().mean().backward()
        optimizer.step()


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def check_whole_networks() -> None:
    """With DistributedOptimizer, and with DistributedDataParallel on the backend distrun: the weights of one
    process."""
    alone = network(nn.BatchNorm1d)
    train(alone, sgd(alone), slice(None))
    rows = slice(4 * hvd.rank(), 4 * hvd.rank() + 4)
    model = network(hvd.SyncBatchNorm)
    train(model, hvd.DistributedOptimizer(sgd(model), model.named_parameters()), rows)
    torch.testing.assert_close(model.state_dict(), alone.state_dict())
    dist.init_process_group("distrun")
    wrapped = nn.parallel.DistributedDataParallel(network(hvd.SyncBatchNorm))
    train(wrapped, sgd(wrapped), rows)
    torch.testing.assert_close(wrapped.module.state_dict(), alone.state_dict())
    dist.destroy_process_group()


def check_process_sets_and_copies() -> None:
    ranks = [rank for rank in range(hvd.size()) if rank % 2 == hvd.rank() % 2]
    ours = hvd.add_process_set(ranks, members_only=True)
    layer = copy.deepcopy(hvd.SyncBatchNorm(CHANNELS, process_set=ours))
    assert layer.process_set is ours
    batches = [torch.randn(4, CHANNELS, generator=torch.Generator().manual_seed(rank)) for rank in ranks]
    place = ranks.index(hvd.rank())
    expected = nn.BatchNorm1d(CHANNELS)(torch.cat(batches))[4 * place : 4 * place + 4]
    torch.testing.assert_close(layer(batches[place]), expected, **CLOSE)
    hvd.remove_process_set(ours)
    with raises(ValueError, "not registered"):
        layer(batches[place])
    file = io.BytesIO()
    torch.save(hvd.SyncBatchNorm(CHANNELS), file)
    file.seek(0)
    assert torch.load(file, weights_only=False).process_set is hvd.global_process_set


def check_what_is_refused() -> None:
    with raises(ValueError, "2D"):
        hvd.SyncBatchNorm(CHANNELS)(torch.ones(CHANNELS))
    rows = 1 if hvd.rank() == 0 else 0
    with raises(ValueError, "more than 1 value per channel"):
        hvd.SyncBatchNorm(CHANNELS)(torch.ones(rows, CHANNELS))


if __name__ == "__main__":
    run(globals())
