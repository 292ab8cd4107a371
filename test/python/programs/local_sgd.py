"""periodic_average: compared with weights that each rank has learned alone, averaged by hand."""

from __future__ import annotations

import torch
from checks import raises, run
from torch import nn
from torch_optimizer import assert_same, batch, loss_of, make_model, sgd, together

import distrun.torch as hvd
from distrun.torch.local_sgd import _once


def step_alone(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, rank: int) -> None:
    optimizer.zero_grad()
    loss_of(model, batch(step, rank)).backward()
    optimizer.step()


def by_hand(ranks: list[int], steps: int, averaged_after: set[int], momenta: bool) -> list[nn.Module]:
    """The models of all ranks, trained in this process."""
    models = [make_model() for _ in ranks]
    optimizers = [sgd(model.parameters()) for model in models]
    for step in range(1, steps + 1):
        for model, optimizer, rank in zip(models, optimizers, ranks, strict=True):
            step_alone(model, optimizer, step, rank)
        if step not in averaged_after:
            continue
        for params in zip(*(model.parameters() for model in models), strict=True):
            same = [[param.data for param in params]]
            if momenta:
                states = [optimizer.state[param] for optimizer, param in zip(optimizers, params, strict=True)]
                same.append([state["momentum_buffer"] for state in states])
            for tensors in same:
                mean = torch.stack(tensors).mean(0)
                for tensor in tensors:
                    tensor.copy_(mean)
    return models


def check_against_averages_by_hand() -> None:
    ranks = list(range(hvd.size()))
    for warmup, expected in ((0, {3, 6}), (2, {1, 2, 5})):
        for momenta in (False, True):
            model = make_model()
            optimizer = sgd(model.parameters())
            averager = hvd.periodic_average(model, 3, warmup, optimizer if momenta else None)
            averaged = set()
            for step in range(1, 8):
                step_alone(model, optimizer, step, hvd.rank())
                if averager.step():
                    averaged.add(step)
            assert averaged == expected
            assert_same(model, by_hand(ranks, 7, expected, momenta)[hvd.rank()])
            averager.average()
            weights = hvd.allgather_object(model.state_dict())
            assert all(torch.equal(one[name], weights[0][name]) for one in weights for name in one)


def check_a_parameter_that_some_rank_has_not_used() -> None:
    """Only some ranks have its momentum. It stays unchanged."""
    model = make_model()
    optimizer = sgd(model.parameters())
    if hvd.rank() == 0:
        model[2].requires_grad_(False)
    averager = hvd.periodic_average(model, 1, optimizer=optimizer)
    step_alone(model, optimizer, 0, hvd.rank())
    assert averager.step()
    momenta = [optimizer.state[param].get("momentum_buffer") for param in model.parameters()]
    everybodys = hvd.allgather_object([None if momentum is None else momentum.clone() for momentum in momenta])
    assert all(torch.equal(one[0], everybodys[0][0]) for one in everybodys)
    assert everybodys[0][2] is None and (hvd.size() == 1 or everybodys[1][2] is not None)


def check_a_rank_that_has_joined_is_missed() -> None:
    """Otherwise it would count with weights of zero."""
    if hvd.size() == 1:
        return
    for momenta in (False, True):
        model = make_model()
        averager = hvd.periodic_average(model, 1, optimizer=sgd(model.parameters()) if momenta else None)
        averager.average()
        before = [param.detach().clone() for param in model.parameters()]
        if hvd.rank() != 0:
            with raises(hvd.InvalidArgument, f"only {hvd.size() - 1} of the {hvd.size()} ranks", "before join()"):
                averager.average()
        hvd.join()
        assert all(torch.equal(one, its) for one, its in zip(before, model.parameters(), strict=True))


def check_warm_up_is_training_with_averaged_gradients() -> None:
    model = make_model()
    optimizer = sgd(model.parameters())
    averager = hvd.periodic_average(model.named_parameters(), period=100, warmup_steps=5)
    for step in range(5):
        step_alone(model, optimizer, step, hvd.rank())
        assert averager.step()
    assert_same(model, together(sgd, 5))


def check_process_set() -> None:
    ranks = [rank for rank in range(hvd.size()) if rank % 2 == hvd.rank() % 2]
    ours = hvd.add_process_set(ranks, members_only=True)
    model = make_model()
    optimizer = sgd(model.parameters())
    averager = hvd.periodic_average(list(model.parameters()), 2, process_set=ours)
    for step in range(1, 4):
        step_alone(model, optimizer, step, hvd.rank())
        averager.step()
    assert_same(model, by_hand(ranks, 3, {2}, momenta=False)[ranks.index(hvd.rank())])
    hvd.remove_process_set(ours)


def check_buffers_and_state() -> None:
    layer = nn.BatchNorm1d(2)
    with torch.no_grad():
        layer.running_mean.fill_(hvd.rank())
        layer.num_batches_tracked.fill_(hvd.rank())
    averager = hvd.periodic_average(layer, 2)
    averager.load_state_dict({"steps": 1})
    assert averager.step() and averager.state_dict() == {"steps": 2}
    assert layer.running_mean.tolist() == [(hvd.size() - 1) / 2] * 2
    assert layer.num_batches_tracked.item() == 0  # rank 0's value


def check_tied_weights() -> None:
    """They are averaged once. A second operation in the same memory would already find the first one's result."""
    size, start = hvd.size(), torch.arange(1000.0)
    mean = start + (size - 1) / 2
    for _ in range(3):
        weight = start + hvd.rank()
        hvd.periodic_average({"a": weight, "b": weight, "c": weight.view(1000)}, 1).average()
        assert torch.equal(weight, mean)
        weight = start + hvd.rank()
        tied = {"a": weight, "b": nn.Parameter(weight.view(10, 100)), "c": weight.view(10, 100).t()}
        assert [name for name, _ in _once(list(tied.items()))] == ["a"]
        hvd.periodic_average(tied, 1).average()
        assert torch.equal(weight, mean)
    model = nn.Sequential(nn.Linear(30, 30, bias=False), nn.Linear(30, 30, bias=False))
    model[1].weight = model[0].weight
    with torch.no_grad():
        model[0].weight.fill_(hvd.rank())
    hvd.periodic_average(model.state_dict(), 1).average()
    assert bool((model[0].weight == (size - 1) / 2).all())


def check_complex_numbers_and_new_buffers() -> None:
    mean = (hvd.size() - 1) / 2
    module = nn.Module()
    module.weight = nn.Parameter(torch.full((3, 2), 1 + 2j) * hvd.rank())
    module.register_buffer("running_mean", torch.zeros(2))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.0, momentum=0.9)
    module.weight.grad = torch.full((3, 2), 3 - 1j) * hvd.rank()
    optimizer.step()
    averager = hvd.periodic_average(module, 1, optimizer=optimizer)
    first = module.running_mean
    module.running_mean = torch.full((2,), float(hvd.rank()))
    averager.average()
    assert torch.equal(module.weight, torch.full((3, 2), 1 + 2j) * mean)
    assert torch.equal(optimizer.state[module.weight]["momentum_buffer"], torch.full((3, 2), 3 - 1j) * mean)
    assert module.running_mean.tolist() == [mean] * 2 and first.tolist() == [0.0] * 2


def check_buffers_that_differ() -> None:
    """If a rank lacks a buffer, or has it with another shape or type, every rank keeps its own."""
    rank, mean = hvd.rank(), (hvd.size() - 1) / 2
    module = nn.Linear(2, 2)
    averager = hvd.periodic_average(module, 1)
    for _ in range(2):
        with torch.no_grad():
            module.weight.fill_(rank)
        module.register_buffer("all", torch.full((3,), float(rank)))
        module.register_buffer("cache", torch.full((2 + rank,), float(rank)))
        module.register_buffer("wide", torch.full((2,), float(rank), dtype=torch.float64 if rank else torch.float32))
        if rank == 0:
            module.register_buffer("mine", torch.full((2,), 7.0))
        averager.average()
        assert bool((module.weight == mean).all()) and module.all.tolist() == [0.0] * 3
        if hvd.size() > 1:
            assert module.cache.tolist() == [rank] * (2 + rank) and module.wide.tolist() == [rank] * 2
        assert rank != 0 or module.mine.tolist() == [7.0] * 2
    nothing = nn.Module()
    nothing.register_buffer("cache", torch.full((2 + rank,), float(rank)))
    hvd.periodic_average(nothing, 1).average()


def check_unit_vectors_fit_the_averaged_weights() -> None:
    """Both kinds of spectral_norm. The mean of the ranks' vectors is shorter: the layer's norm was 5 instead of 1."""
    for normalized in (nn.utils.parametrizations.spectral_norm, nn.utils.spectral_norm):
        for own in (False, True):
            torch.manual_seed(hvd.rank())
            layer = normalized(nn.Linear(16, 16))
            names = [name.rpartition(".")[2] for name, _ in layer.named_buffers()]
            model = nn.Sequential(layer, nn.Linear(16, 1)).eval()
            averager = hvd.periodic_average(model, 1, buffers=dict.fromkeys(names, "own") if own else None)
            before = [buffer.clone() for buffer in layer.buffers()]
            averager.average()
            model(torch.zeros(1, 16))
            norm = float(torch.linalg.matrix_norm(layer.weight.detach(), 2))
            if own:
                assert all(map(torch.equal, before, layer.buffers()))
            else:
                assert 1.0 - 1e-4 < norm < 1.1, norm
                vectors = hvd.allgather_object([buffer.clone() for buffer in layer.buffers()])
                assert all(map(torch.equal, vectors[0], layer.buffers())) and len(vectors[0]) == 2
            assert all(abs(float(buffer.norm()) - 1.0) < 1e-5 for buffer in layer.buffers())
            assert not any(module.training for module in model.modules())


class Kinds(nn.Module):
    """Buffers of every kind, filled with the rank."""

    def __init__(self) -> None:
        super().__init__()
        rank = hvd.rank()
        self.weight = nn.Parameter(torch.full((2,), float(rank)))
        self.register_buffer("running_mean", torch.full((2,), float(rank)))
        self.register_buffer("running_count", torch.full((2,), rank))
        self.register_buffer("not_running_mean", torch.full((2,), float(rank)))
        self.register_buffer("queue", torch.full((2,), float(rank)))
        self.register_buffer("mask", torch.full((2,), rank == 0))
        self.register_buffer("phase", torch.full((2,), rank + 1j))
        self.register_buffer("narrow", torch.full((2,), float(rank)).to(torch.float8_e4m3fn))
        self.register_buffer("unsigned", torch.full((2,), rank, dtype=torch.uint16))

    def values(self) -> dict[str, complex]:
        pairs = [*self.named_parameters(), *self.named_buffers()]
        return {name: complex(tensor[1].to(torch.complex64).item()) for name, tensor in pairs}


def check_every_kind_of_buffer() -> None:
    rank, mean = hvd.rank(), (hvd.size() - 1) / 2
    module = Kinds()
    hvd.periodic_average(module, 1).average()
    first = dict.fromkeys(("running_count", "not_running_mean", "queue", "narrow", "unsigned"), 0)
    assert module.values() == {"weight": mean, "running_mean": mean, "mask": 1, "phase": 1j, **first}, module.values()
    module = nn.ModuleDict({"a": Kinds(), "b": Kinds()})
    options = {"queue": "own", "a.queue": "average", "running_mean": "first", "b.phase": "average", "mask": "own"}
    hvd.periodic_average(module, 1, buffers=options).average()
    a, b = module["a"].values(), module["b"].values()
    assert a["queue"] == mean and b["queue"] == rank
    assert a["running_mean"] == b["running_mean"] == 0
    assert a["phase"] == 1j and b["phase"] == mean + 1j
    assert a["mask"] == (rank == 0) and a["weight"] == mean


def check_buffers_of_a_set() -> None:
    """The mode "first" takes the buffers of the lowest rank in the set, which may have another number in the job."""
    size, rank = hvd.size(), hvd.rank()
    if size < 3:
        return
    members = list(range(size))[-2:]
    ours = hvd.add_process_set(members)
    if rank in members:
        module = Kinds()
        hvd.periodic_average(module, 1, process_set=ours).average()
        values = module.values()
        assert values["queue"] == members[0] and values["weight"] == values["running_mean"] == sum(members) / len(
            members
        )
    hvd.remove_process_set(ours)


def check_tensors_that_the_program_calls_buffers() -> None:
    """A state_dict does not say which tensors are buffers."""
    state = {"weight": torch.full((2,), float(hvd.rank())), "weight_u": torch.full((2,), float(hvd.rank()))}
    hvd.periodic_average(state, 1, buffers={"weight_u": "first"}).average()
    assert state["weight"].tolist() == [(hvd.size() - 1) / 2] * 2 and state["weight_u"].tolist() == [0.0] * 2


def check_buffers_that_are_refused() -> None:
    module = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2))
    wrong: list[tuple[dict[object, object], list[str]]] = [
        ({"queue": "first"}, ["'queue'", "no buffer", "0.running_mean", "0.num_batches_tracked"]),
        ({"_u": "first"}, ["'_u'", "no buffer"]),
        ({"": "first"}, ["'': 'first'", "'own'"]),
        ({"running_mean": "mean"}, ["'running_mean': 'mean'", "'average', 'first'", "'own'"]),
        ({"running_mean": None}, ["'running_mean': None", "'own'"]),
        ({3: "own"}, ["3: 'own'"]),
        ({"1.weight": "own"}, ["'1.weight'", "is a parameter"]),
        ({"num_batches_tracked": "average"}, ["0.num_batches_tracked is torch.int64", "'first' or 'own'"]),
    ]
    for buffers, texts in wrong:
        with raises(ValueError, *texts):
            hvd.periodic_average(module, 1, buffers=buffers)
    with raises(TypeError, "buffers=['queue']", "a dict of names"):
        hvd.periodic_average(module, 1, buffers=["queue"])
    with raises(ValueError, "'queue'", "no buffer"):
        hvd.periodic_average(dict(module.state_dict()), 1, buffers={"queue": "own"})
    if hvd.size() == 1:
        return
    averager = hvd.periodic_average(module, 1, buffers={"running_mean": "own" if hvd.rank() == 0 else "first"})
    averager.average()  # treated like a buffer that some rank lacks
    averager = hvd.periodic_average(module, 1, buffers={"running_mean": "average" if hvd.rank() == 0 else "first"})
    with raises(hvd.InvalidArgument, "0.running_mean", "'average'", "'first'", "buffers="):
        averager.average()


def check_what_is_refused() -> None:
    with raises(ValueError, "period"):
        hvd.periodic_average(make_model(), 0)
    with raises(ValueError, "warmup_steps"):
        hvd.periodic_average(make_model(), 1, warmup_steps=-1)


if __name__ == "__main__":
    run(globals())
