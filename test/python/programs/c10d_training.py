"""DDP, FSDP2, DTensor, distributed checkpoints and functional collectives on the backend distrun. The weights must
equal those of one process with the whole batch."""

from __future__ import annotations

import tempfile
import warnings
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from checks import run
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import distrun.torch.c10d  # noqa: F401  # registers the backend

warnings.simplefilter("ignore", FutureWarning)
dist.init_process_group("distrun")
RANK, SIZE = dist.get_rank(), dist.get_world_size()
STEPS = 5
SHARE = 4


class Net(nn.Module):
    """With `sometimes`, one layer is used only in every other step."""

    def __init__(self, sometimes: bool = False) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.one, self.two, self.three = nn.Linear(6, 16), nn.Linear(16, 16), nn.Linear(16, 3)
        self.sometimes = sometimes

    def forward(self, x: torch.Tensor, step: int) -> Any:
        x = torch.tanh(self.one(x))
        if not self.sometimes or step % 2 == 0:
            x = torch.tanh(self.two(x))
        return self.three(x)


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    return torch.rand(SHARE * SIZE, 6, generator=generator), torch.rand(SHARE * SIZE, 3, generator=generator)


def train(model: nn.Module, mine: bool, passes: int = 1) -> nn.Module:
    """Trains with `passes` batches per optimizer step, on this rank's share of each batch (`mine`) or on all of it."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    rows = slice(RANK * SHARE, (RANK + 1) * SHARE) if mine else slice(None)
    for step in range(STEPS):
        optimizer.zero_grad()
        for number in range(passes):
            x, y = batch(step * passes + number)
            last = number == passes - 1
            quiet = model.no_sync() if isinstance(model, DistributedDataParallel) and not last else nullcontext()
            with quiet:
                nn.functional.mse_loss(model(x[rows], step), y[rows]).backward()
        optimizer.step()
    return model


def same_everywhere(model: nn.Module) -> None:
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    others = [torch.zeros_like(weights) for _ in range(SIZE)]
    dist.all_gather(others, weights)
    assert all(torch.equal(weights, other) for other in others)


def check_ddp() -> None:
    variants: list[dict[str, Any]] = [
        {},
        {"bucket_cap_mb": 0.0005},
        {"static_graph": True},
        {"gradient_as_bucket_view": True},
        {"find_unused_parameters": True},
    ]
    for options in variants:
        sometimes = "find_unused_parameters" in options
        expected = train(Net(sometimes), mine=False)
        model = train(DistributedDataParallel(Net(sometimes), **options), mine=True)
        torch.testing.assert_close(list(model.parameters()), list(expected.parameters()), msg=f"{options}")
    expected = train(Net(), mine=False, passes=2)
    model = train(DistributedDataParallel(Net()), mine=True, passes=2)
    torch.testing.assert_close(list(model.parameters()), list(expected.parameters()))


def check_ddp_hooks_and_start() -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    expected = train(Net(), mine=False)
    for hook, tolerance in ((default_hooks.allreduce_hook, 1e-5), (default_hooks.fp16_compress_hook, 1e-2)):
        model = DistributedDataParallel(Net())
        model.register_comm_hook(None, hook)
        train(model, mine=True)
        torch.testing.assert_close(
            list(model.parameters()), list(expected.parameters()), atol=tolerance, rtol=tolerance
        )
    model = DistributedDataParallel(Net())  # its callbacks start collectives and wait for them
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    same_everywhere(train(model, mine=True))
    net = Net()
    with torch.no_grad():
        net.one.weight.add_(RANK)  # DDP begins with the weights of rank 0
    model = train(DistributedDataParallel(net), mine=True)
    torch.testing.assert_close(list(model.parameters()), list(expected.parameters()))


def check_ddp_with_a_sparse_embedding() -> None:
    def words(net: nn.Module, rows: slice) -> list[torch.Tensor]:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
        for step in range(STEPS):
            chosen = torch.randint(0, 10, (SHARE * SIZE,), generator=torch.Generator().manual_seed(step))
            optimizer.zero_grad()
            net(chosen[rows]).square().mean().backward()
            optimizer.step()
        return list(net.parameters())

    def made() -> nn.Module:
        torch.manual_seed(3)
        return nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Linear(4, 2))

    mine = words(DistributedDataParallel(made()), slice(RANK * SHARE, (RANK + 1) * SHARE))
    torch.testing.assert_close(mine, words(made(), slice(None)))


def check_ddp_join() -> None:
    """Uneven inputs: ranks without data shadow the others' collectives. The sum is divided by all ranks, or by those
    that still have data. DDP's C++ code gets their number from a work object that Python does not hold."""

    def loss_of(model: nn.Module, step: int, rank: int) -> torch.Tensor:
        x, y = (part[rank * SHARE : (rank + 1) * SHARE] for part in batch(step))
        return nn.functional.mse_loss(model(x, step), y)

    for by_all in (True, False):
        model, alone = DistributedDataParallel(Net()), Net()
        optimizer, reference = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, alone))
        with model.join(divide_by_initial_world_size=by_all):
            for step in range(2 + RANK):
                optimizer.zero_grad()
                loss_of(model, step, RANK).backward()
                optimizer.step()
        same_everywhere(model)
        for step in range(1 + SIZE):
            reference.zero_grad()
            losses = [loss_of(alone, step, rank) for rank in range(SIZE) if step < 2 + rank]
            (torch.stack(losses).sum() / (SIZE if by_all else len(losses))).backward()
            reference.step()
        torch.testing.assert_close(list(model.parameters()), list(alone.parameters()))


def sharded() -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    model = Net()
    mesh = dist.init_device_mesh("cpu", (SIZE,))
    for layer in (model.one, model.two, model.three):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def whole(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.full_tensor().detach() for parameter in model.parameters()]  # type: ignore[operator]


def check_hybrid_meshes() -> None:
    """Replicas of shards, and tensor parallel inside FSDP2, on a mesh with two rows."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    if SIZE % 2:
        return
    expected = [parameter.detach() for parameter in train(Net(), mine=False).parameters()]
    mesh = dist.init_device_mesh("cpu", (2, SIZE // 2), mesh_dim_names=("outer", "inner"))
    model = Net()
    fully_shard(model, mesh=mesh)
    torch.testing.assert_close(whole(train(model, mine=True)), expected)
    model = Net()
    parallelize_module(model, mesh["inner"], {"one": ColwiseParallel(), "two": RowwiseParallel()})
    fully_shard(model, mesh=mesh["outer"])
    rows = slice(mesh["outer"].get_local_rank() * SHARE * SIZE // 2, None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    for step in range(STEPS):
        x, y = (part[rows][: SHARE * SIZE // 2] for part in batch(step))
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x, step), y).backward()
        optimizer.step()
    torch.testing.assert_close(whole(model), expected)


def check_fsdp2_and_checkpoint() -> None:
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict

    expected = [parameter.detach() for parameter in train(Net(), mine=False).parameters()]
    model = train(sharded(), mine=True)
    torch.testing.assert_close(whole(model), expected)
    with tempfile.TemporaryDirectory() as folder:
        shared = [folder]
        dist.broadcast_object_list(shared, 0)
        checkpoint.save({"model": get_model_state_dict(model)}, checkpoint_id=f"{shared[0]}/saved")
        fresh = sharded()
        state = {"model": get_model_state_dict(fresh)}
        checkpoint.load(state, checkpoint_id=f"{shared[0]}/saved")
        set_model_state_dict(fresh, state["model"])
        dist.barrier()
    torch.testing.assert_close(whole(fresh), expected)


def check_fsdp2_with_the_groups_memory() -> None:
    model: Any = sharded()
    for layer in (model.one, model.two, model.three):
        layer.set_allocate_memory_from_process_group_for_comm(True)
    expected = [parameter.detach() for parameter in train(Net(), mine=False).parameters()]
    torch.testing.assert_close(whole(train(model, mine=True)), expected)


def check_sharded_tensor() -> None:
    """torch's older shards. They use the device that the backend is registered for besides the CPU."""
    from torch.distributed._shard import sharded_tensor
    from torch.distributed._shard.sharding_spec import ChunkShardingSpec

    spec = ChunkShardingSpec(dim=0, placements=[f"rank:{rank}/cpu" for rank in range(SIZE)])
    tensor = sharded_tensor.full(spec, (2 * SIZE, 3), 7.0)
    out = torch.zeros(2 * SIZE, 3) if RANK == 0 else None
    tensor.gather(0, out)
    assert out is None or torch.equal(out, torch.full((2 * SIZE, 3), 7.0))


def check_functional() -> None:
    from torch.distributed import _functional_collectives as functional

    def values(rank: int, rows: int) -> torch.Tensor:
        return torch.arange(2.0 * rows).reshape(rows, 2) + rank

    def same(one: torch.Tensor, other: Any) -> None:
        torch.testing.assert_close(one + 0, other)  # the addition waits for the result

    group, everyone = dist.group.WORLD, [values(rank, SIZE) for rank in range(SIZE)]
    total = torch.stack(everyone).sum(0)
    same(functional.all_reduce(values(RANK, SIZE), "sum", group), total)
    same(functional.all_reduce(values(RANK, SIZE), "avg", group), total / SIZE)
    same(functional.all_gather_tensor(values(RANK, SIZE), 0, group), torch.cat(everyone))
    same(functional.reduce_scatter_tensor(values(RANK, SIZE), "sum", 0, group), total[RANK : RANK + 1])
    same(functional.broadcast(values(RANK, SIZE), SIZE - 1, group), everyone[-1])
    moved = functional.all_to_all_single(values(RANK, SIZE), None, None, group)
    same(moved, torch.stack([one[RANK] for one in everyone]))
    for result in functional.all_reduce_coalesced([values(RANK, SIZE), values(RANK, SIZE)], "sum", group):
        same(result, total)


def check_dtensor() -> None:
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = dist.init_device_mesh("cpu", (SIZE,))
    left, right = torch.arange(24.0).reshape(4, 6), torch.arange(18.0).reshape(6, 3)
    rows = distribute_tensor(left, mesh, [Shard(0)])
    torch.testing.assert_close((rows @ distribute_tensor(right, mesh, [Replicate()])).full_tensor(), left @ right)
    columns = rows.redistribute(mesh, [Shard(1)])  # all-to-all
    partial = columns @ distribute_tensor(right, mesh, [Shard(0)])
    torch.testing.assert_close(partial.redistribute(mesh, [Shard(0)]).full_tensor(), left @ right)  # reduce-scatter
    torch.testing.assert_close(partial.full_tensor(), left @ right)  # all-reduce


def check_tensor_parallel() -> None:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = dist.init_device_mesh("cpu", (SIZE,))
    model = nn.Sequential(Net().one, nn.Tanh(), nn.Linear(16, 4))
    dist.broadcast(model[2].weight.data, 0)
    x = batch(0)[0]
    expected = model(x)
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    torch.testing.assert_close(model(x), expected)


run(globals())
dist.destroy_process_group()
