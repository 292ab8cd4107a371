"""Changes of tensors in flight: gradients that backward has submitted, and the tensors of ..._async."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from checks import raises, run
from torch import nn

import distrun.torch as hvd

Change = Callable[[torch.Tensor], object]

TOO_LATE = "after its reduction had started", "synchronize()", "skip_synchronize()"
CHANGES: dict[str, Change] = {
    "clipping": lambda grad: grad.clamp_(-0.1, 0.1),
    "scaling": lambda grad: grad.mul_(0.5),
    "noise": lambda grad: grad.add_(torch.ones_like(grad)),
    "an item": lambda grad: grad.view(-1)[:1].zero_(),
    "all in one call": lambda grad: torch._foreach_mul_([grad], 0.5),
    "out=": lambda grad: torch.add(grad, 1.0, out=grad),
    "detached": lambda grad: grad.detach().neg_(),
    "other data": lambda grad: setattr(grad, "data", grad.data * 0.5),
    "zeros": lambda grad: grad.zero_(),
}


@contextlib.contextmanager
def refused(what: str = "was changed", name: str = "0.weight") -> Iterator[None]:
    """The error occurs only with several ranks. A single rank submits nothing."""
    if hvd.size() == 1:
        yield
        return
    with raises(hvd.InvalidArgument, f"gradient of {name} {what}", *TOO_LATE):
        yield


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 700), nn.Tanh(), nn.Linear(700, 700), nn.Tanh(), nn.Linear(700, 2))


def make_optimizer(model: nn.Module, **options: Any) -> Any:
    return hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), **options)


def loss_of(model: nn.Module) -> torch.Tensor:
    generator = torch.Generator().manual_seed(hvd.rank())
    result: torch.Tensor = model(torch.randn(8, 4, generator=generator)).square().mean()
    return result


def grad_of(model: nn.Sequential) -> torch.Tensor:
    grad = model[0].weight.grad
    assert grad is not None
    return grad


def trained(model: nn.Module) -> list[torch.Tensor]:
    return [param.detach().clone() for param in model.parameters()]


def assert_alike(model: nn.Module) -> None:
    everybody = hvd.allgather_object(trained(model))
    assert all(torch.equal(one, its) for one, its in zip(everybody[0], model.parameters(), strict=True))


def check_every_way_to_change_a_gradient() -> None:
    for what, change in CHANGES.items():
        model = make_model()
        optimizer = make_optimizer(model)
        before = trained(model)
        loss_of(model).backward()
        change(grad_of(model))
        with refused():
            optimizer.step()
        if hvd.size() > 1:
            assert all(map(torch.equal, before, trained(model))), what
        optimizer.zero_grad()
        loss_of(model).backward()  # the next step works
        optimizer.step()
        assert_alike(model)


def check_every_option() -> None:
    options: list[dict[str, Any]] = [
        {"compression": hvd.Compression.fp16},
        {"compression": hvd.Compression.ef_int8},
        {"compression": hvd.Compression.ef_fp16},
        {"groups": 1},
        {"backward_passes_per_step": 2},
        {"gradient_predivide_factor": 2.0},
        {"op": hvd.Sum},
    ]
    for option in options:
        model = make_model()
        optimizer = make_optimizer(model, **option)
        for _ in range(option.get("backward_passes_per_step", 1)):
            loss_of(model).backward()
        grad_of(model).mul_(0.5)
        with refused():
            optimizer.synchronize()


def check_a_pass_that_is_not_the_last() -> None:
    """These gradients are local to the rank, so a program may change them."""
    model = make_model()
    optimizer = make_optimizer(model, backward_passes_per_step=2)
    for _ in range(2):
        for _ in range(2):
            for param in model.parameters():
                if param.grad is not None:
                    param.grad.mul_(0.5)
            loss_of(model).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert_alike(model)


def check_a_group_that_waits_for_a_frozen_member() -> None:
    model = make_model()
    optimizer = make_optimizer(model, groups=[[model[0].weight, model[0].bias]])
    model[0].bias.requires_grad_(False)
    loss_of(model).backward()
    grad_of(model).mul_(0.5)
    with refused():
        optimizer.step()
    optimizer.zero_grad()
    loss_of(model).backward()
    optimizer.step()
    assert_alike(model)


def check_clipping_by_torch() -> None:
    for clip in (nn.utils.clip_grad_norm_, nn.utils.clip_grad_value_):
        # a factor of one counts as a change too, because the factor depends on the rank's data
        for limit in (1e-3, 1e9):
            model = make_model()
            optimizer = make_optimizer(model)
            loss_of(model).backward()
            clip(model.parameters(), limit)
            with refused():
                optimizer.step()
        model = make_model()
        optimizer = make_optimizer(model)
        loss_of(model).backward()
        optimizer.synchronize()
        clip(model.parameters(), 1e-3)
        with optimizer.skip_synchronize():
            optimizer.step()
        assert_alike(model)


def check_a_closure_that_clips() -> None:
    model = make_model()
    optimizer = make_optimizer(model)

    def closure(synchronized: bool) -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        if synchronized:
            optimizer.synchronize()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        return loss

    with refused():
        optimizer.step(lambda: closure(False))
    optimizer.step(lambda: closure(True))
    assert_alike(model)


def check_a_scaler() -> None:
    """torch's version counter does not count the writes of unscale_."""
    model = make_model()
    optimizer = make_optimizer(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=10**6)
    scaler.scale(loss_of(model)).backward()
    with refused("was to be unscaled"):
        scaler.unscale_(optimizer)
    optimizer.synchronize()
    if hvd.size() > 1:  # a single rank has already unscaled
        scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    with optimizer.skip_synchronize():
        scaler.step(optimizer)
    scaler.update()
    scaler.scale(loss_of(model)).backward()
    scaler.step(optimizer)  # unscales the gradients after waiting for them
    scaler.update()
    assert_alike(model)
    off = torch.amp.GradScaler("cpu", enabled=False)
    optimizer.zero_grad()
    off.scale(loss_of(model)).backward()
    off.unscale_(optimizer)
    off.step(optimizer)
    assert_alike(model)


def check_a_sparse_gradient() -> None:
    changes: list[tuple[str, Change]] = [
        ("was changed", lambda grad: grad.mul_(0.5)),
        ("was changed", lambda grad: grad._values().mul_(0.5)),
        ("was replaced", lambda grad: None),
    ]
    for what, change in changes:
        torch.manual_seed(0)
        table = nn.Embedding(6, 3, sparse=True)
        optimizer = make_optimizer(table)
        for turn in range(3):
            optimizer.zero_grad()
            table(torch.tensor([hvd.rank(), 4])).square().sum().backward()
            if turn == 1:
                grad = table.weight.grad
                assert grad is not None
                change(grad)
                if what == "was replaced":
                    table.weight.grad = grad * 0.5
                with refused(what, "weight"):
                    optimizer.step()
            else:
                optimizer.step()
        assert_alike(table)


def check_gradients_in_one_buffer() -> None:
    """Additions by backward and results change the whole buffer. They are no changes by the program."""
    for groups, passes in ((0, 1), (1, 1), (0, 2)):
        model = make_model()
        params = list(model.parameters())
        flat = torch.zeros(sum(param.numel() for param in params))
        optimizer = make_optimizer(model, groups=groups, backward_passes_per_step=passes)
        for _ in range(2):
            flat.zero_()
            for param, part in zip(params, flat.split([param.numel() for param in params]), strict=True):
                param.grad = part.view_as(param)
            for _ in range(passes):
                loss_of(model).backward()
            optimizer.step()
        assert_alike(model)
        flat.zero_()
        for _ in range(passes):
            loss_of(model).backward()
        flat.mul_(0.5)
        with refused("was changed", "0.weight"):
            optimizer.step()


def check_a_buffer_that_two_backward_passes_fill() -> None:
    """The second pass adds to other parameters. This does not change the gradients of the first pass."""
    models = make_model(), make_model()
    both = nn.ModuleList(models)
    params = list(both.parameters())
    flat = torch.zeros(sum(param.numel() for param in params))
    optimizer = make_optimizer(both)
    for _ in range(2):
        flat.zero_()
        for param, part in zip(params, flat.split([param.numel() for param in params]), strict=True):
            param.grad = part.view_as(param)
        for model in models:
            loss_of(model).backward()
        optimizer.step()
    assert_alike(both)


def check_gradients_that_autograd_puts_into_one_memory() -> None:
    ways: list[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = [
        lambda a, b: (a[None] + b[None]).sum(),
        lambda a, b: torch.cat([a, b]).square().sum(),
        lambda a, b: (a.exp() + b[None]).sum(),
        lambda a, b: torch.stack([a, b]).square().sum(),
    ]
    for loss in ways:
        for passes in (1, 2):
            a, b = nn.Parameter(torch.ones(5)), nn.Parameter(torch.ones(5))
            optimizer = hvd.DistributedOptimizer(
                torch.optim.SGD([a, b], lr=0.1), [("a", a), ("b", b)], backward_passes_per_step=passes
            )
            for _ in range(2):
                optimizer.zero_grad()
                for _ in range(passes):
                    (loss(a, b) * (1.0 + hvd.rank())).backward()
                optimizer.step()
            everybody = hvd.allgather_object([a.detach(), b.detach()])
            assert all(torch.equal(one[0], a) and torch.equal(one[1], b) for one in everybody)


def check_reading_a_gradient_is_no_change() -> None:
    model = make_model()
    optimizer = make_optimizer(model)
    loss_of(model).backward()
    norm = torch.stack([param.grad.norm() for param in model.parameters() if param.grad is not None]).sum()
    assert float(norm) > 0.0 and grad_of(model).clone().mul_(2.0) is not None
    grad_of(model).requires_grad_(False)
    optimizer.step()
    assert_alike(model)


def check_a_gradient_that_torch_does_not_count_changes_of() -> None:
    """A gradient made in inference mode."""
    model = make_model()
    optimizer = make_optimizer(model)
    with torch.inference_mode():
        grads = [torch.full_like(param, 1.0 + hvd.rank()) for param in model.parameters()]
    for param, grad in zip(model.parameters(), grads, strict=True):
        param.grad = grad
    optimizer.step()
    assert_alike(model)


def in_flight(tensor: torch.Tensor, name: str) -> list[Callable[[], Any]]:
    """The operations that write to the tensor."""
    return [
        lambda: hvd.allreduce_async_(tensor, name=f"{name}.reduce"),
        lambda: hvd.grouped_allreduce_async_([tensor], name=f"{name}.group"),
        lambda: hvd.broadcast_async_(tensor, 0, name=f"{name}.broadcast"),
    ]


def out_of_place(tensor: torch.Tensor, name: str) -> list[Callable[[], Any]]:
    return [
        lambda: hvd.allreduce_async(tensor, name=f"{name}.reduce"),
        lambda: hvd.allgather_async(tensor, name=f"{name}.gather"),
        lambda: hvd.broadcast_async(tensor, 0, name=f"{name}.broadcast"),
        lambda: hvd.reducescatter_async(tensor, name=f"{name}.share"),
        lambda: hvd.alltoall_async(tensor, name=f"{name}.rows"),
    ]


def check_tensors_in_flight() -> None:
    tensor = torch.ones(hvd.size() * 2, 3)
    for start in in_flight(tensor, "changed") + out_of_place(tensor, "changed"):
        handle = start()
        tensor.mul_(0.5)
        if hvd.size() == 1:
            hvd.synchronize(handle)
            continue
        for _ in range(2):
            with raises(hvd.InvalidArgument, "changed.", "was changed while it was in flight", "Wait"):
                hvd.synchronize(handle)
        hvd.synchronize(start())


def check_views_of_a_whole_tensor_in_flight() -> None:
    """Every counted write to their memory changes them."""
    tensor = torch.ones(hvd.size() * 2, 3)
    for number, view in enumerate((tensor.view(-1), tensor.detach(), tensor.view(3, -1), tensor.t())):
        starts = in_flight(view, f"view.{number}")
        if view.is_contiguous():
            starts += out_of_place(view.view(hvd.size() * 2, 3), f"view.{number}")
        for start in starts:
            for change in (tensor, view):
                handle = start()
                change.mul_(0.5)
                if hvd.size() == 1:
                    hvd.synchronize(handle)
                    continue
                with raises(hvd.InvalidArgument, "view.", "was changed while it was in flight", "Wait"):
                    hvd.synchronize(handle)
            hvd.synchronize(start())


def check_tensors_in_flight_that_nobody_changes() -> None:
    rows = hvd.size() * 2
    for turned in (False, True):  # for the second one, a copy is in flight and is written back
        tensor = torch.ones(rows, rows).t() if turned else torch.ones(rows, rows)
        for start in in_flight(tensor, f"kept{turned}"):
            for _ in range(2):
                hvd.synchronize(start())
                tensor.fill_(1.0)
        for start in out_of_place(tensor, f"kept{turned}"):
            handle = start()
            if turned:
                tensor.mul_(0.5)  # the copy in flight does not change
            while not hvd.poll(handle):
                pass
            tensor.fill_(1.0)  # the operation is complete
            hvd.synchronize(handle)


def check_parts_of_a_buffer_in_flight() -> None:
    """A part that is complete may be changed. This does not count as a change of the other parts."""
    flat = torch.arange(12.0)
    for parts in (flat.chunk(4), [part.detach() for part in flat.chunk(4)]):
        flat.copy_(torch.arange(12.0))
        handles = [hvd.allreduce_async_(part, name=f"part.{index}") for index, part in enumerate(parts)]
        for handle in handles:
            hvd.synchronize(handle).mul_(2.0)
        assert torch.equal(flat, torch.arange(12.0) * 2.0)


def check_a_sparse_tensor_in_flight() -> None:
    tensor = torch.eye(3).to_sparse()
    finish = hvd.sparse_allreduce_async(tensor, "sparse", hvd.Sum)
    tensor.mul_(0.5)
    if hvd.size() == 1:
        finish()
        return
    with raises(hvd.InvalidArgument, "sparse", "was changed while it was in flight"):
        finish()


run(globals())
