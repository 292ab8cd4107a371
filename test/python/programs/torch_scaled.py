"""DistributedOptimizer with GradScaler, clipping and accumulated gradients, in loops as torch's pages show them."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from checks import run
from torch import nn
from torch_optimizer import assert_same, batch, loss_of, make_model, sgd, whole_batch

import distrun.torch as hvd

STEPS = 5
CLIP = 0.05


def overflows(step: int, bad: int | None) -> bool:
    return step == bad and hvd.rank() == hvd.size() - 1


def together(passes: int = 1, clip: bool = False, bad: int | None = None) -> tuple[nn.Module, list[float]]:
    """Returns the trained model and the scale after each step. In step `bad` the loss of the last rank is infinite."""
    model, scaler = make_model(), torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
    optimizer = hvd.DistributedOptimizer(
        sgd(model.parameters()), model.named_parameters(), backward_passes_per_step=passes
    )
    scales = []
    for step in range(STEPS):
        optimizer.zero_grad()
        for part in range(passes):
            loss = loss_of(model, batch(passes * step + part, hvd.rank())) / passes
            scaler.scale(loss * float("inf") if overflows(step, bad) else loss).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return model, scales


def alone(passes: int = 1, clip: bool = False, bad: int | None = None) -> nn.Module:
    model = make_model()
    optimizer = sgd(model.parameters())
    for step in range(STEPS):
        optimizer.zero_grad()
        for part in range(passes):
            (loss_of(model, whole_batch(passes * step + part)) / passes).backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        if step != bad:
            optimizer.step()
    return model


def check_scaler() -> None:
    options: list[dict[str, Any]] = [{}, {"clip": True}, {"passes": 3}, {"passes": 2, "clip": True}]
    for option in options:
        model, scales = together(**option)
        assert_same(model, alone(**option))
        assert scales == [1024.0, 1024.0, 2048.0, 2048.0, 2048.0], scales


def check_overflow_of_one_rank_skips_the_step_on_all() -> None:
    options: list[dict[str, Any]] = [{"bad": 1}, {"bad": 1, "passes": 2, "clip": True}]
    for option in options:
        model, scales = together(**option)
        assert scales == [1024.0, 512.0, 512.0, 512.0, 1024.0], scales
        assert_same(model, alone(**option))
        weights = hvd.allgather_object(model.state_dict())
        assert all(torch.equal(one[name], weights[0][name]) for one in weights for name in one)


def check_overflow_of_a_narrow_gradient() -> None:
    """float16 cannot hold this float32 gradient. The compressed gradient is infinite on all ranks, so all skip."""
    model, scaler = make_model().float(), torch.amp.GradScaler("cpu", init_scale=2.0**16)
    optimizer = hvd.DistributedOptimizer(
        sgd(model.parameters()), model.named_parameters(), compression=hvd.Compression.fp16
    )
    before = {name: value.clone() for name, value in model.state_dict().items()}
    inputs, targets = batch(0, hvd.rank())
    factor = 1e4 if hvd.rank() == 0 else 1e-4
    scaler.scale(factor * nn.functional.mse_loss(model(inputs.float()), targets.float())).backward()
    optimizer.synchronize()
    scaler.unscale_(optimizer)
    with optimizer.skip_synchronize():
        scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0**15
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def check_who_asks_several_times_reduces_once() -> None:
    """Lightning reads the property before it unscales the gradients and before it clips them. Then the scaler reads it.
    Between these a program may change the gradients."""
    for compression in (hvd.Compression.none, hvd.Compression.ef_bf16):
        for replaced in (False, True):
            model, scaler = make_model(), torch.amp.GradScaler("cpu", init_scale=1024.0)
            optimizer = hvd.DistributedOptimizer(
                sgd(model.parameters()), model.named_parameters(), op=hvd.Sum, compression=compression
            )
            scaler.scale(loss_of(model, batch(0, hvd.rank()))).backward()
            assert not any(optimizer._step_supports_amp_scaling for _ in range(2))
            scaler.unscale_(optimizer)
            if replaced:
                for param in model.parameters():
                    param.grad = torch.nan_to_num(param.grad)
            before = [param.grad.clone() for param in model.parameters()]
            scaler.step(optimizer)
            assert all(torch.equal(param.grad, grad) for param, grad in zip(model.parameters(), before, strict=True))
            local = make_model()
            loss_of(local, batch(0, hvd.rank())).backward()
            tolerance = {"rtol": 0.02, "atol": 0.02} if compression is not hvd.Compression.none else {}
            for found, own in zip(model.parameters(), local.parameters(), strict=True):
                torch.testing.assert_close(found.grad, hvd.allreduce(own.grad, op=hvd.Sum), **tolerance)


def check_fewer_passes_after_a_step_that_was_skipped() -> None:
    """Gradients that were reduced for the skipped step must not count in a later one."""
    model = make_model()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(), backward_passes_per_step=2
    )
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for _ in range(2):
        scaler.scale(loss_of(model, batch(0, hvd.rank())) * (float("inf") if hvd.rank() == 0 else 1.0)).backward()
    scaler.step(optimizer)
    scaler.update()
    model.zero_grad()
    loss_of(model, batch(1, hvd.rank())).backward()
    optimizer.step()
    weights = hvd.allgather_object(model[0].weight.detach())
    assert all(torch.equal(weight, weights[0]) for weight in weights)


def check_autocast() -> None:
    model, expected = make_model().float(), make_model().float()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    reference = sgd(expected.parameters())
    for step in range(STEPS):
        for one, by, data in (
            (model, optimizer, batch(step, hvd.rank())),
            (expected, reference, whole_batch(step)),
        ):
            by.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                output = one(data[0].float())
            nn.functional.mse_loss(output.float(), data[1].float()).backward()
            by.step()
    assert_same(model, expected, rtol=2e-2, atol=2e-2)


def check_scaler_alone() -> None:
    """The three lines of a script for one process, without synchronize(), with torch's fused kernel and without."""
    for fused in (False, True):
        for bad in (None, 1):
            model, expected = make_model(), make_model()
            made = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=fused)
            optimizer = hvd.DistributedOptimizer(made, model.named_parameters(), op=hvd.Sum)
            reference = torch.optim.SGD(expected.parameters(), lr=0.1, momentum=0.9)
            scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
            for step in range(STEPS):
                optimizer.zero_grad()
                reference.zero_grad()
                loss = loss_of(model, batch(step, hvd.rank())) / hvd.size()
                scaler.scale(loss * float("inf") if overflows(step, bad) else loss).backward()
                with warnings.catch_warnings():
                    warnings.simplefilter("error", UserWarning)
                    scaler.step(optimizer)
                scaler.update()
                loss_of(expected, whole_batch(step)).backward()
                if step != bad:
                    reference.step()
            assert scaler.get_scale() == (1024.0 if bad is None else 512.0)
            assert_same(model, expected)


def check_gradients_that_backward_did_not_make() -> None:
    """Gradients set by hand run no hook. Gradients reduced for a skipped step must not count in the next one."""
    for way in ("new", "emptied", "in place"):
        for bad in (None, 1):
            model, expected = make_model(), make_model()
            optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), op=hvd.Sum)
            reference = sgd(expected.parameters())
            scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
            for step in range(STEPS):
                if way == "emptied":
                    model.zero_grad()
                loss = loss_of(model, batch(step, hvd.rank())) / hvd.size()
                loss = scaler.scale(loss * float("inf") if overflows(step, bad) else loss)
                params = list(model.parameters())
                for param, grad in zip(params, torch.autograd.grad(loss, params), strict=True):
                    if way == "in place" and param.grad is not None:
                        param.grad.copy_(grad)
                    else:
                        param.grad = grad
                scaler.step(optimizer)
                scaler.update()
                reference.zero_grad()
                loss_of(expected, whole_batch(step)).backward()
                if step != bad:
                    reference.step()
            assert scaler.get_scale() == (1024.0 if bad is None else 512.0)
            assert_same(model, expected)


def check_scaler_when_the_loader_runs_dry() -> None:
    """Fewer passes than expected: nothing has been sent when the scaler reads the property."""
    for bad in (None, 1):
        model, expected = make_model(), make_model()
        made = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer = hvd.DistributedOptimizer(made, model.named_parameters(), op=hvd.Sum, backward_passes_per_step=2)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for step in range(2):
            optimizer.zero_grad()
            loss = loss_of(model, batch(step, hvd.rank())) / hvd.size()
            scaler.scale(loss * float("inf") if overflows(step, bad) else loss).backward()
            scaler.step(optimizer)
            scaler.update()
        reference = torch.optim.SGD(expected.parameters(), lr=0.1)
        for step in range(2 if bad is None else 1):
            reference.zero_grad()
            loss_of(expected, whole_batch(step)).backward()
            reference.step()
        assert scaler.get_scale() == (1024.0 if bad is None else 512.0)
        assert_same(model, expected)


def check_last_step_of_an_epoch_with_fewer_passes() -> None:
    """The loader has no more batches. step() sends the accumulated gradients, and the count starts again."""
    model, expected = make_model(), make_model()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), backward_passes_per_step=3)
    reference = sgd(expected.parameters())
    for passes in (3, 2, 3):
        for one, by, data in (
            (model, optimizer, lambda part: batch(part, hvd.rank())),
            (expected, reference, whole_batch),
        ):
            by.zero_grad()
            for part in range(passes):
                loss_of(one, data(part)).backward()
            by.step()
    assert_same(model, expected)


if __name__ == "__main__":
    run(globals())
