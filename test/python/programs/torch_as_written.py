"""DistributedOptimizer in scripts written for one process: schedulers, frozen layers, states, subclasses."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from checks import raises, run
from torch import nn
from torch_optimizer import assert_same, batch, loss_of, make_model, sgd, whole_batch

import distrun.torch as hvd


def assert_equal_everywhere(value: Any) -> None:
    everybodys = hvd.allgather_object(value)
    assert all(str(one) == str(everybodys[0]) for one in everybodys), everybodys


def check_scheduler_made_before_wrapping() -> None:
    for again in (False, True):  # with a checkpoint loaded in between
        model = make_model()
        raw = sgd(model.parameters())
        scheduler = torch.optim.lr_scheduler.StepLR(raw, step_size=1, gamma=0.5)
        optimizer = hvd.DistributedOptimizer(raw, model.named_parameters())
        if again:
            optimizer.load_state_dict(optimizer.state_dict())
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        rates = []
        for step in range(3):
            optimizer.zero_grad()
            loss_of(model, batch(step, hvd.rank())).backward()
            optimizer.step()
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # torch warns if the order of the calls is wrong
                scheduler.step()
            rates.append(optimizer.param_groups[0]["lr"])
        assert rates == [0.05, 0.025, 0.0125], rates
        assert_equal_everywhere([weight.tolist() for weight in model.state_dict().values()])


class Keeps(torch.optim.Optimizer):
    """State that torch's load_state_dict would change: wider than the parameter, whole numbers, text."""

    def __init__(self, params: Any, mode: Any = None) -> None:
        super().__init__(params, {"lr": 0.1, "mode": mode})

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for param in group["params"]:
                state = self.state[param]
                state.setdefault("mean", torch.full(param.shape, 1.0 + 2.0**-20))
                state.setdefault("count", torch.tensor(2**40 + 1))
                state.setdefault("text", "abc")
                state.setdefault("parts", [torch.ones(2, dtype=torch.float64), ("x", 1)])
        self.state["steps"] = {"all": 7}


def check_state_keeps_its_types() -> None:
    model = nn.Linear(2, 1).to(torch.bfloat16)
    optimizer = hvd.DistributedOptimizer(Keeps(model.parameters(), mode=["plain", hvd.rank()]))
    held = optimizer.param_groups[0]
    if hvd.rank() == 0:
        with optimizer.skip_synchronize():
            optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    state = optimizer.state[model.weight]
    assert state["mean"].dtype == torch.float32 and bool((state["mean"] == 1.0 + 2.0**-20).all())
    assert state["count"].dtype == torch.int64 and int(state["count"]) == 2**40 + 1
    assert state["text"] == "abc" and state["parts"][1] == ("x", 1) and state["parts"][0].dtype == torch.float64
    assert optimizer.state["steps"] == {"all": 7}
    assert optimizer.param_groups[0] is held and held["mode"] == ["plain", 0] and held["params"][0] is model.weight


class Mode:
    def __init__(self, value: int) -> None:
        self.value = value


def check_options_that_are_no_plain_data() -> None:
    model = nn.Linear(2, 1)
    optimizer = hvd.DistributedOptimizer(Keeps(model.parameters(), mode=Mode(hvd.rank())))
    with raises(TypeError, "allow_pickle=True"):
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0, allow_pickle=True)
    assert optimizer.param_groups[0]["mode"].value == 0


def check_state_keeps_its_strides() -> None:
    """Fused optimizers iterate over parameter and state in memory order, so their strides must match."""
    for make in (torch.optim.Adam, torch.optim.SGD):
        for own_way in (False, True):
            torch.manual_seed(0)
            model = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
            options = {"momentum": 0.9} if make is torch.optim.SGD else {}
            kind = type("Own", (make,), {"state_dict": lambda self: super(type(self), self).state_dict()})
            raw = (kind if own_way else make)(model.parameters(), lr=0.1, fused=True, **options)
            inputs = torch.randn(2, 3, 5, 5)

            def step(optimizer: Any, model: nn.Module = model, inputs: torch.Tensor = inputs) -> None:
                model.zero_grad()
                model(inputs).square().sum().backward()
                optimizer.step()

            if hvd.rank() == 0:
                step(raw)
            hvd.broadcast_parameters(model.state_dict(), root_rank=0)
            hvd.broadcast_optimizer_state(raw, root_rank=0)
            buffers = [
                raw.state[model.weight][name]
                for name in ("exp_avg", "momentum_buffer")
                if name in raw.state[model.weight]
            ]
            assert [buffer.stride() for buffer in buffers] == [model.weight.stride()]
            optimizer = hvd.DistributedOptimizer(raw, model.named_parameters())
            for _ in range(2):
                step(optimizer)
            assert_equal_everywhere([weight.tolist() for weight in model.state_dict().values()])


class WithMore(torch.optim.SGD):
    """Its state_dict has an entry that torch does not know."""

    more = 0

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "more": self.more}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state_dict = dict(state_dict)
        self.more = state_dict.pop("more")
        super().load_state_dict(state_dict)


def check_optimizers_with_a_state_dict_of_their_own() -> None:
    model = make_model()
    raw = WithMore(model.parameters(), lr=0.1 * (hvd.rank() + 1))
    optimizer = hvd.DistributedOptimizer(raw, model.named_parameters())
    optimizer.more = 5 + hvd.rank()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert optimizer.more == 5 and optimizer.param_groups[0]["lr"] == 0.1
    assert optimizer.param_groups is raw.param_groups


def check_a_wrapper_made_of_the_first_base() -> None:
    """Lightning 1.x makes such a wrapper of an optimizer with skip_synchronize. In Horovod, this base is the wrapped
    class."""
    model, expected = make_model(), make_model()
    optimizer = hvd.DistributedOptimizer(WithMore(model.parameters(), lr=0.1), model.named_parameters(), op=hvd.Sum)
    wrapper: Any = object.__new__(type("LightningWithMore", type(optimizer).__bases__[:1], {}))
    wrapper.__dict__.update(optimizer.__dict__)
    assert isinstance(wrapper, WithMore) and wrapper.state_dict()["more"] == 0
    for step in range(2):
        wrapper.zero_grad()
        (loss_of(model, batch(step, hvd.rank())) / hvd.size()).backward()
        wrapper.step()
    reference = WithMore(expected.parameters(), lr=0.1)
    for step in range(2):
        reference.zero_grad()
        loss_of(expected, whole_batch(step)).backward()
        reference.step()
    assert_same(model, expected)


def freezing(model: nn.Sequential) -> Iterator[None]:
    """Trains the last layer only, then both, then the first one only."""
    for trained in ([2], [0, 2], [0, 2], [0], [0]):
        for place in (0, 2):
            model[place].requires_grad_(place in trained)
        yield


def check_parameters_that_are_frozen_and_not() -> None:
    expected = make_model()
    steps = freezing(expected)
    next(steps)
    reference = sgd(expected.parameters())
    for step in range(4):
        reference.zero_grad()
        loss_of(expected, whole_batch(step)).backward()
        reference.step()
        next(steps)
    for options in ({}, {"groups": 1}, {"groups": 2}, {"op": hvd.Sum}):
        model = make_model()
        steps = freezing(model)
        next(steps)
        optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), **options)
        for step in range(4):
            optimizer.zero_grad()
            (loss_of(model, batch(step, hvd.rank())) / (hvd.size() if "op" in options else 1)).backward()
            optimizer.step()
            next(steps)
        assert_same(model, expected)


def check_frozen_members_of_given_groups() -> None:
    model = make_model()
    model[0].weight.requires_grad_(False)
    params = list(model.parameters())
    optimizer = hvd.DistributedOptimizer(sgd(params), model.named_parameters(), groups=[params])
    for step in range(3):
        optimizer.zero_grad()
        loss_of(model, batch(step, hvd.rank())).backward()
        optimizer.step()
        model[0].weight.requires_grad_(step == 0)
    expected = make_model()
    expected[0].weight.requires_grad_(False)
    reference = sgd(expected.parameters())
    for step in range(3):
        reference.zero_grad()
        loss_of(expected, whole_batch(step)).backward()
        reference.step()
        expected[0].weight.requires_grad_(step == 0)
    assert_same(model, expected)


def check_line_search_with_sums() -> None:
    """LBFGS compares the loss with the decrease that the gradients predict. Both must belong to the same function."""

    def trained(make: Any, parts: list[Any], number: bool) -> nn.Module:
        model = make_model()
        optimizer = make(torch.optim.LBFGS(model.parameters(), max_iter=8, line_search_fn="strong_wolfe"))

        def closure() -> Any:
            optimizer.zero_grad()
            loss = sum(loss_of(model, part) for part in parts) / hvd.size()
            loss.backward()
            return loss.item() if number else loss

        for _ in range(3):
            optimizer.step(closure)
        return model

    expected = trained(lambda made: made, [batch(0, rank) for rank in range(hvd.size())], False)
    for number in (False, True):
        model = trained(lambda made: hvd.DistributedOptimizer(made, op=hvd.Sum), [batch(0, hvd.rank())], number)
        assert_same(model, expected)


def check_a_closure_that_synchronizes() -> None:
    """Lightning's closure clips in it. If gradients were reduced twice, a sum would be too large."""
    for skip in (False, True):
        model, expected = make_model(), make_model()
        optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), op=hvd.Sum)
        reference = sgd(expected.parameters())

        def closure(model: nn.Module = model, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = loss_of(model, batch(0, hvd.rank()))
            loss.backward()
            optimizer.synchronize()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            return loss

        for _ in range(2):
            with optimizer.skip_synchronize() if skip else contextlib.nullcontext():
                optimizer.step(closure)
            reference.zero_grad()
            sum(loss_of(expected, batch(0, rank)) for rank in range(hvd.size())).backward()
            nn.utils.clip_grad_norm_(expected.parameters(), 0.1)
            reference.step()
        assert_same(model, expected)


def check_a_closure_that_computes_nothing() -> None:
    """Lightning passes a closure to each step. If gradients were reduced twice, a sum would be too large."""
    model, expected = make_model(), make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), op=hvd.Sum)
    reference = sgd(expected.parameters())
    for step, way in enumerate(("step", "clip", "by hand", "scaler", "by hand", "step")):
        model.zero_grad()
        loss = loss_of(model, batch(step, hvd.rank()))
        if way == "by hand":  # no hook runs
            for param, grad in zip(model.parameters(), torch.autograd.grad(loss, model.parameters()), strict=True):
                param.grad = grad
        else:
            loss.backward()
        if way == "clip":
            optimizer.synchronize()
        if way == "scaler":
            assert not optimizer._step_supports_amp_scaling  # reading this property reduces the gradients
        with optimizer.skip_synchronize() if way == "clip" else contextlib.nullcontext():
            assert optimizer.step(lambda loss=loss: loss) is loss
        reference.zero_grad()
        sum(loss_of(expected, batch(step, rank)) for rank in range(hvd.size())).backward()
        reference.step()
        assert_same(model, expected)


def check_a_closure_that_computes_on_one_rank_alone() -> None:
    """Reduced gradients were dropped before, like a discriminator's gradients from the generator's pass."""
    model, expected = make_model(), make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), op=hvd.Sum)
    reference = sgd(expected.parameters())
    loss_of(model, batch(0, hvd.rank())).backward()
    optimizer.synchronize()
    optimizer.zero_grad()

    def closure() -> Any:
        loss = loss_of(model, batch(1, 0))
        if hvd.rank() == 0:
            loss.backward()
        return loss

    optimizer.step(closure)
    loss_of(expected, batch(1, 0)).backward()
    reference.step()
    assert_same(model, expected)


class OutOfMemory(hvd.Compression.none):
    """Raises for the second gradient of one rank: once, or `times` times."""

    calls, times = 0, 1

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        cls.calls += hvd.rank() == hvd.size() - 1
        if 2 <= cls.calls < 2 + cls.times:
            raise RuntimeError("CUDA out of memory")
        return tensor, None


def check_a_script_that_goes_on_after_running_out_of_memory() -> None:
    """The gradient that failed in backward is sent in synchronize(), because the others wait for it."""
    for options in ({}, {"groups": 1}):
        OutOfMemory.calls = raised = 0
        model = make_model()
        optimizer = hvd.DistributedOptimizer(
            sgd(model.parameters()), model.named_parameters(), compression=OutOfMemory, **options
        )
        for step in range(3):
            optimizer.zero_grad()
            try:
                loss_of(model, batch(step, hvd.rank())).backward()
            except RuntimeError as error:
                assert "out of memory" in str(error), error
                raised += 1
            optimizer.synchronize()
            with optimizer.skip_synchronize():
                optimizer.step()
            assert_equal_everywhere([weight.tolist() for weight in model.state_dict().values()])
        assert raised == (1 < hvd.size() == hvd.rank() + 1)


def check_a_gradient_that_is_given_up_is_no_silent_part_of_a_step() -> None:
    OutOfMemory.calls, OutOfMemory.times = 1, 2
    weight = nn.Parameter(torch.ones(3))
    optimizer = hvd.DistributedOptimizer(sgd([weight]), [("alone", weight)], compression=OutOfMemory)
    if 1 < hvd.size() == hvd.rank() + 1:
        with raises(RuntimeError, "out of memory"):
            weight.sum().backward()
        for _ in range(2):
            with raises(RuntimeError, "out of memory"):
                optimizer.step()
        assert torch.equal(weight, torch.ones(3))
        optimizer.zero_grad()
    weight.sum().backward()
    optimizer.step()
    assert_equal_everywhere(weight.tolist())
    OutOfMemory.times = 1


def check_the_number_of_passes_can_be_read_and_set() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    assert optimizer.backward_passes_per_step == 1
    optimizer.backward_passes_per_step = 2
    assert optimizer.backward_passes_per_step == 2
    for _ in range(2):
        loss_of(model, batch(0, hvd.rank())).backward()
    optimizer.step()
    # Also between backward and step: sent gradients are not reduced again, which a sum would show.
    summed = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), op=hvd.Sum)
    expected = make_model()
    expected.load_state_dict(model.state_dict())
    summed.zero_grad()
    loss_of(model, batch(0, hvd.rank())).backward()
    summed.backward_passes_per_step = 2
    summed.synchronize()
    with summed.skip_synchronize():
        summed.step()
    reference = sgd(expected.parameters())
    sum(loss_of(expected, batch(0, rank)) for rank in range(hvd.size())).backward()
    reference.step()
    assert_same(model, expected)


def check_tables_of_different_lengths() -> None:
    """The entries alone would be valid, and each rank's table would get entries of the others."""
    table = nn.Embedding(4 + hvd.rank(), 2, sparse=True)
    before = table.weight.detach().clone()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=0.1), table.named_parameters())
    table(torch.tensor([1])).sum().backward()
    if hvd.size() > 1:
        with raises(hvd.Mismatch, "weight", "(4, 2) on rank 0", "(5, 2) on rank 1"):
            optimizer.step()
        assert torch.equal(table.weight, before)


class Shared(nn.Module):
    """Autograd gives both parameters a gradient in the same memory."""

    def __init__(self, numbers: int) -> None:
        super().__init__()
        self.place, self.kind = (nn.Parameter(torch.zeros(numbers)) for _ in range(2))

    def loss(self) -> torch.Tensor:
        return ((self.place[None] + self.kind[None]) * float(1 + hvd.rank())).sum()


def check_two_gradients_in_one_memory() -> None:
    mean, alone = (1 + hvd.size()) / 2, Shared(1000)
    alone.loss().backward()
    assert alone.place.grad.data_ptr() == alone.kind.grad.data_ptr()
    for compression in (hvd.Compression.none, hvd.Compression.fp16, hvd.Compression.ef_int8):
        for options in ({}, {"groups": 1}):
            model = Shared(1000)
            optimizer = hvd.DistributedOptimizer(
                torch.optim.SGD(model.parameters(), lr=1.0),
                model.named_parameters(),
                compression=compression,
                **options,
            )
            for _ in range(2):
                model.zero_grad()
                model.loss().backward()
                optimizer.step()
                for param in model.parameters():
                    torch.testing.assert_close(param.grad, torch.full_like(param, mean), rtol=0.02, atol=0.0)
            assert_equal_everywhere([param.tolist() for param in model.parameters()])
            torch.testing.assert_close(model.place, torch.full_like(model.place, -2 * mean), rtol=0.02, atol=0.0)


def check_two_gradients_in_one_memory_that_leave_during_backward() -> None:
    for options in ({"groups": 1}, {}):
        model = Shared(1 << 18)  # 1 MiB
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters(), **options
        )
        optimizer._reducer._overlaps = True
        model.loss().backward()
        optimizer.synchronize()
        for param in model.parameters():
            assert bool((param.grad == (1 + hvd.size()) / 2).all())
    optimizer.zero_grad()


def check_two_gradients_in_one_memory_of_two_optimizers() -> None:
    model = Shared(1000)
    optimizers = [
        hvd.DistributedOptimizer(torch.optim.SGD([param], lr=1.0), [(name, param)], op=hvd.Sum)
        for name, param in model.named_parameters()
    ]
    model.loss().backward()
    for optimizer in optimizers:
        optimizer.step()
    total = hvd.size() * (1 + hvd.size()) / 2
    for param in model.parameters():
        torch.testing.assert_close(param, torch.full_like(param, -total))


class Reduced(torch.autograd.Function):
    """Its backward goes on only after all sent gradients are reduced, as on a slow host."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, optimizer: Any) -> torch.Tensor:
        ctx.optimizer = optimizer
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        assert hvd.size() == 1 or ctx.optimizer._reducer._flights
        for handle, _ in ctx.optimizer._reducer._flights:
            while not handle.poll():
                pass
        return gradient, None


def check_a_gradient_in_memory_from_which_backward_goes_on() -> None:
    """Both sides of the addition get the same gradient. `position` is reduced while `weight`'s is not yet computed."""
    position, weight = (nn.Parameter(torch.zeros(1 << 18)) for _ in range(2))  # 1 MiB
    named = [("position", position), ("weight", weight)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([position, weight], lr=1.0), named)
    optimizer._reducer._overlaps = True
    mine = float(1 + hvd.rank())
    hidden = Reduced.apply((weight * mine)[None], optimizer) + position[None]
    (hidden * mine).sum().backward()
    optimizer.synchronize()
    ranks = [float(1 + rank) for rank in range(hvd.size())]
    for param, expected in ((position, sum(ranks)), (weight, sum(one * one for one in ranks))):
        torch.testing.assert_close(param.grad, torch.full_like(param, expected / hvd.size()))
    optimizer.zero_grad()


class Plain(torch.optim.SGD):
    """Its zero_grad takes no argument, as in some libraries."""

    def zero_grad(self) -> None:  # type: ignore[override]
        for param in self.param_groups[0]["params"]:
            param.grad = None


def check_zero_grad_with_what_was_given() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(Plain(model.parameters(), lr=0.1), model.named_parameters())
    optimizer.zero_grad()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    for params in ({"set_to_none": False}, {"set_to_none": True}):
        loss_of(model, batch(0, hvd.rank())).backward()
        optimizer.step()
        optimizer.zero_grad(**params)
        assert (model[0].weight.grad is None) == params["set_to_none"]


def check_groups_that_are_filled_anew() -> None:
    """After wrapping: weights with decay, biases without, as in timm's add_weight_decay. One parameter is frozen."""
    model, single = make_model(), make_model()
    model[0].weight.requires_grad_(False)
    optimizers = [hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters()), sgd(single.parameters())]
    for net, optimizer in zip((model, single), optimizers, strict=True):
        for dimensions, decay in ((2, 0.1), (1, 0.0)):
            chosen = [param for param in net.parameters() if param.dim() == dimensions]
            if dimensions == 2:
                optimizer.param_groups = []
            optimizer.add_param_group({"params": chosen, "weight_decay": decay})
        net[0].weight.requires_grad_(True)
    assert list(optimizers[0]._parameter_names.values()) == [name for name, _ in model.named_parameters()]
    for step in range(3):
        for net, optimizer in zip((model, single), optimizers, strict=True):
            optimizer.zero_grad()
            loss_of(net, batch(step, hvd.rank()) if net is model else whole_batch(step)).backward()
            optimizer.step()
    assert_same(model, single)


def check_what_is_no_compression_is_refused_at_once() -> None:
    for wrong in ("fp16", hvd.Compression, None):
        model = make_model()
        with raises(ValueError, "such as hvd.Compression.fp16", repr(wrong)):
            hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), compression=wrong)


def check_wrapped_twice_is_refused() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    with raises(ValueError, "already distributed"):
        hvd.DistributedOptimizer(optimizer, model.named_parameters())
    for step in range(2):
        optimizer.zero_grad()
        loss_of(model, batch(step, hvd.rank())).backward()
        optimizer.step()


def check_horovods_class() -> None:
    """Libraries use the class in annotations, and some use its attributes."""
    from distrun.torch.optimizer import _DistributedOptimizer

    model = make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    assert isinstance(optimizer, _DistributedOptimizer)
    assert not isinstance(sgd(model.parameters()), _DistributedOptimizer)
    copied = type("SGD", (torch.optim.SGD,), dict(_DistributedOptimizer.__dict__))
    for kind in (type("Own", (_DistributedOptimizer,), {}), type(optimizer), copied):
        with raises(TypeError, "hvd.DistributedOptimizer(optimizer, ...)", "compression="):
            kind(model.parameters(), lr=0.1)


def check_optimizers_of_process_sets_and_of_all() -> None:
    """Members of the set have made one more optimizer than the other ranks."""
    if hvd.size() < 3:
        return
    members = hvd.add_process_set([0, 1])
    models = [make_model() for _ in range(2)]
    made = [hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters()) for model in models[1:]]
    if members.included():
        first = models[0]
        made.append(hvd.DistributedOptimizer(sgd(first.parameters()), first.named_parameters(), process_set=members))
    models.append(make_model())
    made.append(hvd.DistributedOptimizer(sgd(models[2].parameters()), models[2].named_parameters()))
    sum(loss_of(model, batch(0, hvd.rank())) for model in models).backward()
    for optimizer in made:
        optimizer.step()
    for model in models[1:]:
        assert_equal_everywhere(model[0].weight.tolist())
    hvd.remove_process_set(members)


if __name__ == "__main__":
    run(globals())
