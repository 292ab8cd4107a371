"""Every operation on torch tensors, with gradients, on any number of ranks."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
import time
from typing import Any

import torch
from checks import raises, run, wait_for
from torch.autograd import forward_ad

import distrun.torch as hvd
from distrun.torch._adapter import collective
from distrun.torch.sparse import _on_device

DTYPES = (
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
)


def mine(shape: tuple[int, ...], dtype: torch.dtype = torch.float32, rank: int | None = None) -> torch.Tensor:
    """Small whole numbers that every rank can compute for all ranks. Their sums are exact in every dtype."""
    rank = hvd.rank() if rank is None else rank
    return (torch.arange(torch.Size(shape).numel()).reshape(shape) % 5 + rank + 1).to(dtype)


def total(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return sum((mine(shape, dtype, rank) for rank in range(1, hvd.size())), mine(shape, dtype, 0))


def check_allreduce() -> None:
    for dtype in DTYPES:
        for shape in ((), (17,), (2, 3, 4), (0, 2)):
            tensor = mine(shape, dtype)
            result = hvd.allreduce(tensor, op=hvd.Sum)
            assert result.dtype == dtype and torch.equal(result, total(shape, dtype))
            assert torch.equal(tensor, mine(shape, dtype))
            assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor and torch.equal(tensor, total(shape, dtype))
    torch.testing.assert_close(hvd.allreduce(mine((4,))), total((4,)) / hvd.size())
    scaled = hvd.allreduce(mine((4,)), op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.25)
    torch.testing.assert_close(scaled, total((4,)) / 2)


def check_operations_by_horovods_numbers() -> None:
    everybodys = torch.stack([mine((5,), rank=rank) for rank in range(hvd.size())])
    expected = {0: everybodys.mean(0), 1: everybodys.sum(0), 3: everybodys.amin(0), 4: everybodys.amax(0)}
    for number, values in {**expected, 5: everybodys.prod(0)}.items():
        torch.testing.assert_close(hvd.allreduce(mine((5,)), op=number), values)
    with raises(NotImplementedError, "Adasum"):
        hvd.allreduce(mine((5,)), op=2)


def check_bool() -> None:
    tensor = torch.tensor([hvd.rank() == 0, True, False])
    assert hvd.allreduce(tensor, op=hvd.Max).tolist() == [True, True, False]
    assert hvd.broadcast(tensor, 0).tolist() == [True, True, False]


def check_async_and_poll() -> None:
    handles = [hvd.allreduce_async(mine((index + 1,)), op=hvd.Sum, name=f"a{index}") for index in range(50)]
    for index, handle in enumerate(handles):
        assert torch.equal(hvd.synchronize(handle), total((index + 1,)))
        assert hvd.poll(handle)
    assert hvd.synchronize(None) is None


def check_other_memory_in_flight() -> None:
    """set_ in flight, and resize_ before the result is read. The error names the tensor, and the next call works."""
    tensor = mine((4,))
    handle = hvd.allreduce_async_(tensor, op=hvd.Sum, name="moved")
    tensor.set_(torch.zeros(8).untyped_storage(), 0, (8,))
    with raises(ValueError, "allreduce.moved", "other memory") as caught:
        handle.wait()
    assert getattr(caught[0], "tensor", "") == "allreduce.moved"
    tensor = mine((4,))
    handle = hvd.allreduce_async(tensor, op=hvd.Sum, name="resized")
    wait_for(handle.poll, "the reduction")
    tensor.resize_(100_000)
    with raises(ValueError, "allreduce.resized"):
        handle.wait()
    assert torch.equal(hvd.allreduce(mine((4,)), op=hvd.Sum, name="moved"), total((4,)))


def check_other_memory_of_a_copy_in_flight() -> None:
    """In place, with tensors that are not contiguous: other memory, another shape, or other strides of the same
    memory."""

    def moved(tensor: torch.Tensor) -> None:
        tensor.set_(torch.zeros(3, 3).t())

    def broadcasts(tensor: torch.Tensor) -> None:
        tensor.set_(torch.zeros(2, 3, 3).transpose(1, 2))

    def turned(tensor: torch.Tensor) -> None:
        tensor.t_()

    for change in (moved, broadcasts, turned):
        other, tensor = mine((4, 3)).t(), mine((3, 3)).t()
        name = change.__name__
        handle = hvd.grouped_allreduce_async_([other, tensor], op=hvd.Sum, name=name)
        before = other.clone()
        wait_for(handle.poll, "the reduction")
        change(tensor)
        with raises(hvd.InvalidArgument, f"allreduce.{name}_2of2", "other memory or another shape") as caught:
            handle.wait()
        assert getattr(caught[0], "tensor", "") == f"allreduce.{name}_2of2"
        assert torch.equal(other, before)  # no tensor of the group is written
    tensor = mine((4, 3)).t()
    hvd.allreduce_(tensor, op=hvd.Sum, name="stays")
    assert torch.equal(tensor, total((4, 3)).t())


def check_grouped() -> None:
    tensors = [mine((3,)), mine((2, 2), torch.int64), mine((5,))]
    for result, tensor in zip(hvd.grouped_allreduce(tensors, op=hvd.Sum), tensors, strict=True):
        assert torch.equal(result, total(tuple(tensor.shape), tensor.dtype))
    results = hvd.synchronize(hvd.grouped_allreduce_async_(tensors, op=hvd.Sum, name="group"))
    assert results[0] is tensors[0] and torch.equal(tensors[0], total((3,)))
    blocks = [[mine((1, 2), rank=rank), mine((rank, 2), torch.int32, rank)] for rank in range(hvd.size())]
    for found, parts in zip(hvd.grouped_allgather(blocks[hvd.rank()]), zip(*blocks, strict=True), strict=True):
        assert found.dtype == parts[0].dtype and torch.equal(found, torch.cat(parts))


def check_every_handle() -> None:
    """Compares with the blocking functions. All operations are in flight together."""
    rank, size = hvd.rank(), hvd.size()
    root, target = size - 1, mine((2, 2))
    blocks = [mine((one + 1, 2), rank=one) for one in range(size)]
    pair = [mine((3,)), mine((2, 2), torch.int64)]
    of_pair = [total((3,)), total((2, 2), torch.int64)]
    rows = mine((size, 2))
    handles = {
        "reduces": hvd.grouped_allreduce_async(pair, op=hvd.Sum, name="reduces"),
        "gather": hvd.allgather_async(blocks[rank], name="gather"),
        "gathers": hvd.grouped_allgather_async([blocks[rank], pair[1]], name="gathers"),
        "copy": hvd.broadcast_async(pair[0], root, name="copy"),
        "in place": hvd.broadcast_async_(target, root, name="in place"),
        "share": hvd.reducescatter_async(rows, op=hvd.Sum, name="share"),
        "shares": hvd.grouped_reducescatter_async([rows, 2 * rows], op=hvd.Sum, name="shares"),
    }
    found = {name: hvd.synchronize(handle) for name, handle in reversed(handles.items())}
    for one, wanted in zip(found["reduces"], of_pair, strict=True):
        assert torch.equal(one, wanted)
    assert torch.equal(pair[0], mine((3,))) and torch.equal(rows, mine((size, 2)))
    assert torch.equal(found["gather"], torch.cat(blocks)) and torch.equal(found["gathers"][0], torch.cat(blocks))
    assert torch.equal(found["gathers"][1], torch.cat([mine((2, 2), torch.int64, one) for one in range(size)]))
    assert torch.equal(found["copy"], mine((3,), rank=root))
    assert found["in place"] is target and torch.equal(target, mine((2, 2), rank=root))
    mine_of_all = total((size, 2))[rank : rank + 1]
    assert torch.equal(found["share"], mine_of_all)
    assert torch.equal(found["shares"][0], mine_of_all) and torch.equal(found["shares"][1], 2 * mine_of_all)


def check_allgather_and_broadcast() -> None:
    for dtype in (*DTYPES, torch.bool):
        parts = [mine((rank + 1, 2), dtype, rank) for rank in range(hvd.size())]
        assert torch.equal(hvd.allgather(parts[hvd.rank()]), torch.cat(parts))
        root = hvd.size() - 1
        assert torch.equal(hvd.broadcast(mine((3,), dtype), root), mine((3,), dtype, root))
    tensor = mine((2, 2))
    assert hvd.broadcast_(tensor, 0) is tensor and torch.equal(tensor, mine((2, 2), rank=0))


def check_memory_that_is_not_contiguous() -> None:
    tensor = torch.zeros(4, 6)
    tensor.t()[::2].copy_(mine((3, 4)))
    hvd.allreduce_(tensor.t()[::2], op=hvd.Sum)
    assert torch.equal(tensor.t()[::2], total((3, 4))) and tensor.sum() == total((3, 4)).sum()
    assert torch.equal(hvd.allreduce(mine((4, 3)).t(), op=hvd.Sum), total((4, 3)).t())
    expanded = mine((1,)).expand(5)
    assert torch.equal(hvd.allreduce(expanded, op=hvd.Sum), total((1,)).expand(5))


def check_tensors_of_inference_mode_in_place() -> None:
    """torch writes to them only inside the mode. The result is written there, also into parts of a tensor."""
    with torch.inference_mode():
        whole, parts, turned = torch.ones(4), torch.ones(6), torch.full((2, 3), float(hvd.rank()))
    total = float(hvd.size())
    hvd.allreduce_(whole, op=hvd.Sum, name="inference.whole")
    hvd.allreduce_(parts[::2], op=hvd.Sum, name="inference.parts")
    hvd.grouped_allreduce_([parts[1::2], whole[::3]], op=hvd.Max, name="inference.group")
    hvd.broadcast_(turned.t(), hvd.size() - 1, name="inference.turned")
    assert whole.tolist() == [total] * 4 and parts.tolist() == [total, 1.0] * 3
    assert turned.tolist() == [[total - 1.0] * 3] * 2
    hvd.broadcast_parameters({"part": turned[:, ::2]}, root_rank=0)
    assert turned[:, ::2].tolist() == [[total - 1.0] * 2] * 2


def check_compression() -> None:
    for compression in (hvd.Compression.none, hvd.Compression.fp16, hvd.Compression.bf16):
        result = hvd.allreduce(mine((6,), torch.float64), op=hvd.Sum, compression=compression)
        assert result.dtype == torch.float64 and torch.equal(result, total((6,), torch.float64))
        more = torch.tensor([1 + 2**-12], dtype=torch.float64)  # more digits than two bytes can hold
        exact = compression is hvd.Compression.none
        assert hvd.allreduce(more, compression=compression).item() == (more.item() if exact else 1.0)


def check_gradient_of_allreduce() -> None:
    for op, factor in ((hvd.Sum, float(hvd.size())), (hvd.Average, 1.0)):
        tensor = mine((3, 2)).requires_grad_()
        result = hvd.allreduce(tensor, op=op)
        assert result.requires_grad
        result.sum().backward()  # the incoming gradient is a stride-0 view
        torch.testing.assert_close(tensor.grad, torch.full((3, 2), factor))
    tensor = mine((2,)).requires_grad_()
    with raises(NotImplementedError, "Max"):
        hvd.allreduce(tensor, op=hvd.Max).sum().backward()
    pair = [mine((2,)).requires_grad_(), mine((3,)).requires_grad_()]
    first, second = hvd.grouped_allreduce(pair, op=hvd.Sum, name="grouped")
    (first.sum() + 2 * second.sum()).backward()
    torch.testing.assert_close(pair[1].grad, torch.full((3,), 2.0 * hvd.size()))


def check_gradient_of_allgather() -> None:
    tensor = mine((hvd.rank() + 1, 2)).requires_grad_()
    gathered = hvd.allgather(tensor)
    weights = torch.arange(float(gathered.numel())).reshape(gathered.shape)
    (gathered * weights).sum().backward()
    start = sum(range(1, hvd.rank() + 1))
    torch.testing.assert_close(tensor.grad, weights[start : start + hvd.rank() + 1] * hvd.size())


def check_gradient_of_broadcast() -> None:
    tensor = mine((4,)).requires_grad_()
    root = hvd.size() - 1
    (hvd.broadcast(tensor, root) * (hvd.rank() + 1)).sum().backward()
    expected = float(sum(range(1, hvd.size() + 1))) if hvd.rank() == root else 0.0
    torch.testing.assert_close(tensor.grad, torch.full((4,), expected))


def check_forward_mode_is_refused() -> None:
    """Otherwise the result of a tensor with a tangent would count as a constant."""
    calls = (hvd.allreduce, hvd.allgather, lambda one: hvd.broadcast(one, 0), hvd.alltoall, hvd.reducescatter)
    groups = (hvd.grouped_allreduce, hvd.grouped_allgather, hvd.grouped_reducescatter)
    with forward_ad.dual_level():
        plain = mine((hvd.size(),))
        dual = forward_ad.make_dual(plain, torch.ones_like(plain))
        for call in calls:
            with raises(NotImplementedError, "forward mode AD"):
                call(dual)
        for group in groups:
            with raises(NotImplementedError, "forward mode AD"), torch.no_grad():
                group([plain, dual])
        assert torch.equal(hvd.allreduce(plain, op=hvd.Sum), total((hvd.size(),)))


def check_gradients_in_any_order() -> None:
    first, second = mine((3,)).requires_grad_(), mine((4,)).requires_grad_()
    results = [hvd.allreduce(first, op=hvd.Sum), hvd.allreduce(second, op=hvd.Sum)]
    # A backward pass blocks. If ranks disagree about the order, they need two threads.
    threads = [threading.Thread(target=result.sum().backward) for result in results]
    for thread in threads if hvd.rank() % 2 else reversed(threads):
        thread.start()
    for thread in threads:
        thread.join()
    torch.testing.assert_close(first.grad, torch.full((3,), float(hvd.size())))
    torch.testing.assert_close(second.grad, torch.full((4,), float(hvd.size())))


def check_sparse() -> None:
    rank, size = hvd.rank(), hvd.size()
    values = torch.tensor([[1.0, 2.0], [4.0, 4.0]])
    tensor = torch.sparse_coo_tensor([[rank, 3]], values, (max(4, size), 2), check_invariants=True)
    for op, factor in ((hvd.Sum, 1.0), (hvd.Average, 1.0 / size)):
        result = hvd.synchronize(hvd.sparse_allreduce_async(tensor, name=f"sparse{op}", op=op))
        torch.testing.assert_close(result.to_dense(), hvd.allreduce(tensor.to_dense(), op=hvd.Sum) * factor)
    made = _on_device.cache_info().misses
    hvd.synchronize(hvd.sparse_allreduce_async(tensor, name="again", op=hvd.Sum))
    assert _on_device.cache_info().misses == made  # this would wait for a GPU
    longer = torch.sparse_coo_tensor([[0, 3]], values, (max(4, size) + rank, 2), check_invariants=True)
    handle = hvd.sparse_allreduce_async(longer, name="longer", op=hvd.Sum)
    if size > 1:
        with raises(hvd.Mismatch, "sparse tensor longer", f"({max(4, size)}, 2) on rank 0", "on rank 1"):
            hvd.synchronize(handle)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == size


def check_what_is_refused() -> None:
    with raises(ValueError, "tensor 'allreduce.bits'", "torch.bits8"):
        hvd.allreduce(torch.zeros(2, dtype=torch.uint8).view(torch.bits8), name="bits")
    with raises(ValueError, "tensor 'broadcast.parameter.bits'", "torch.bits8"):
        state = {"bits": torch.zeros(2, dtype=torch.uint8).view(torch.bits8), "weight": torch.ones(1)}
        hvd.broadcast_parameters(state, 0)
    with raises(ValueError, "sparse"):
        hvd.allreduce(torch.eye(2).to_sparse())
    with raises(ValueError, "meta"):
        hvd.allreduce(torch.empty(2, device="meta"))
    with raises(ValueError, "list"):
        hvd.allreduce([1.0])
    for call in (hvd.allreduce, hvd.allreduce_, hvd.allgather):
        with raises(ValueError, "a WithoutMemory of shape (3,) has no memory that can be sent", "to_local()"):
            call(WithoutMemory(torch.ones(3)))
    with raises(NotImplementedError, "elastic"):
        hvd.elastic.run(print)


class WithoutMemory(torch.Tensor):
    """Like a DTensor, whose numbers are in other tensors."""

    @staticmethod
    def __new__(cls, like: torch.Tensor) -> WithoutMemory:
        return torch.Tensor._make_wrapper_subclass(cls, like.shape, dtype=like.dtype, device=like.device)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(f"{func} of a tensor without memory")


def check_every_dtype_is_moved() -> None:
    size, rank = hvd.size(), hvd.rank()
    names = ("uint16", "uint32", "uint64", "complex32", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2")
    names += ("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
    for dtype in [getattr(torch, name) for name in names if hasattr(torch, name)]:

        def of(rank: int, dtype: torch.dtype = dtype) -> torch.Tensor:
            return torch.arange(1.0 + rank, 1.0 + rank + 2 * size).reshape(size, 2).to(dtype)

        def equal(found: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype = dtype) -> bool:
            return found.dtype == dtype and torch.equal(found.view(torch.uint8), expected.view(torch.uint8))

        parts = [of(r).view(torch.uint8) for r in range(size)]
        assert equal(hvd.broadcast(of(rank), size - 1), of(size - 1)), dtype
        assert equal(hvd.allgather(of(rank)), torch.cat(parts).view(dtype)), dtype
        assert equal(hvd.alltoall(of(rank)), torch.stack([part[rank] for part in parts]).view(dtype)), dtype
        state = {"x": of(rank), "y": torch.ones(1)}
        hvd.broadcast_parameters(state, 0)
        assert equal(state["x"], of(0)), dtype
        if dtype.itemsize == 1 or dtype == torch.complex32:
            with raises(ValueError, "tensor 'allreduce.w'", str(dtype).removeprefix("torch."), "can be moved"):
                hvd.allreduce(of(rank), name="w")
    assert hvd.allreduce(torch.full((2,), 3, dtype=torch.uint16), op=hvd.Sum).tolist() == [3 * size] * 2


def check_complex_numbers() -> None:
    size, rank = hvd.size(), hvd.rank()
    for dtype in (torch.complex64, torch.complex128):
        values = torch.tensor([1 + 2j, 3 - 1j], dtype=dtype)
        total = values * sum(range(1, size + 1))
        torch.testing.assert_close(hvd.allreduce(values * (rank + 1), op=hvd.Sum), total)
        torch.testing.assert_close(hvd.allreduce(values * (rank + 1)), total / size)
        torch.testing.assert_close(hvd.allreduce(values, op=hvd.Product), values**size)
        # A conjugate view has the other's memory.
        torch.testing.assert_close(hvd.allreduce(values.conj(), op=hvd.Sum), values.conj() * size)
        torch.testing.assert_close(hvd.broadcast(values.conj(), 0), values.conj().resolve_conj())
        turned = values.clone()
        hvd.allreduce_(turned.conj(), op=hvd.Sum)
        torch.testing.assert_close(turned, values * size)
        given = values.clone().requires_grad_()
        (hvd.allreduce(given, op=hvd.Sum).abs() ** 2).sum().backward()
        torch.testing.assert_close(given.grad, 2 * values * size * size)
        with raises(ValueError, "tensor 'allreduce.spectrum'", "complex", "no order", "view_as_real"):
            hvd.allreduce(values, op=hvd.Max, name="spectrum")


def check_overlapping_memory_is_found_before_anything_is_sent() -> None:
    expanded = torch.ones(1, 3).expand(4, 3)
    windows = torch.arange(6.0).unfold(0, 3, 1)
    for wrong in (expanded, windows):
        with raises(ValueError, "tensor 'allreduce.shared'", "share memory"):
            hvd.allreduce_(wrong, name="shared")
        with raises(ValueError, "tensor 'broadcast.parameter.mask'", "share memory"):
            hvd.broadcast_parameters({"mask": wrong, "weight": torch.ones(1)}, 0)
        assert torch.equal(hvd.allreduce(wrong), wrong)
    base = torch.ones(8)
    with raises(ValueError, "tensor 'allreduce.two_2of2'", "overlaps that of tensor 'allreduce.two_1of2'"):
        hvd.grouped_allreduce_([base[:5], base[4:]], name="two")
    with raises(ValueError, "overlaps"):
        hvd.grouped_allreduce_([base, base])
    tied = torch.full((2,), float(hvd.rank()))
    hvd.broadcast_parameters({"embedding": tied, "head": tied}, 0)
    assert tied.tolist() == [0, 0]
    matrix = torch.ones(4, 4)
    hvd.allreduce_(matrix.t()[::2], op=hvd.Sum)
    assert matrix.sum() == 8 + 8 * hvd.size()


def check_memory_in_flight_is_refused_on_every_rank() -> None:
    """Also on the last rank. Its first operation is complete at once, because the others have submitted theirs."""
    for late in range(hvd.size()):
        base = torch.ones(8)
        if hvd.rank() == late:
            time.sleep(0.1)
        handle = hvd.allreduce_async_(base[:6], op=hvd.Sum, name="first")
        for call in (hvd.allreduce_async_, hvd.allreduce_async, hvd.allgather_async):
            for part in (base[:6], base[4:], base):
                name = f"{call.__name__.split('_')[0]}.second'"
                texts = ("overlaps that of tensor 'allreduce.first'", "which is in flight", "Wait for the handle")
                with raises(hvd.InvalidArgument, name, *texts):
                    call(part, name="second")
        others = [hvd.allreduce_async_(base[6:], op=hvd.Sum, name="rest")]
        if late % 2:
            wait_for(handle.poll, "the first reduction")
        else:
            hvd.synchronize(handle)
        again = hvd.allreduce_async_(base[:6], op=hvd.Sum, name="second")
        for one in (handle, again, *others):
            hvd.synchronize(one)
        assert base.tolist() == [hvd.size() ** 2] * 6 + [hvd.size()] * 2
        reads = [hvd.allreduce_async(base, op=hvd.Sum, name=f"read.{number}") for number in range(3)]
        with raises(hvd.InvalidArgument, "overlaps that of tensor 'allreduce.read.0'"):
            hvd.broadcast_async_(base[2:4], 0, name="written")
        for one in reads:
            assert torch.equal(hvd.synchronize(one), base * hvd.size())


def check_dtypes_that_torch_has_and_distrun_does_not_send() -> None:
    for name in ("float4_e2m1fn_x2", "bits8"):
        if hasattr(torch, name):  # float4 came with PyTorch 2.8
            packed = torch.zeros(2, dtype=torch.uint8).view(getattr(torch, name))
            with raises(ValueError, f"{name} is not supported", "tensor.view(torch.uint8)"):
                hvd.broadcast(packed, 0)
            assert torch.equal(hvd.broadcast(packed.view(torch.uint8), 0), packed.view(torch.uint8))
    quantized = torch.quantize_per_tensor(torch.ones(2), 0.5, 0, torch.qint8)
    with raises(ValueError, "qint8 is not supported", "tensor.int_repr()"):
        hvd.broadcast(quantized, 0)
    assert hvd.broadcast(quantized.int_repr(), 0).tolist() == [2, 2]
    halves = torch.ones(2, dtype=torch.complex32)
    with raises(hvd.InvalidArgument, "complex32 can be moved", "Convert the tensor to complex64"):
        hvd.allreduce(halves, op=hvd.Sum, name="halves")
    assert hvd.allreduce(halves.to(torch.complex64), op=hvd.Sum).tolist() == [hvd.size()] * 2


def check_a_handle_cannot_be_copied() -> None:
    handle = hvd.allreduce_async(torch.ones(1), op=hvd.Sum, name="copied")
    for call in (copy.copy, copy.deepcopy, pickle.dumps):
        with raises(TypeError, "a handle cannot be copied or pickled", "synchronize(handle)"):
            call(handle)
    assert copy.deepcopy(hvd.synchronize(handle)).item() == hvd.size()


def check_eager_calls_use_no_operators() -> None:
    """The operators of torch.compile cost more than the call itself. They must not even be loaded."""
    for tensor in (mine((3,)), mine((3,)).requires_grad_()):
        result = hvd.allreduce(tensor) + hvd.broadcast(tensor, 0) + hvd.allgather(tensor).sum()
        result = result + hvd.alltoall(tensor.repeat(hvd.size())).sum() + hvd.reducescatter(tensor).sum()
        if tensor.requires_grad:
            result.sum().backward()
    assert "distrun.torch._compiled" not in sys.modules


def check_objects() -> None:
    dtypes = [torch.bfloat16, torch.float8_e4m3fn, torch.uint16, torch.complex32, torch.quint8]
    sent = {"state": torch.nn.Linear(2, 2).state_dict(), "dtypes": dtypes, "size": torch.Size([1, 2])}
    received = hvd.broadcast_object(sent if hvd.rank() == 0 else None)
    assert received["state"]["weight"].shape == (2, 2) and received["dtypes"] == dtypes
    sums = hvd.allgather_object(received["state"]["weight"].sum())
    assert all(torch.equal(part, sums[0]) for part in sums)


def check_more_rows_than_int32_counts() -> None:
    """alltoall returns these numbers of rows. At that time the data have moved, so this must not fail."""
    for rows, dtype in (((3, 2**31 - 1), torch.int32), ((3, 2**31), torch.int64)):
        counts = collective.adapter.integers(rows)
        assert counts.dtype == dtype and counts.tolist() == list(rows)


def check_mismatch_and_go_on() -> None:
    if hvd.size() == 1:
        return
    last = hvd.rank() == hvd.size() - 1
    with raises(hvd.Mismatch, "weights", "(2,)", "(3,)"):
        hvd.allreduce(torch.zeros(3 if last else 2), name="weights")
    assert torch.equal(hvd.allreduce(mine((2,)), op=hvd.Sum, name="weights"), total((2,)))


def check_sets_of_members_alone() -> None:
    """Ranks of equal parity make a set that the others do not know, and use it at the same time as the others use
    theirs."""
    ranks = [rank for rank in range(hvd.size()) if rank % 2 == hvd.rank() % 2]
    ours = hvd.add_process_set(ranks, members_only=True)
    place, count = ours.rank(), len(ranks)
    expected = sum(mine((3,), rank=rank) for rank in ranks)

    tensor = mine((3,)).requires_grad_()
    result = hvd.allreduce(tensor, op=hvd.Sum, process_set=ours)
    result.backward(mine((3,)))
    assert torch.equal(result, expected) and torch.equal(tensor.grad, expected)

    blocks = [torch.full((rank + 1, 2), float(rank)) for rank in ranks]
    assert torch.equal(hvd.allgather(blocks[place], process_set=ours), torch.cat(blocks))
    sent = torch.tensor([float(hvd.rank())], requires_grad=True)
    arrived = hvd.broadcast(sent, ranks[-1], process_set=ours)
    arrived.backward(torch.tensor([float(hvd.rank())]))
    assert arrived.item() == ranks[-1]
    assert sent.grad.item() == (float(sum(ranks)) if hvd.rank() == ranks[-1] else 0.0)
    received, splits = hvd.alltoall(
        torch.full((count,), hvd.rank()), torch.ones(count, dtype=torch.int), process_set=ours
    )
    assert received.tolist() == ranks and splits.tolist() == [1] * count
    share = hvd.reducescatter(torch.ones(count, 2), op=hvd.Sum, process_set=ours)
    assert torch.equal(share, torch.full((1, 2), float(count)))

    # In flight together with an operation of all ranks, with names that the other set uses too.
    handles = [hvd.allreduce_async(mine((3,)), op=hvd.Sum, name=f"both.{i}", process_set=ours) for i in range(4)]
    assert torch.equal(hvd.allreduce(mine((3,)), op=hvd.Sum), total((3,)))
    assert all(torch.equal(hvd.synchronize(handle), expected) for handle in handles)
    hvd.barrier(process_set=ours)
    assert hvd.remove_process_set(ours)
    with raises(ValueError, "not registered"):
        hvd.allreduce(mine((3,)), process_set=ours)


if __name__ == "__main__":
    run(globals())
