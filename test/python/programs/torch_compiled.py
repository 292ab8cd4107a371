"""The operations inside torch.compile: one graph, with the values and gradients of the eager calls. The first argument
is torch.compile's backend. Further arguments are the checks to run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from checks import raises, run
from torch import nn

import distrun.torch as hvd

COMPILER = sys.argv.pop(1) if len(sys.argv) > 1 else "aot_eager"


def mine(rows: int = 4) -> torch.Tensor:
    return torch.arange(2.0 * rows).reshape(rows, 2) * (hvd.rank() + 1)


def same(step: Callable[..., Any], *inputs: torch.Tensor) -> None:
    """Compares the step in one compiled graph with the eager one, twice: outputs and the gradients of all inputs."""
    compiled = torch.compile(step, fullgraph=True, backend=COMPILER)
    for _ in range(2):
        results = []
        for function in (compiled, step):
            given = [one.clone().requires_grad_(one.is_floating_point()) for one in inputs]
            output = function(*given)
            if output.requires_grad:
                (output * torch.arange(1.0, output.numel() + 1).reshape(output.shape)).sum().backward()
            results.append([output.detach(), *(one.grad for one in given)])
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)  # inductor computes tanh differently


def check_every_operation_in_one_graph() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        reduced = hvd.allreduce(torch.tanh(x), op=hvd.Sum)
        gathered = hvd.allgather(reduced[: hvd.rank() + 1], name="rows")
        sent = hvd.broadcast(gathered.sum()[None], root_rank=hvd.size() - 1)
        share = hvd.reducescatter(reduced * 2, op=hvd.Average)
        exchanged = hvd.alltoall(reduced.repeat(hvd.size(), 1))
        return x + sent * share.sum() + exchanged.sum() + (gathered * gathered).sum()

    same(step, mine())


def check_arguments() -> None:
    size = hvd.size()
    steps: list[Callable[[torch.Tensor], Any]] = [
        lambda x: hvd.allreduce(x),
        lambda x: hvd.allreduce(x, name="named", op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.25),
        lambda x: hvd.allreduce(x, average=False),
        lambda x: hvd.allreduce(x, compression=hvd.Compression.bf16),
        lambda x: torch.cat(hvd.grouped_allreduce([x, x * 2], op=hvd.Sum, name="group")),
        lambda x: torch.cat(hvd.grouped_allgather([x, x[: hvd.rank()]])),
        lambda x: torch.cat(hvd.grouped_reducescatter([x, x[:3]], op=hvd.Sum)),
        lambda x: hvd.reducescatter(x[:3], op=hvd.Sum, name="share", postscale_factor=0.5),
        lambda x: hvd.broadcast(x, root_rank=size - 1, name="root"),
        lambda x: hvd.alltoall(x, splits=[1] * size)[0],
        lambda x: hvd.alltoall(x, splits=torch.tensor([1] * size), name="split")[0],
    ]
    for step in steps:
        same(step, mine(max(4, size)))
    counts = torch.compile(lambda x: hvd.alltoall(x, splits=[1] * size)[1], fullgraph=True, backend=COMPILER)
    assert counts(mine(size)).tolist() == [1] * size
    extreme = torch.compile(lambda x: hvd.allreduce(x, op=hvd.Max), fullgraph=True, backend=COMPILER)
    torch.testing.assert_close(extreme(mine()), hvd.allreduce(mine(), op=hvd.Max))


def check_a_gradient_by_its_numbers() -> None:
    """Checks the values of a gradient. The compiled and the eager gradient use the same functions."""
    given, root = mine().requires_grad_(), hvd.size() - 1
    step = torch.compile(lambda x: hvd.broadcast(x, root), fullgraph=True, backend=COMPILER)
    (step(given) * (hvd.rank() + 1)).sum().backward()
    expected = hvd.size() * (hvd.size() + 1) / 2 if hvd.rank() == root else 0.0
    torch.testing.assert_close(given.grad, torch.full((4, 2), expected))


def check_what_is_refused() -> None:
    """The calls that are refused eagerly are refused here too, without using up an operation number."""
    size, unsupported = hvd.size(), torch._dynamo.exc.Unsupported
    differing = torch.ones(2 * size + 1, 2)
    refused: list[tuple[type[Exception], str, Callable[[torch.Tensor], Any]]] = [
        (ValueError, "whole numbers of rows", lambda x: hvd.alltoall(x, splits=[len(x) / size] * size)),
        (ValueError, "whole numbers of rows", lambda x: hvd.alltoall(x, splits=(2.5,) * size)),
        (unsupported, "Name other reductions by keyword", lambda x: hvd.allreduce(x, hvd.Max)),
        (unsupported, "Name other reductions by keyword", lambda x: hvd.grouped_allreduce([x], hvd.Average)),
        (unsupported, "either op or average", lambda x: hvd.allreduce(x, average=True, op=hvd.Sum)),
        (unsupported, "Adasum", lambda x: hvd.reducescatter(x, op=2)),
    ]
    for kind, text, step in refused:
        with raises(kind, text):
            torch.compile(step, fullgraph=True, backend=COMPILER)(differing)
    with raises(TypeError, "Name other reductions by keyword"):
        torch.compile(lambda x: hvd.allreduce(x, hvd.Max), backend=COMPILER)(differing)


def check_in_place() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        y, z = x * 2, x + 1
        hvd.allreduce_(y, op=hvd.Sum)
        hvd.grouped_allreduce_([y, z])
        return hvd.broadcast_(z, 0) + y

    with torch.no_grad():
        torch.testing.assert_close(torch.compile(step, fullgraph=True, backend=COMPILER)(mine()), step(mine()))


def check_gradients_know_nothing_of_what_is_in_place() -> None:
    """As in eager mode: backward reduces the same in compiled and eager ranks, nothing more."""

    def step(x: torch.Tensor) -> torch.Tensor:
        y, z = x * 2, x * 3
        hvd.allreduce_(y, op=hvd.Sum)
        hvd.grouped_allreduce_([z])
        return y + hvd.broadcast_(x * 5, 0) + z

    same(step, mine())
    weight = nn.Parameter(mine())
    torch.compile(lambda: hvd.broadcast_(weight, 0), fullgraph=True, backend=COMPILER)()
    torch.testing.assert_close(weight.detach(), torch.arange(8.0).reshape(4, 2))


def check_nothing_is_dropped_merged_or_moved() -> None:
    """One result that only one rank uses, and two equal calls: all ranks make all calls."""

    def step(x: torch.Tensor) -> torch.Tensor:
        unused = hvd.allreduce(x, op=hvd.Sum)
        one, other = hvd.allreduce(x * 2, op=hvd.Sum), hvd.allreduce(x * 2, op=hvd.Sum)
        return one + other + (unused.detach() if hvd.rank() == 0 else 0.0)

    same(step, mine())
    torch.testing.assert_close(hvd.allreduce(torch.ones(2), op=hvd.Sum), torch.full((2,), float(hvd.size())))


def check_one_rank_eager_and_other_sizes() -> None:
    """Ranks agree when the operators run. It does not matter which rank compiled what, or how often."""

    def step(x: torch.Tensor) -> torch.Tensor:
        return (hvd.allreduce(x.sum(0), op=hvd.Sum, name="sums") * hvd.allgather(x, name="all").sum()).sum()

    compiled = torch.compile(step, fullgraph=True, backend=COMPILER)
    for turn in range(4):
        given = mine(3 + turn * hvd.rank()).requires_grad_()
        function = step if (turn + hvd.rank()) % 2 else compiled
        function(given).backward()
        expected = mine(3 + turn * hvd.rank()).requires_grad_()
        step(expected).backward()
        torch.testing.assert_close(given.grad, expected.grad)


def check_process_sets() -> None:
    ranks = [rank for rank in range(hvd.size()) if rank % 2 == hvd.rank() % 2]
    ours = hvd.add_process_set(ranks, members_only=True)
    same(lambda x: hvd.allgather(hvd.allreduce(x, op=hvd.Sum, process_set=ours), process_set=ours), mine())
    hvd.remove_process_set(ours)


def check_sync_batch_norm() -> None:
    """The operation runs outside the graphs: one ends before it and another begins after it."""
    layers = [nn.Sequential(nn.Linear(2, 3), hvd.SyncBatchNorm(3), nn.Tanh()) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    inputs = [mine().requires_grad_() for _ in layers]
    torch.compile(layers[0], backend=COMPILER)(inputs[0]).square().sum().backward()
    layers[1](inputs[1]).square().sum().backward()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
    torch.testing.assert_close(layers[0].state_dict(), layers[1].state_dict())


def check_errors() -> None:
    step = torch.compile(lambda x: hvd.allreduce(x, name="weights") + 1, fullgraph=True, backend=COMPILER)
    if hvd.size() > 1:
        try:
            step(torch.ones(2 + hvd.rank()))
        except hvd.Mismatch as error:
            assert "weights" in str(error)
        else:
            raise AssertionError("no Mismatch")
    torch.testing.assert_close(step(torch.ones(2)), torch.full((2,), 2.0))


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def trained(compiled: bool, autograd: bool) -> nn.Module:
    model = network()
    forward = torch.compile(model, backend=COMPILER) if compiled else model
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model.named_parameters()
    )
    with torch._dynamo.config.patch(compiled_autograd=autograd):
        for step in range(4):
            generator = torch.Generator().manual_seed(10 * step + hvd.rank())
            inputs, targets = torch.randn(4, 6, generator=generator), torch.randn(4, 3, generator=generator)
            optimizer.zero_grad()
            nn.functional.mse_loss(forward(inputs), targets).backward()
            optimizer.step()
    return model


def check_the_optimizer_with_a_compiled_model() -> None:
    expected = trained(compiled=False, autograd=False)
    for autograd in (False, True):
        torch.testing.assert_close(trained(True, autograd).state_dict(), expected.state_dict())


def check_the_optimizer_with_a_compiled_step() -> None:
    """Compiled autograd takes effect if backward() is called inside a compiled function."""
    expected = trained(compiled=False, autograd=False)
    model = network()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model.named_parameters()
    )

    @torch.compile(backend=COMPILER)
    def backward(inputs: torch.Tensor, targets: torch.Tensor) -> None:
        nn.functional.mse_loss(model(inputs), targets).backward()

    with torch._dynamo.config.patch(compiled_autograd=True):
        for step in range(4):
            generator = torch.Generator().manual_seed(10 * step + hvd.rank())
            optimizer.zero_grad()
            backward(torch.randn(4, 6, generator=generator), torch.randn(4, 3, generator=generator))
            optimizer.step()
    torch.testing.assert_close(model.state_dict(), expected.state_dict())


if __name__ == "__main__":
    run(globals())
