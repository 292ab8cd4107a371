"""DistributedOptimizer: training on N ranks gives the result of one process on the whole batch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from checks import raises, run
from torch import nn

import distrun.torch as hvd
from distrun._operations import _shape_array

ROWS = 4  # on each rank
MakeOptimizer = Callable[[Any], torch.optim.Optimizer]


def make_model(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).double()


def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(ROWS, 6, generator=generator).double(), torch.randn(ROWS, 3, generator=generator).double()


def whole_batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    inputs, targets = zip(*(batch(step, rank) for rank in range(hvd.size())), strict=True)
    return torch.cat(inputs), torch.cat(targets)


def loss_of(model: nn.Module, data: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return nn.functional.mse_loss(model(data[0]), data[1])


def alone(make: MakeOptimizer, steps: int) -> nn.Module:
    """The result of one process without distrun."""
    model = make_model()
    optimizer = make(model.parameters())
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, whole_batch(step)).backward()
        optimizer.step()
    return model


def together(make: MakeOptimizer, steps: int, **options: Any) -> nn.Module:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(make(model.parameters()), named_parameters=model.named_parameters(), **options)
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, batch(step, hvd.rank())).backward()
        optimizer.step()
    return model


def assert_same(left: nn.Module, right: nn.Module, **tolerance: float) -> None:
    for (name, one), other in zip(left.state_dict().items(), right.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, msg=lambda text, name=name: f"{name}: {text}", **tolerance)


def sgd(params: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=0.1, momentum=0.9, weight_decay=0.01)


def check_optimizers() -> None:
    adam: MakeOptimizer = lambda params: torch.optim.AdamW(params, lr=0.01)  # noqa: E731
    for make in (sgd, adam):
        assert_same(together(make, 6), alone(make, 6))


def check_options_that_do_not_change_the_result() -> None:
    expected = alone(sgd, 4)
    for options in ({"groups": 2}, {"groups": 100}, {"gradient_predivide_factor": 3.0}, {"sparse_as_dense": True}):
        assert_same(together(sgd, 4, **options), expected)
    assert_same(together(sgd, 4, groups=2, gradient_predivide_factor=2.0), expected)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert_same(together(sgd, 4, num_groups=3), expected)
    assert any(issubclass(warning.category, DeprecationWarning) for warning in caught)


def check_options_that_differ_are_a_mismatch() -> None:
    """The mismatch shows that the options reach the operations. By themselves they do not change the result."""
    if hvd.size() == 1:
        return
    params = list(make_model().parameters())
    of_rank_0: dict[str, Any] = {"groups": [[params[0], params[3]]]}
    factors = {"gradient_predivide_factor": 2.0 if hvd.rank() == 0 else 4.0}
    for options, texts in (
        (factors, ("prescale factors differ", "0.5", "0.25")),
        (of_rank_0 if hvd.rank() == 0 else {}, ("groups differ",)),
    ):
        optimizer = hvd.DistributedOptimizer(sgd(params), **options)
        for param in params:
            param.grad = torch.ones_like(param)
        with raises(hvd.Mismatch, *texts):
            optimizer.step()
    assert_same(together(sgd, 1), alone(sgd, 1))


def check_a_parameter_called_layouts() -> None:
    """Only rank 0 has submitted this gradient when it asks for layouts. That operation must have another name."""
    model = nn.ParameterDict({"layouts": torch.ones(512, 512)})
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    optimizer._reducer._overlaps = True
    ask = optimizer._reducer._ask_for_layouts

    def then_the_others_begin() -> Any:
        try:
            return ask()
        finally:
            hvd.barrier()

    if hvd.rank() == 0:
        optimizer._reducer._ask_for_layouts = then_the_others_begin
    else:
        hvd.barrier()
    (model["layouts"] * (hvd.rank() + 1)).sum().backward()
    optimizer.step()
    assert torch.all(model["layouts"].grad == (hvd.size() + 1) / 2)


def check_groups_as_lists() -> None:
    model = make_model()
    params = list(model.parameters())
    optimizer = hvd.DistributedOptimizer(sgd(params), model.named_parameters(), groups=[params[:1], params[2:4]])
    for step in range(3):
        optimizer.zero_grad()
        loss_of(model, batch(step, hvd.rank())).backward()
        optimizer.step()
    assert_same(model, alone(sgd, 3))
    with raises(ValueError, "more than one"):
        hvd.DistributedOptimizer(sgd(params), groups=[params[:2], params[1:3]])


def check_a_group_that_waits_is_on_its_way() -> None:
    """A member of the group has no gradient yet. The other's must not be changed, and the step uses both."""
    model = make_model()
    params = list(model.parameters())
    optimizer = hvd.DistributedOptimizer(sgd(params), model.named_parameters(), groups=[[params[0], params[3]]])
    model[0](batch(0, hvd.rank())[0]).sum().backward()
    with raises(AssertionError, "race condition"):
        optimizer.zero_grad()
    optimizer.step()
    weights = hvd.allgather_object(params[0].detach())
    assert all(torch.equal(weight, weights[0]) for weight in weights)
    optimizer.zero_grad()
    loss_of(model, batch(0, hvd.rank())).backward()
    optimizer.step()


def check_more_shapes_than_are_kept() -> None:
    """The memory that the parameters' operations refer to lives as long as the optimizer, with any other operations."""
    model = make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    for step in range(3):
        optimizer.zero_grad()
        loss_of(model, batch(step, hvd.rank())).backward()
        optimizer.step()
        for rows in range(1, 5000):
            _shape_array((rows, 10 * step))
    assert_same(model, alone(sgd, 3))


def check_compression() -> None:
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        weight = nn.Parameter(torch.zeros(1))
        weight.grad = torch.tensor([1 + 2**-12])  # more digits than two bytes can hold
        hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), compression=compression).step()
        assert weight.item() == -1.0
    expected = alone(sgd, 4)
    assert_same(together(sgd, 4, compression=hvd.Compression.fp16), expected, rtol=1e-2, atol=1e-2)
    assert_same(together(sgd, 4, compression=hvd.Compression.bf16), expected, rtol=5e-2, atol=5e-2)


def check_sum_and_backward_passes() -> None:
    passes = 3
    model = make_model()
    optimizer = hvd.DistributedOptimizer(
        sgd(model.parameters()), model.named_parameters(), backward_passes_per_step=passes
    )
    for step in range(3):
        optimizer.zero_grad()
        for part in range(passes):
            (loss_of(model, batch(passes * step + part, hvd.rank())) / passes).backward()
        optimizer.step()
    expected = make_model()
    reference = sgd(expected.parameters())
    for step in range(3):
        reference.zero_grad()
        for part in range(passes):
            (loss_of(expected, whole_batch(passes * step + part)) / passes).backward()
        reference.step()
    assert_same(model, expected)

    model = make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), op=hvd.Sum)
    (loss_of(model, batch(0, hvd.rank())) / hvd.size()).backward()
    optimizer.step()
    assert_same(model, alone(sgd, 1))


def check_too_many_passes_and_zero_grad() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    loss_of(model, batch(0, hvd.rank())).backward()
    with raises(AssertionError, "backward_passes_per_step"):
        loss_of(model, batch(1, hvd.rank())).backward()
    with raises(AssertionError, "race condition"):
        optimizer.zero_grad()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.set_backward_passes_per_step(2)
    for part in range(2):
        loss_of(model, batch(part, hvd.rank())).backward()
    optimizer.step()


def check_clipping() -> None:
    def clipped(model: nn.Module, optimizer: Any, distributed: bool, step: int) -> None:
        loss_of(model, batch(step, hvd.rank()) if distributed else whole_batch(step)).backward()
        if distributed:
            optimizer.synchronize()
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        if distributed:
            with optimizer.skip_synchronize():
                optimizer.step()
        else:
            optimizer.step()
        optimizer.zero_grad()

    model, expected = make_model(), make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    reference = sgd(expected.parameters())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(3):
            clipped(model, optimizer, True, step)
            clipped(expected, reference, False, step)
    assert_same(model, expected)
    loss_of(model, batch(0, hvd.rank())).backward()
    optimizer.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer.step()
    assert any("skip_synchronize" in str(warning.message) for warning in caught)


def check_a_gradient_replaced_before_it_is_reduced() -> None:
    """Otherwise the step would use each rank's own gradient. After synchronize() a program may replace gradients."""
    model = nn.Sequential(nn.Embedding(4, 6, sparse=True), *make_model())
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    names = dict(model.named_parameters())

    def step_with(name: str, change: Any) -> bool:
        """Whether the step has changed the parameter."""
        optimizer.zero_grad()
        before = names[name].detach().clone()
        model[1:](model[0](torch.tensor([hvd.rank()])).double()).sum().backward()
        assert names[name].grad is not None
        names[name].grad = change(names[name].grad)
        optimizer.step()
        return not torch.equal(names[name], before)

    before = names["1.weight"].detach().clone()
    for change in (lambda grad: grad * 0.5, lambda grad: grad.to_sparse()):
        with raises(hvd.InvalidArgument, "of 1.weight was replaced", "synchronize()"):
            step_with("1.weight", change)
    assert torch.equal(names["1.weight"], before)
    for name in ("1.weight", "0.weight"):
        assert not step_with(name, lambda grad: None)  # left out of the step, as in one process
        assert step_with(name, torch.Tensor.detach)
    with raises(hvd.InvalidArgument, "gradient of 0.weight was replaced", "synchronize()"):
        step_with("0.weight", lambda grad: grad * 0.5)  # a sparse gradient
    everybody = hvd.allgather_object([param.detach() for param in model.parameters()])
    assert all(torch.equal(one, its) for one, its in zip(everybody[0], model.parameters(), strict=True))
    model, expected = make_model(), make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    loss_of(model, batch(0, hvd.rank())).backward()
    optimizer.synchronize()
    loss_of(expected, whole_batch(0)).backward()
    for param in (*model.parameters(), *expected.parameters()):
        param.grad = param.grad * 0.5
    with optimizer.skip_synchronize():
        optimizer.step()
    sgd(expected.parameters()).step()
    assert_same(model, expected)


def check_parameters_without_a_gradient() -> None:
    """The ranks use different parameters. Unused ones count as zero."""
    model = make_model()
    extra = nn.Linear(6, 3).double()
    params = [*model.parameters(), *extra.parameters()]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(params, lr=0.1))
    before = extra.weight.detach().clone()
    inputs, targets = batch(0, hvd.rank())
    output = model(inputs) + (extra(inputs) if hvd.rank() == 0 else 0.0)
    nn.functional.mse_loss(output, targets).backward()
    inputs, targets = batch(0, 0)
    of_rank_0 = torch.autograd.grad(nn.functional.mse_loss(model(inputs) + extra(inputs), targets), extra.weight)[0]
    optimizer.step()
    weights = hvd.allgather_object(extra.weight.detach())
    assert all(torch.equal(weight, weights[0]) for weight in weights)
    torch.testing.assert_close(before - weights[0], 0.1 * of_rank_0 / hvd.size())


def check_gradients_of_another_dtype_that_some_ranks_do_not_have() -> None:
    """PyTorch 2.10's grad_dtype: bfloat16 weights with float32 gradients."""
    if not hasattr(torch.Tensor, "grad_dtype"):
        return
    for sparse in (False, True):
        table = nn.Embedding(4, 2, sparse=sparse, dtype=torch.bfloat16)
        table.weight.grad_dtype = torch.float32
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=0.1), op=hvd.Sum)
        before = table.weight.detach().clone()
        for _ in range(2):
            optimizer.zero_grad()
            if hvd.rank() == 0:
                table(torch.tensor([1, 3])).sum().backward()
            optimizer.step()
        assert table.weight.grad.dtype == torch.float32
        expected = torch.zeros(4, 2).index_fill(0, torch.tensor([1, 3]), 1.0)
        assert torch.equal(table.weight.grad.to_dense(), expected)
        for _ in range(2):
            before -= (0.1 * expected).to(torch.bfloat16)
        torch.testing.assert_close(table.weight.detach(), before)


def check_closures() -> None:
    def trained(wrap: Callable[[Any, Any], Any], data: Callable[[int], Any], make: MakeOptimizer) -> nn.Module:
        model = make_model()
        optimizer = wrap(make(model.parameters()), model)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, data(0))
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)
        return model

    lbfgs: MakeOptimizer = lambda params: torch.optim.LBFGS(params, lr=0.5, max_iter=4)  # noqa: E731
    for make in (sgd, lbfgs):
        distributed = trained(
            lambda made, model: hvd.DistributedOptimizer(made, model.named_parameters()),
            lambda step: batch(step, hvd.rank()),
            make,
        )
        assert_same(distributed, trained(lambda made, _: made, whole_batch, make))


def check_process_set_that_is_not_registered() -> None:
    with raises(ValueError, "not registered"):
        hvd.DistributedOptimizer(sgd(make_model().parameters()), process_set=hvd.ProcessSet([0]))


def check_process_set() -> None:
    if hvd.size() < 3:
        return
    members = hvd.add_process_set([0, 1])
    model = make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), process_set=members)
    loss_of(model, batch(0, hvd.rank())).backward()
    optimizer.step()
    weights = hvd.allgather_object(model[0].weight.detach())
    assert torch.equal(weights[0], weights[1])
    assert all(not torch.equal(weight, weights[0]) for weight in weights[2:])
    hvd.remove_process_set(members)


def check_two_optimizers_with_the_same_names() -> None:
    first, second = make_model(), make_model(1)
    one = hvd.DistributedOptimizer(sgd(first.parameters()), first.named_parameters())
    hvd.join()  # restarts the numbers of unnamed operations, but not those of optimizers
    two = hvd.DistributedOptimizer(sgd(second.parameters()), second.named_parameters())
    data = batch(0, hvd.rank())
    (loss_of(first, data) + loss_of(second, data)).backward()
    two.step()
    one.step()
    assert_same(first, alone(sgd, 1))


def check_state_from_one_rank() -> None:
    model = make_model(seed=hvd.rank())
    optimizer = hvd.DistributedOptimizer(
        torch.optim.Adam(model.parameters(), lr=0.1 * (hvd.rank() + 1), betas=(0.8, 0.9)), model.named_parameters()
    )
    root = hvd.size() - 1
    if hvd.rank() == root:  # only this rank has state
        for param in model.parameters():
            param.grad = torch.ones_like(param)
        with optimizer.skip_synchronize():
            optimizer.step()
    hvd.broadcast_parameters(model.state_dict(), root_rank=root)
    hvd.broadcast_optimizer_state(optimizer, root_rank=root)
    assert optimizer.param_groups[0]["lr"] == 0.1 * hvd.size()
    states = hvd.allgather_object(optimizer.state_dict()["state"])
    assert set(states[0]) == {0, 1, 2, 3}
    for state in states:
        assert all(torch.equal(state[key]["exp_avg"], states[0][key]["exp_avg"]) for key in states[0])
    optimizer.zero_grad()
    for step in range(2):
        loss_of(model, batch(step, hvd.rank())).backward()
        optimizer.step()
        optimizer.zero_grad()
    weights = hvd.allgather_object(model[0].weight.detach())
    assert all(torch.equal(weight, weights[0]) for weight in weights)


def check_schedulers_hooks_and_checkpoints() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    assert isinstance(optimizer, torch.optim.SGD) and type(optimizer).__name__ == "SGD"
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    calls: list[int] = []
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    for step in range(2):
        optimizer.zero_grad()
        loss_of(model, batch(step, hvd.rank())).backward()
        optimizer.step()
        scheduler.step()
        optimizer.load_state_dict(optimizer.state_dict())
    assert optimizer.param_groups[0]["lr"] == 0.025 and len(calls) == 2
    extra = nn.Linear(2, 2).double()
    optimizer.add_param_group({"params": list(extra.parameters())})
    extra(torch.full((1, 2), float(hvd.rank())).double()).sum().backward()
    optimizer.step()
    weights = hvd.allgather_object(extra.weight.detach())
    assert all(torch.equal(weight, weights[0]) for weight in weights)


def check_when_gradients_leave() -> None:
    """During backward if that is faster, otherwise all together at its end. The result is the same."""
    weights = []
    for overlaps in (True, False):
        torch.manual_seed(1)
        model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(3)))  # 1 MiB each
        optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
        optimizer._reducer._overlaps = overlaps
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.full((2, 512), float(hvd.rank()))).sum().backward()
            assert len(optimizer._reducer._flights) == (3 if overlaps else 0)
            optimizer.step()
        weights.append(model)
    assert_same(*weights, rtol=0.0, atol=0.0)


def check_freezing_after_backward() -> None:
    """Some ranks have the gradient by then, and others will never have it. The weights stay equal on all ranks."""
    model = make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    for step in range(3):
        optimizer.zero_grad()
        hidden = model[0](batch(step, hvd.rank())[0])
        (model[2](hidden) if hvd.rank() == 0 else hidden).sum().backward()
        if step == 1:
            model[2].requires_grad_(False)
        before = model[2].weight.detach().clone()
        optimizer.step()
        assert torch.equal(model[2].weight, before) == (step == 2)  # momentum and decay do not change it either
        for weight in model.parameters():
            everybody = hvd.allgather_object(weight.detach())
            assert all(torch.equal(one, everybody[0]) for one in everybody)


def check_an_interrupted_step_can_be_finished() -> None:
    """A signal arrives while rank 0 waits for the answer which gradients are sparse."""
    model = make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    loss_of(model, batch(0, hvd.rank())).backward()
    ask = optimizer._reducer._ask_for_layouts

    class Interrupted:
        def wait(self) -> None:
            raise KeyboardInterrupt

    def interrupted() -> Any:
        optimizer._reducer._asked = ask()
        handle, asked = optimizer._reducer._asked
        optimizer._reducer._ask_for_layouts = ask
        held.append(handle)
        return Interrupted(), asked

    held: list[Any] = []
    if hvd.rank() == 0:
        optimizer._reducer._ask_for_layouts = interrupted
        with raises(KeyboardInterrupt):
            optimizer.step()
        optimizer._reducer._asked = (held[0], optimizer._reducer._asked[1])
    optimizer.step()
    assert_same(model, alone(sgd, 1))


def check_gradient_mismatch_is_an_error_and_training_goes_on() -> None:
    model = nn.Linear(2 if hvd.rank() == 0 else 3, 1)
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    model(torch.ones(1, model.in_features)).sum().backward()
    with raises(hvd.Mismatch, "weight"):
        optimizer.step()
    optimizer.zero_grad()
    assert_same(together(sgd, 2), alone(sgd, 2))


def check_process_set_of_members_alone() -> None:
    """Each half of the ranks trains its own model at the same time. Neither half knows the other's set."""
    ranks = [rank for rank in range(hvd.size()) if rank % 2 == hvd.rank() % 2]
    ours = hvd.add_process_set(ranks, members_only=True)
    model = make_model(seed=hvd.rank() % 2)
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), process_set=ours)
    reference = make_model(seed=hvd.rank() % 2)
    step_alone = sgd(reference.parameters())
    for step in range(3):
        optimizer.zero_grad()
        loss_of(model, batch(step, hvd.rank())).backward()
        optimizer.step()
        step_alone.zero_grad()
        (sum(loss_of(reference, batch(step, rank)) for rank in ranks) / len(ranks)).backward()
        step_alone.step()
    assert_same(model, reference)
    assert hvd.remove_process_set(ours)


def check_a_process_set_that_comes_again() -> None:
    """A set that is removed and added again, and has another number in a new session. The optimizer goes on with it."""
    ours = hvd.ProcessSet([0, 1])
    model, everybodys = make_model(), make_model()
    if hvd.rank() < 2:
        hvd.add_process_set(ours, members_only=True)
        optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), process_set=ours)
    of_all = hvd.DistributedOptimizer(sgd(everybodys.parameters()))

    def step(optimizer: Any, model: nn.Module, number: int) -> None:
        optimizer.zero_grad()
        loss_of(model, batch(number, hvd.rank())).backward()
        optimizer.step()

    for number in range(4):
        step(of_all, everybodys, number)
        if hvd.rank() < 2:
            step(optimizer, model, number)
            if number == 0:
                hvd.remove_process_set(ours)
                hvd.add_process_set(ours, members_only=True)
        if number == 1:
            hvd.shutdown()
            hvd.init()
            if hvd.rank() < 2:
                for _ in range(2):
                    hvd.add_process_set([0, 1], members_only=True)
                hvd.add_process_set(ours, members_only=True)
    assert_same(everybodys, alone(sgd, 4))
    if hvd.rank() < 2:
        reference = make_model()
        step_alone = sgd(reference.parameters())
        for number in range(4):
            step_alone.zero_grad()
            (sum(loss_of(reference, batch(number, rank)) for rank in range(2)) / 2).backward()
            step_alone.step()
        assert_same(model, reference)
        hvd.remove_process_set(ours)


def check_optimizers_made_before_and_after_a_set_came_again() -> None:
    """Their gradients are in flight at the same time. While the set is removed, no gradients are submitted."""
    ours = hvd.ProcessSet(range(hvd.size()))
    made: list[tuple[nn.Linear, Any]] = []
    for _ in range(2):
        for _ in range(2):
            hvd.add_process_set(ours, members_only=True)
            for process_set in (ours, hvd.global_process_set):
                layer = nn.Linear(512, 1024)
                optimizer = hvd.DistributedOptimizer(sgd(layer.parameters()), process_set=process_set)
                optimizer._reducer._overlaps = True
                made.append((layer, optimizer))
            for layer, optimizer in made:
                optimizer.zero_grad()
                layer(torch.full((512,), 1.0 + hvd.rank())).sum().backward()
            for layer, optimizer in made:
                optimizer.step()
                assert torch.all(layer.weight.grad == (hvd.size() + 1) / 2)
                optimizer.zero_grad()
            hvd.remove_process_set(ours)
            layer, _ = made[0]
            if hvd.size() > 1:
                with raises(ValueError, "is not registered"):
                    layer(torch.ones(512)).sum().backward()
        hvd.shutdown()
        hvd.init()


if __name__ == "__main__":
    run(globals())
