"""Several DistributedOptimizers whose backward passes overlap: adversarial training, and parameters that two of them
have. Also parameters that leave an optimizer or that only some ranks have."""

from __future__ import annotations

import contextlib
import copy
import gc
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import torch
from checks import raises, run
from torch import nn
from torch_optimizer import assert_same, make_model, sgd

import distrun.torch as hvd

STEPS = 3
Wrap = Callable[[nn.Module], Any]


def distributed(model: nn.Module) -> Any:
    return hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())


def noise(step: int, ranks: list[int]) -> torch.Tensor:
    parts = [torch.randn(4, 6, generator=torch.Generator().manual_seed(100 * step + rank)) for rank in ranks]
    return torch.cat(parts).double()


def networks() -> tuple[nn.Module, nn.Module]:
    """A generator and a discriminator."""
    torch.manual_seed(7)
    return make_model(1), nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)).double()


def adversaries(wrap: Wrap, ranks: list[int], generator_pass: Callable[..., None]) -> nn.ModuleList:
    generator, discriminator = networks()
    for_generator, for_discriminator = wrap(generator), wrap(discriminator)
    for step in range(STEPS):
        made = generator(noise(step, ranks))
        for_discriminator.zero_grad()
        (discriminator(made.detach()).mean() - discriminator(noise(step + 50, ranks)[:, :3]).square().mean()).backward()
        for_discriminator.step()
        for_generator.zero_grad()
        generator_pass(discriminator, for_discriminator, made)
        for_generator.step()
    return nn.ModuleList([generator, discriminator])


def frozen(discriminator: nn.Module, _: Any, made: torch.Tensor) -> None:
    discriminator.requires_grad_(False)
    (-discriminator(made).mean()).backward()
    discriminator.requires_grad_(True)


def reduced_for_nothing(discriminator: nn.Module, optimizer: Any, made: torch.Tensor) -> None:
    (-discriminator(made).mean()).backward()
    if hasattr(optimizer, "synchronize"):
        optimizer.synchronize()


def check_adversaries() -> None:
    everybody = list(range(hvd.size()))
    expected = adversaries(lambda model: sgd(model.parameters()), everybody, frozen)
    for generator_pass in (frozen, reduced_for_nothing):
        assert_same(adversaries(distributed, [hvd.rank()], generator_pass), expected)


def check_a_pass_through_the_other_ones_parameters_is_explained() -> None:
    """Scripts for one process do this. The message names a parameter and both solutions."""
    cures = (" 0.", "requires_grad_(False)", "synchronize()")
    for again in (True, False):
        generator, discriminator = networks()
        for_generator, for_discriminator = distributed(generator), distributed(discriminator)
        discriminator(generator(noise(0, [hvd.rank()]))).mean().backward()
        for_generator.step()
        with raises(AssertionError, "backward_passes_per_step" if again else "race condition", *cures):
            if again:
                discriminator[0](noise(0, [hvd.rank()])[:, :3]).mean().backward()
            else:
                for_discriminator.zero_grad()
        for_discriminator.step()


def check_a_parameter_that_two_optimizers_have() -> None:
    """A trunk that is in the optimizers of both heads. The second one must not reduce what the first one has
    reduced."""
    if hvd.size() == 1:
        return
    for op in (hvd.Average, hvd.Sum):
        trunk, *heads = (nn.Linear(6, 4), nn.Linear(4, 1), nn.Linear(4, 1))
        models = [nn.ModuleList([trunk, head]) for head in heads]
        first, second = (
            hvd.DistributedOptimizer(sgd(one.parameters()), one.named_parameters(), op=op) for one in models
        )
        hidden = trunk(torch.ones(2, 6))
        (heads[0](hidden).sum() + heads[1](hidden).sum()).backward()
        first.step()
        with raises(ValueError, "the parameter 0.", "is in two DistributedOptimizers", "Put it into one of them"):
            second.step()


def check_a_trunk_that_two_optimizers_use_in_turns() -> None:
    def trained(wrap: Callable[[nn.Module], Any], ranks: list[int]) -> nn.Module:
        torch.manual_seed(9)
        trunk, *heads = (layer.double() for layer in (nn.Linear(6, 4), nn.Linear(4, 1), nn.Linear(4, 1)))
        optimizers = [wrap(nn.ModuleList([trunk, head])) for head in heads]
        for step in range(4):
            optimizers[step % 2].zero_grad()
            heads[step % 2](trunk(noise(step, ranks))).square().mean().backward()
            optimizers[step % 2].step()
        return nn.ModuleList([trunk, *heads])

    expected = trained(lambda model: sgd(model.parameters()), list(range(hvd.size())))
    assert_same(trained(distributed, [hvd.rank()]), expected)


def trained_in_turns(wrap: Callable[[Any], Any], ranks: list[int], zero: str) -> nn.Module:
    """Adam first and LBFGS then, both made at the start, then Adam again. Gradients are dropped by the model, by the
    optimizer that steps, or by both optimizers."""
    model = make_model(5)
    adam = wrap(torch.optim.Adam(model.parameters(), lr=0.05))
    lbfgs = wrap(torch.optim.LBFGS(model.parameters(), max_iter=3))
    for step, optimizer in enumerate((adam, adam, lbfgs, adam, lbfgs)):

        def closure(step: int = step, optimizer: Any = optimizer) -> torch.Tensor:
            for one in {"model": [model], "own": [optimizer], "both": [adam, lbfgs]}[zero]:
                one.zero_grad()
            loss = model(noise(step, ranks)).square().mean()
            loss.backward()
            return loss

        if optimizer is lbfgs:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    return model


def check_optimizers_of_one_model_in_turns() -> None:
    everybody = list(range(hvd.size()))
    for zero in ("model", "own", "both"):
        expected = trained_in_turns(lambda optimizer: optimizer, everybody, zero)
        assert_same(trained_in_turns(hvd.DistributedOptimizer, [hvd.rank()], zero), expected)


class Cycle:
    """Only the garbage collector frees it."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer
        self.itself = self


def step_by_sums(step: int, model: nn.Module, optimizer: Any, expected: nn.Module, reference: Any) -> None:
    """A step of an optimizer with op=Sum on this rank's data, and that of one process on the data of all ranks."""
    (model(noise(step, [hvd.rank()])).square().mean() / hvd.size()).backward()
    optimizer.step()
    reference.zero_grad()
    expected(noise(step, list(range(hvd.size())))).square().mean().backward()
    reference.step()


def check_optimizers_that_are_kept_or_dropped() -> None:
    """The garbage collector runs on one rank only. The next training must not depend on that."""
    model, expected = make_model(6), make_model(6)
    kept = []
    gc.disable()
    for fold in range(4):
        optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), op=hvd.Sum)
        reference = sgd(expected.parameters())
        kept.append(optimizer) if fold % 2 else Cycle(optimizer)
        if hvd.rank() == 0:
            gc.collect()
        for step in range(2):
            model.zero_grad()
            step_by_sums(step, model, optimizer, expected, reference)
    gc.enable()
    assert_same(model, expected)


def copied(model: nn.Module, optimizer: Any) -> tuple[nn.Module, Any]:
    return copy.deepcopy((model, optimizer))


def pickled(model: nn.Module, optimizer: Any) -> tuple[nn.Module, Any]:
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100)
    model, _, holder = pickle.loads(pickle.dumps((model, optimizer, scheduler)))
    return model, holder.optimizer


def stepped(model: nn.Module, optimizer: Any, steps: range, ranks: list[int]) -> nn.Module:
    for step in steps:
        for turn in range(2):
            ((model(noise(2 * step + turn, ranks)).square().mean()) / 2).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def check_copies() -> None:
    """A copy continues with the momentum, the names, the groups and the options. The original is left alone."""
    everybody = list(range(hvd.size()))
    for copies in (copied, pickled, copied):
        model = make_model(11)
        optimizer = hvd.DistributedOptimizer(
            sgd(model.parameters()), model.named_parameters(), op=hvd.Average, groups=2, backward_passes_per_step=2
        )
        stepped(model, optimizer, range(2), [hvd.rank()])
        other, its = copies(model, optimizer)
        assert its.backward_passes_per_step == 2
        assert set(its._parameter_names.values()) == set(dict(model.named_parameters()))
        expected = make_model(11)
        reference = sgd(expected.parameters())
        stepped(expected, reference, range(2), everybody)
        assert_same(model, expected)
        stepped(expected, reference, range(2, 4), everybody)
        stepped(other, its, range(2, 4), [hvd.rank()])
        assert_same(other, expected)
        stepped(model, optimizer, range(2, 4), [hvd.rank()])
        assert_same(model, expected)


def check_a_copy_with_gradients_in_flight() -> None:
    if hvd.size() == 1:
        return
    model = make_model(12)
    optimizer = distributed(model)
    model(noise(0, [hvd.rank()])).sum().backward()
    with raises(TypeError, "cannot be copied now", "after optimizer.step()"):
        copy.deepcopy(optimizer)
    optimizer.step()
    assert copy.copy(optimizer).param_groups[0]["params"][0] is model[0].weight


def check_a_gradient_that_waits_must_not_be_changed() -> None:
    """As for one that is in flight."""
    if hvd.size() == 1:
        return
    model = make_model(8)
    unused, optimizer = distributed(model), distributed(model)
    model(noise(0, [hvd.rank()])).sum().backward()
    with raises(AssertionError, "race condition"):
        optimizer.zero_grad()
    nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    with raises(hvd.InvalidArgument, "was changed after its reduction", "synchronize()"):
        optimizer.step()
    unused.zero_grad()
    optimizer.zero_grad()


def distributed_groups(model: nn.Module) -> Any:
    return hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), op=hvd.Sum, groups=2)


def check_an_optimizer_made_anew() -> None:
    """The old optimizer exists when the new one is made. It is freed before the new one is used, with gradients in
    flight."""
    model = make_model()
    optimizer = distributed_groups(model)
    model(noise(0, [hvd.rank()])).sum().backward()
    optimizer = distributed_groups(model)
    model(noise(0, [hvd.rank()])).sum().backward()
    optimizer.step()
    model, expected = make_model(), make_model()
    optimizer, reference = None, sgd(expected.parameters())
    for step in range(STEPS):
        made = sgd(model.parameters())
        if optimizer is not None:
            made.load_state_dict(optimizer.state_dict())
        optimizer = hvd.DistributedOptimizer(made, model.named_parameters(), op=hvd.Sum)
        optimizer.zero_grad()
        step_by_sums(step, model, optimizer, expected, reference)
    assert_same(model, expected)


def check_parameters_that_leave_the_groups() -> None:
    """They keep their names. After a step they are not sent any more, and no reference to them is left. They may come
    back."""
    for named in (False, True):
        heads = [nn.Linear(2, 1) for _ in range(3)]
        names = [(f"{index}.{name}", param) for index in range(3) for name, param in heads[index].named_parameters()]
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(heads[0].parameters(), 0.1), names if named else None, groups=1
        )
        first = optimizer.param_groups[0]
        for head in heads[1:]:
            optimizer.param_groups.clear()
            optimizer.add_param_group({"params": list(head.parameters())})
            head(torch.full((2,), 1.0 + hvd.rank())).sum().backward()
            optimizer.step()
            assert torch.all(head.weight.grad == (hvd.size() + 1) / 2)
            assert heads[0].weight.grad is None
            optimizer.zero_grad()
        last = [f"2.{name}" for name in ("weight", "bias")] if named else ["noname.2.0", "noname.2.1"]
        assert [optimizer._parameter_names[param] for param in heads[2].parameters()] == last
        if hvd.size() > 1:
            assert [slot.name for slot in optimizer._reducer._slots] == last
            gone = weakref.ref(heads[1].weight)
            del head, heads[1], names[2:4]
            gc.collect()
            assert gone() is None
        optimizer.param_groups.append(first)
        for _ in range(2):
            heads[0](torch.full((2,), 1.0 + hvd.rank())).sum().backward()
            optimizer.step()
            assert torch.all(heads[0].weight.grad == (hvd.size() + 1) / 2)
            optimizer.zero_grad()


def check_other_parameters_on_one_rank() -> None:
    """All ranks get an error. None waits for a parameter that another rank lacks."""
    count = 3 if hvd.rank() == 0 else 2
    weights = [nn.Parameter(torch.zeros(2)) for _ in range(count)]
    optimizer = hvd.DistributedOptimizer(sgd(weights), [(f"layer{index}", one) for index, one in enumerate(weights)])
    for weight in weights:
        weight.grad = torch.ones(2)
    with raises(hvd.Mismatch, "different parameters", f"This rank has {count}, from 'layer0' to 'layer{count - 1}'"):
        optimizer.step()


def check_zero_grad_between_the_passes_of_a_step() -> None:
    """It drops the passes together with their gradients, because an epoch may end in the middle of a step."""
    model = nn.Linear(2, 1, bias=False)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), backward_passes_per_step=2
    )
    for _ in range(2):
        for index in range(5):
            if index % 2 == 0:
                optimizer.zero_grad()
            model(torch.full((1, 2), float(hvd.rank()))).sum().backward()
            if index % 2 == 1:
                assert model.weight.grad is not None
                optimizer.step()
                mean = 2 * sum(range(hvd.size())) / hvd.size()
                torch.testing.assert_close(model.weight.grad, torch.full((1, 2), mean))


def check_state_of_a_parameter_that_left_its_groups() -> None:
    """For example after a head was replaced: the optimizer keeps its momentum, which belongs to no parameter any
    more."""
    old, new = (nn.Parameter(torch.ones(2)) for _ in range(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([old], lr=0.1, momentum=0.9), [("old", old)])
    old.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.param_groups.clear()
    optimizer.add_param_group({"params": [new]})
    assert old in optimizer.state
    hvd.broadcast_optimizer_state(optimizer, 0)
    (new * (1.0 + hvd.rank())).sum().backward()
    optimizer.step()
    torch.testing.assert_close(new.detach(), torch.full((2,), 1 - 0.1 * (1 + hvd.size()) / 2))


class Stop(Exception):
    """Leaves a step."""


def leave_in_backward(model: nn.Module, loss: torch.Tensor, optimizer: Any) -> None:
    """Only some of the gradients are computed. One rank has sent what it has, and the others collect it."""

    def stop(*_: Any) -> None:
        raise Stop

    if hvd.rank() == 0 and hasattr(optimizer, "_reducer"):
        optimizer._reducer._overlaps = True
    hook = model[0].register_full_backward_hook(stop)
    with contextlib.suppress(Stop):
        loss.backward()
    hook.remove()


def leave(how: str, model: nn.Module, optimizer: Any, loss: torch.Tensor) -> Any:
    """Leaves a step. Returns what the program keeps of its optimizer."""
    if how == "in backward":
        leave_in_backward(model, loss, optimizer)
    else:
        loss.backward()
    if how in ("no gradients", "in backward"):
        for param in model.parameters():
            param.grad = None
    if how.startswith("cycle"):
        optimizer.itself = optimizer
    return None if how == "dropped" or how.startswith("cycle") else optimizer


def goes_on_after_a_left_step(how: str, wrap: Callable[[Any], Any], ranks: list[int]) -> nn.Module:
    model = make_model(21)
    optimizer = wrap(torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(2):
        optimizer.zero_grad()
        loss = model(noise(step, ranks)).square().mean()
        if step == 0:
            loss.backward()
            optimizer.step()
    kept = leave(how, model, optimizer, loss)
    del optimizer
    if how == "cycle of rank 0" and hvd.rank() == 0:
        gc.collect()
    following = wrap(torch.optim.SGD(model.parameters(), lr=0.05))
    for step in range(2, 5):
        if how != "no gradients" or step > 2:
            following.zero_grad(set_to_none=how != "in place")
        model(noise(step, ranks)).square().mean().backward()
        following.step()
    if how == "kept":  # and the first one goes on
        for step in range(5, 7):
            kept.zero_grad()
            model(noise(step, ranks)).square().mean().backward()
            kept.step()
    return model


def check_a_step_that_is_left_and_another_optimizer() -> None:
    """An exception, a loss that is not finite, Ctrl-C in a notebook: the next training must not notice."""
    gc.disable()
    for how in ("dropped", "kept", "no gradients", "in place", "cycle", "cycle of rank 0", "in backward"):
        for op in (hvd.Average, hvd.Sum):
            expected = goes_on_after_a_left_step(how, lambda one: one, list(range(hvd.size())))
            factor = 1.0 if op == hvd.Average else 1.0 / hvd.size()

            def wrapped(optimizer: Any, op: int = op, factor: float = factor) -> Any:
                optimizer.param_groups[0]["lr"] *= factor
                return hvd.DistributedOptimizer(optimizer, op=op)

            assert_same(goes_on_after_a_left_step(how, wrapped, [hvd.rank()]), expected)
    gc.enable()


def adds_to_a_left_step(wrap: Callable[[Any], Any], ranks: list[int]) -> nn.Module:
    model = make_model(22)
    left = wrap(torch.optim.SGD(model.parameters(), lr=0.1))
    model(noise(0, ranks)).square().mean().backward()
    optimizer = wrap(torch.optim.SGD(model.parameters(), lr=0.1))
    model(noise(1, ranks)).square().mean().backward()
    optimizer.step()
    del left
    return model


def check_gradients_that_are_added_to_those_of_a_left_step() -> None:
    """Nobody has dropped the old gradients, so the step uses the sum, as in one process."""
    expected = adds_to_a_left_step(lambda one: one, list(range(hvd.size())))
    assert_same(adds_to_a_left_step(hvd.DistributedOptimizer, [hvd.rank()]), expected)
    assert_same(adds_to_a_left_step(mean_of_sums, [hvd.rank()]), expected)


def mean_of_sums(optimizer: Any) -> Any:
    optimizer.param_groups[0]["lr"] /= hvd.size()
    return hvd.DistributedOptimizer(optimizer, op=hvd.Sum)


def goes_back(wrap: Callable[[Any], Any], ranks: list[int], zero: str) -> nn.Module:
    """The newer optimizer is left in a step, the older one goes on, and then the newer one again."""
    model = make_model(23)
    older = wrap(sgd(model.parameters()))
    newer = wrap(torch.optim.Adam(model.parameters(), lr=0.05))
    for step, optimizer in enumerate((newer, newer, older, older, newer, older)):
        (optimizer if zero == "own" else model).zero_grad()
        model(noise(step, ranks)).square().mean().backward()
        if step not in (1, 4):
            optimizer.step()
    return model


def check_an_older_optimizer_that_goes_on() -> None:
    for zero in ("own", "model"):
        expected = goes_back(lambda one: one, list(range(hvd.size())), zero)
        assert_same(goes_back(hvd.DistributedOptimizer, [hvd.rank()], zero), expected)


def check_a_plain_optimizer_after_a_distributed_one() -> None:
    """Each rank goes on alone, with its own gradients. At the end rank 0 does so, and then all together again."""
    mine = [hvd.rank()]
    model, expected = make_model(24), make_model(24)
    optimizer, reference = distributed(model), sgd(expected.parameters())

    def step(net: nn.Module, optimizer: Any, number: int, ranks: list[int], zero: Any) -> None:
        zero.zero_grad()
        net(noise(number, ranks)).square().mean().backward()
        optimizer.step()

    everybody = list(range(hvd.size()))
    step(model, optimizer, 0, mine, optimizer)
    step(expected, reference, 0, everybody, expected)
    plain, alone = (torch.optim.SGD(net.parameters(), lr=0.05) for net in (model, expected))
    for number in range(1, 5):
        step(model, plain, number, mine, model if number < 3 else plain)
        step(expected, alone, number, mine, expected)
    assert_same(model, expected)
    hvd.broadcast_parameters(model.state_dict(), 0)
    hvd.broadcast_parameters(expected.state_dict(), 0)
    for number in range(5, 11):
        if number in (7, 8):
            if hvd.rank() == 0:
                step(model, plain, number, mine, plain)
                step(expected, alone, number, mine, expected)
            hvd.broadcast_parameters(model.state_dict(), 0)
            hvd.broadcast_parameters(expected.state_dict(), 0)
        else:
            step(model, optimizer, number, mine, optimizer)
            step(expected, reference, number, everybody, expected)
    assert_same(model, expected)


def check_a_plain_optimizer_around_a_distributed_one() -> None:
    """It steps by the distributed one, so gradients are sent in backward as ever."""

    class Around(torch.optim.Optimizer):
        def __init__(self, inner: Any) -> None:
            super().__init__([param for group in inner.param_groups for param in group["params"]], {})
            self.inner = inner

        def step(self, closure: Any = None) -> Any:
            return self.inner.step(closure)

    model, expected = make_model(25), make_model(25)
    optimizer, reference = Around(distributed(model)), sgd(expected.parameters())
    for number in range(3):
        optimizer.zero_grad()
        model(noise(number, [hvd.rank()])).square().mean().backward()
        assert hvd.size() == 1 or number == 0 or optimizer.inner._reducer._queued == 4  # a step makes it the used one
        optimizer.step()
        reference.zero_grad()
        expected(noise(number, list(range(hvd.size())))).square().mean().backward()
        reference.step()
    assert_same(model, expected)


def check_a_model_that_was_left_in_a_step_is_freed() -> None:
    """After the first step of the next training."""
    model: Any = make_model(26)
    optimizer = distributed(model)
    model(noise(0, [hvd.rank()])).sum().backward()
    optimizer.synchronize()
    model(noise(0, [hvd.rank()])).sum().backward()
    gone = weakref.ref(model[0].weight)
    del model, optimizer
    following = make_model(27)
    optimizer = distributed(following)
    following(noise(0, [hvd.rank()])).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    gc.collect()
    assert gone() is None


if __name__ == "__main__":
    run(globals())
