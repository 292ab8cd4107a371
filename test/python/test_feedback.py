"""The arithmetic of compression with error feedback. Ranks are objects in this process."""

from __future__ import annotations

import pytest
import torch

import distrun.torch as hvd
from distrun.torch import _feedback


def reduce_once(ranks: list[_feedback.Feedback], gradients: list[torch.Tensor]) -> torch.Tensor:
    """Returns the result of all ranks. Checks that it is equal on all, and that bytes do not overflow."""
    largest = (
        max(float(rank.largest(one)) for rank, one in zip(ranks, gradients, strict=True)) if ranks[0].agrees else 0.0
    )
    encoded = [rank.encode(one, largest) for rank, one in zip(ranks, gradients, strict=True)]
    exact = torch.stack([sent for sent, _ in encoded]).double().sum(0)
    total = exact.to(encoded[0][0].dtype)
    if total.dtype == torch.int8:
        assert torch.equal(total.double(), exact)
    elif ranks[0].average:
        total = total / len(ranks)
    results = [rank.decode(total, context) for rank, (_, context) in zip(ranks, encoded, strict=True)]
    for result in results:
        torch.testing.assert_close(result, results[0], rtol=0.0, atol=0.0, equal_nan=True)
    assert results[0].dtype == gradients[0].dtype
    return results[0]


def made(kind: type[_feedback.Feedback], members: int, average: bool = True) -> list[_feedback.Feedback]:
    return [kind(members, average) for _ in range(members)]


KINDS = [hvd.Compression.ef_fp16, hvd.Compression.ef_bf16, hvd.Compression.ef_int8]


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("members", [1, 2, 3, 16, 127])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_over_many_steps(kind: type[_feedback.Feedback], members: int, average: bool) -> None:
    """The sum of the received values equals the sum of all gradients, except for the rounding of one step."""
    generator = torch.Generator().manual_seed(0)
    ranks = made(kind, members, average)
    received, wanted = torch.zeros(50, dtype=torch.float64), torch.zeros(50, dtype=torch.float64)
    for _ in range(40):
        gradients = [torch.randn(50, generator=generator, dtype=torch.float64) for _ in ranks]
        received += reduce_once(ranks, gradients)
        total = torch.stack(gradients).sum(0)
        wanted += total / members if average else total
    errors = torch.stack([rank._error for rank in ranks]).sum(0) / (members if average else 1)
    if kind is hvd.Compression.ef_int8:
        torch.testing.assert_close(received + errors, wanted)
    else:  # the sum itself is rounded too
        torch.testing.assert_close(received + errors, wanted, rtol=0.05, atol=0.05 * (1 if average else members))
    assert errors.abs().max() < wanted.abs().max()


def test_small_values_beside_a_large_one_arrive() -> None:
    """Without feedback, values below half a unit would never be sent."""
    gradient = torch.tensor([1.0, 1e-3, -2e-4])
    ranks = made(hvd.Compression.ef_int8, 2)
    mean = sum(reduce_once(ranks, [gradient, gradient]) for _ in range(2000)) / 2000
    torch.testing.assert_close(mean, gradient, rtol=0.0, atol=1.0 / 63 / 2000 + 1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")])
def test_overflow_is_seen_by_all_and_forgotten(kind: type[_feedback.Feedback], bad: float) -> None:
    ranks = made(kind, 2)
    good = [torch.full((3,), 0.3), torch.full((3,), 0.7)]
    reduce_once(ranks, good)
    assert not reduce_once(ranks, [torch.tensor([1.0, bad, 2.0]), good[1]]).isfinite().all()
    torch.testing.assert_close(reduce_once(ranks, good), torch.full((3,), 0.5), rtol=0.1, atol=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_zeros_and_nothing(kind: type[_feedback.Feedback]) -> None:
    for gradient in (torch.zeros(3), torch.zeros(0)):
        assert torch.equal(reduce_once(made(kind, 2), [gradient, gradient]), gradient)


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="127 ranks"):
        hvd.Compression.ef_int8(128, True)
    with pytest.raises(ValueError, match="DistributedOptimizer"):
        hvd.Compression.ef_bf16.compress(torch.ones(1))
    model = torch.nn.Linear(1, 1)
    with pytest.raises(ValueError, match="op=Sum or op=Average"):
        hvd.init()
        try:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            hvd.DistributedOptimizer(optimizer, compression=hvd.Compression.ef_int8, op=hvd.Max)
        finally:
            hvd.shutdown()
