"""Gradients compressed with error feedback, compared with uncompressed training, and on digits."""

from __future__ import annotations

import copy
from typing import Any

import torch
from checks import run
from sklearn.datasets import load_digits
from torch import nn
from torch_optimizer import alone, assert_same, batch, loss_of, make_model, sgd, together

import distrun.torch as hvd

FEEDBACK = {name: getattr(hvd.Compression, name) for name in ("ef_fp16", "ef_bf16", "ef_int8")}
EPOCHS = 12
BATCH = 64  # on all ranks together


def check_against_uncompressed_training() -> None:
    expected = alone(sgd, 30)
    for name, tolerance in (("ef_fp16", 2e-3), ("ef_bf16", 1e-2), ("ef_int8", 5e-2)):
        for options in ({}, {"groups": 2}, {"op": hvd.Sum}, {"gradient_predivide_factor": 2.0}):
            model = make_model()
            optimizer = hvd.DistributedOptimizer(
                sgd(model.parameters()), model.named_parameters(), compression=FEEDBACK[name], **options
            )
            for step in range(30):
                optimizer.zero_grad()
                loss = loss_of(model, batch(step, hvd.rank()))
                (loss / hvd.size() if "op" in options else loss).backward()
                optimizer.step()
            assert_same(model, expected, rtol=tolerance, atol=tolerance)
            weights = hvd.allgather_object(model.state_dict())
            assert all(torch.equal(one[key], weights[0][key]) for one in weights for key in one)


def check_a_process_set() -> None:
    """An average is over the set's members."""
    if hvd.size() < 3:
        return
    ours = hvd.add_process_set([1, 2])
    if ours.included():
        for compression in FEEDBACK.values():
            weight = nn.Parameter(torch.zeros(2))
            optimizer = hvd.DistributedOptimizer(
                torch.optim.SGD([weight], lr=1.0), compression=compression, process_set=ours
            )
            (weight * hvd.rank()).sum().backward()
            optimizer.step()
            torch.testing.assert_close(-weight.detach(), torch.full((2,), 1.5), rtol=0.0, atol=0.05)
    hvd.remove_process_set(ours)


def check_a_direction_too_small_for_bytes() -> None:
    """A gradient that is a hundred-thousandth of the largest. With feedback its weight still moves as far as it
    should."""
    weight = nn.Parameter(torch.zeros(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), compression=hvd.Compression.ef_int8)
    for _ in range(300):
        optimizer.zero_grad()
        (weight * torch.tensor([1.0, 1e-3 * (hvd.rank() + 1)])).sum().backward()
        optimizer.step()
    expected = torch.tensor([300.0, 0.3 * (hvd.size() + 1) / 2])
    torch.testing.assert_close(-weight.detach(), expected, rtol=0.0, atol=2.0 * hvd.size() / 127)


def check_scaler() -> None:
    """An overflow on one rank skips the step on all ranks, and does not stay in the errors."""
    for compression in FEEDBACK.values():
        model = make_model()
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), compression=compression)
        for step in range(3):
            optimizer.zero_grad()
            factor = float("inf") if step == 1 and hvd.rank() == 0 else 1.0
            scaler.scale(loss_of(model, batch(step, hvd.rank())) * factor).backward()
            scaler.step(optimizer)
            scaler.update()
        assert scaler.get_scale() == 4.0
        assert all(value.isfinite().all() for value in model.state_dict().values())


def check_a_resumed_run_begins_without_errors() -> None:
    """Also in the same process. A different number of passes keeps the errors."""
    for compression in FEEDBACK.values():

        def made(model: nn.Module, compression: Any = compression) -> Any:
            return hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), compression=compression)

        def train(model: nn.Module, optimizer: Any) -> nn.Module:
            for step in range(3):
                optimizer.zero_grad()
                loss_of(model, batch(step, hvd.rank())).backward()
                optimizer.step()
            return model

        model, other, kept = make_model(), make_model(), make_model()
        optimizer, resumed, goes_on = made(model), made(other), made(kept)
        train(model, optimizer)
        train(kept, goes_on)
        weights, state = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
        for one, by in ((model, optimizer), (other, resumed)):
            one.load_state_dict(weights)
            by.load_state_dict(copy.deepcopy(state))
        goes_on.set_backward_passes_per_step(1)
        assert_same(train(model, optimizer), train(other, resumed), rtol=0.0, atol=0.0)
        train(kept, goes_on)
        assert not all(torch.equal(one, its) for one, its in zip(kept.parameters(), other.parameters(), strict=True))


class OwnWay(torch.optim.SGD):
    """It has its own load_state_dict, through which broadcast_optimizer_state passes the state."""

    def load_state_dict(self, state_dict: Any) -> None:
        super().load_state_dict(state_dict)


def check_broadcast_leaves_the_errors() -> None:
    """The root keeps its errors, so the others must keep theirs. The state is equal on all ranks already."""
    for compression in FEEDBACK.values():
        models = []
        for broadcast in (False, True):
            model = make_model()
            optimizer = hvd.DistributedOptimizer(
                OwnWay(model.parameters(), lr=0.1, momentum=0.9), model.named_parameters(), compression=compression
            )
            for step in range(4):
                optimizer.zero_grad()
                loss_of(model, batch(step, hvd.rank())).backward()
                optimizer.step()
                if broadcast:
                    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
            models.append(model)
        assert_same(*models, rtol=0.0, atol=0.0)


def check_parameters_without_a_gradient() -> None:
    for compression in FEEDBACK.values():
        layers = [nn.Linear(2, 2), nn.Linear(2, 2)]
        params = [param for layer in layers for param in layer.parameters()]
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(params, lr=0.1), compression=compression)
        for step in range(3):
            optimizer.zero_grad()
            layers[(hvd.rank() + step) % 2](torch.ones(1, 2)).sum().backward()
            optimizer.step()
    assert together(sgd, 1) is not None  # and other optimizers go on


def trained_on_digits(compression: Any) -> tuple[float, float]:
    """Returns the last epoch's loss and the accuracy on a quarter of the digits."""
    images, labels = load_digits(return_X_y=True)
    inputs, targets = torch.tensor(images / 16.0, dtype=torch.float32), torch.tensor(labels)
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(0))
    test, train = order[: len(order) // 4], order[len(order) // 4 :]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), model.named_parameters(), compression=compression
    )
    for epoch in range(EPOCHS):
        shuffled = train[torch.randperm(len(train), generator=torch.Generator().manual_seed(epoch))]
        losses = []
        for rows in shuffled[: len(shuffled) // BATCH * BATCH].split(BATCH):
            mine = rows[hvd.rank() :: hvd.size()]
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs[mine]), targets[mine])
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        mean = hvd.allreduce(torch.stack(losses).mean())
    with torch.no_grad():
        accuracy = (model(inputs[test]).argmax(1) == targets[test]).float().mean()
    return float(mean), float(accuracy)


def check_convergence_on_digits() -> None:
    loss, accuracy = trained_on_digits(hvd.Compression.none)
    assert accuracy > 0.95
    results = {"none": (loss, accuracy)} | {name: trained_on_digits(kind) for name, kind in FEEDBACK.items()}
    if hvd.rank() == 0:
        for name, (last, found) in results.items():
            print(f"{name}: loss {last:.4f}, accuracy {found:.4f}", flush=True)
    for name, (last, found) in results.items():
        assert last < 1.1 * loss + 0.01 and found > accuracy - 0.01, name


if __name__ == "__main__":
    run(globals())
