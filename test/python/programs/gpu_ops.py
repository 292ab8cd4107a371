"""Every operation on CUDA tensors, compared with torch on the CPU. A rank uses the GPU of its local rank, modulo their
number.

The stream that makes a tensor is still busy when the tensor is submitted. Results are used at once.
"""

from __future__ import annotations

import os

import checks
import torch

import distrun.torch as hvd

DTYPES = [
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.bool,
]
SIZES = [(), (0,), (1,), (7, 3), (4096,), (100_003,), (1 << 20,)]


def device() -> torch.device:
    return torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())


def of_rank(rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Equal on every machine. Small whole numbers, so that sums are exact."""
    generator = torch.Generator().manual_seed(1000 * rank + len(shape))
    values = torch.randint(0, 2 if dtype == torch.bool else 4, shape, generator=generator)
    return values.to(dtype)


def mine(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """This rank's tensor, from a stream that has much work to do before it."""
    tensor = torch.empty(shape, dtype=dtype, device=device())
    busy = torch.ones(1 << 22, device=device())
    for _ in range(20):
        busy = busy * 1.0001
    tensor.copy_(of_rank(hvd.rank(), shape, dtype).to(device(), non_blocking=True))
    return tensor


def all_ranks(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.stack([of_rank(rank, shape, dtype) for rank in range(hvd.size())])


def expected(op: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    every = all_ranks(shape, dtype)
    if dtype == torch.bool:
        return every.all(0) if op in (hvd.Min, hvd.Product) else every.any(0)
    wide = every.to(torch.float64 if dtype.is_floating_point else torch.int64)
    if op == hvd.Min:
        return wide.amin(0).to(dtype)
    if op == hvd.Max:
        return wide.amax(0).to(dtype)
    if op == hvd.Product:
        return wide.prod(0).to(dtype)
    if op == hvd.Sum:
        return wide.sum(0).to(dtype)
    return (wide.sum(0) / hvd.size() if dtype.is_floating_point else wide.sum(0) // hvd.size()).to(dtype)


def same(result: torch.Tensor, wanted: torch.Tensor, what: object = "") -> None:
    assert result.device == device(), f"{what}: on {result.device}"
    assert result.shape == wanted.shape and result.dtype == wanted.dtype, f"{what}: {result.shape} {result.dtype}"
    close = {torch.float16: 1e-2, torch.bfloat16: 5e-2}.get(wanted.dtype, 1e-6 if wanted.is_floating_point() else 0)
    assert torch.allclose(result.cpu().double(), wanted.double(), rtol=close, atol=close), f"{what}: {result} {wanted}"


def check_the_backend_is_the_one_asked_for() -> None:
    if "cuda:mpi" in os.environ.get("DISTRUN_BACKEND", ""):
        assert hvd.mpi_enabled()
    else:
        assert hvd.nccl_enabled() and hvd.nccl_built() >= 21400


def check_allreduce_of_every_dtype_and_operation() -> None:
    for dtype in DTYPES:
        for op in (hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product):
            for shape in SIZES:
                what = (dtype, op, shape)
                same(hvd.allreduce(mine(shape, dtype), op=op, name=f"{what}"), expected(op, shape, dtype), what)
                tensor = mine(shape, dtype)
                hvd.allreduce_(tensor, op=op, name=f"in place {what}")
                same(tensor, expected(op, shape, dtype), what)


def check_scales() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        result = hvd.allreduce(mine((1000,), dtype), op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
        same(result, (all_ranks((1000,), dtype).double().sum(0) * 2).to(dtype), dtype)


def check_many_fused() -> None:
    shapes = [(i % 50, 3) for i in range(400)]
    for _ in range(3):
        results = hvd.grouped_allreduce([mine(shape) for shape in shapes], op=hvd.Average)
        for result, shape in zip(results, shapes, strict=True):
            same(result, expected(hvd.Average, shape, torch.float32), shape)


def check_many_in_flight_on_several_streams() -> None:
    streams = [torch.cuda.Stream(device()) for _ in range(3)]
    handles = []
    for i in range(30):
        with torch.cuda.stream(streams[i % 3]):
            handles.append(hvd.allreduce_async(mine((1000 + i,)), op=hvd.Sum, name=f"stream.{i}"))
    for i, handle in enumerate(handles):
        same(hvd.synchronize(handle), expected(hvd.Sum, (1000 + i,), torch.float32), i)


def check_allgather_of_different_sizes() -> None:
    for dtype in DTYPES:
        tensor = of_rank(hvd.rank(), (hvd.rank(), 5), dtype).to(device())
        wanted = torch.cat([of_rank(rank, (rank, 5), dtype) for rank in range(hvd.size())])
        same(hvd.allgather(tensor), wanted, dtype)
    same(hvd.allgather(mine((3, 2))), torch.cat(list(all_ranks((3, 2)))))


def check_broadcast() -> None:
    for root in range(hvd.size()):
        for dtype in DTYPES:
            same(hvd.broadcast(mine((1001,), dtype), root), of_rank(root, (1001,), dtype), (root, dtype))
            tensor = mine((5, 5), dtype)
            hvd.broadcast_(tensor, root)
            same(tensor, of_rank(root, (5, 5), dtype), (root, dtype))


def check_alltoall_of_uneven_splits() -> None:
    size, rank = hvd.size(), hvd.rank()
    rows = [[(i + 2 * j) % 3 for j in range(size)] for i in range(size)]
    inputs = [of_rank(i, (sum(rows[i]), 2), torch.int32) for i in range(size)]
    output, received = hvd.alltoall(inputs[rank].to(device()), splits=torch.tensor(rows[rank]))
    parts = [inputs[i][sum(rows[i][:rank]) : sum(rows[i][: rank + 1])] for i in range(size)]
    same(output, torch.cat(parts))
    assert received.device.type == "cpu" and received.tolist() == [rows[i][rank] for i in range(size)]
    for tensor in (inputs[rank].to(device()), inputs[rank].float().to(device()).requires_grad_()):
        _, received = hvd.alltoall(tensor, splits=torch.tensor(rows[rank], device=device()))
        same(received, torch.tensor([rows[i][rank] for i in range(size)], dtype=torch.int32))
    _, received = hvd.synchronize(hvd.alltoall_async(tensor.detach(), splits=torch.tensor(rows[rank], device=device())))
    assert received.device == device()


def check_reducescatter_of_uneven_parts() -> None:
    size, rank = hvd.size(), hvd.rank()
    for dtype in (torch.float32, torch.int16, torch.bfloat16):
        for rows in (size, 2 * size + 1):
            shares = [rows // size + (1 if i < rows % size else 0) for i in range(size)]
            start = sum(shares[:rank])
            wanted = expected(hvd.Sum, (rows, 3), dtype)[start : start + shares[rank]]
            same(hvd.reducescatter(mine((rows, 3), dtype), op=hvd.Sum), wanted, (dtype, rows))


def check_join() -> None:
    for step in range(hvd.rank() + 1):
        result = hvd.allreduce(torch.ones(5, device=device()), op=hvd.Sum, name=f"join.{step}")
        same(result, torch.full((5,), float(hvd.size() - step)))
    assert hvd.join(device().index) == hvd.size() - 1


def check_not_contiguous() -> None:
    shape = (30, 20)
    same(hvd.allreduce(mine(shape).t(), op=hvd.Sum), expected(hvd.Sum, shape, torch.float32).t().contiguous())


def check_a_graph_that_is_captured_is_refused() -> None:
    tensor = torch.ones(4, device=device())
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    refused: list[BaseException] = []
    try:
        with torch.cuda.graph(graph), checks.raises(hvd.DistrunError, "CUDA graph") as refused:
            hvd.allreduce(tensor)
    except RuntimeError as error:  # from torch: the capture is invalid by then, even if nothing was refused
        print(f"torch says: {error}")
    assert refused, "the operation was not refused"


def check_cpu_and_gpu_do_not_mix() -> None:
    if hvd.size() == 1:
        return
    tensor = torch.ones(3, device=device() if hvd.rank() == 0 else "cpu")
    with checks.raises(hvd.Mismatch, "cuda", "cpu"):
        hvd.allreduce(tensor, name="mixed")
    same(hvd.allreduce(torch.ones(3, device=device()), op=hvd.Sum, name="mixed"), torch.full((3,), float(hvd.size())))


def check_an_optimizer_trains_on_the_gpu() -> None:
    torch.manual_seed(hvd.rank())
    model = torch.nn.Sequential(torch.nn.Linear(50, 50), torch.nn.ReLU(), torch.nn.Linear(50, 1)).to(device())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.05), named_parameters=model.named_parameters()
    )
    for _ in range(10):
        inputs = torch.randn(16, 50, device=device())
        optimizer.zero_grad()
        (model(inputs) - inputs.sum(1, keepdim=True)).pow(2).mean().backward()
        optimizer.step()
    for parameter in model.parameters():
        every = hvd.allgather(parameter.detach().reshape(1, -1))
        assert all(torch.equal(every[0], row) for row in every), "the replicas differ"


if __name__ == "__main__":
    hvd.init()
    torch.cuda.set_device(device())  # a graph is captured on a stream of the current device
    checks.run(globals())
