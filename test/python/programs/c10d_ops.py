"""Every collective of torch.distributed on the backend distrun, compared with the same call on a gloo group."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from checks import raises, run, wait_for

import distrun
import distrun.torch.c10d  # registers the backend

warnings.simplefilter("ignore", FutureWarning)  # torch 2.13 calls its own older names deprecated

# Dtypes that both backends reduce. The others are compared with sums that the check computes.
BY_GLOO = (torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64)
MOVED = (*BY_GLOO, torch.int16, torch.bfloat16, torch.bool, torch.complex64, torch.uint16, torch.float8_e4m3fn)
OPS = (dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT)

dist.init_process_group("distrun")
GLOO = dist.new_group(backend="gloo")
RANK, SIZE = dist.get_rank(), dist.get_world_size()


def mine(shape: tuple[int, ...], dtype: torch.dtype = torch.float32, rank: int = RANK) -> torch.Tensor:
    """Small whole numbers: sums are exact in every dtype and in any order."""
    return (torch.arange(torch.Size(shape).numel()).reshape(shape) % 3 + rank + 1).to(dtype)


def empty(rows: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(rows, 2, dtype=dtype)


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        same = one.dtype == other.dtype and one.shape == other.shape
        return same and torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))
    return all(equal(*pair) for pair in zip(one, other, strict=True))


def both(call: Callable[[Any, bool], tuple[Any, Any]], text: str) -> None:
    """call(group, async_op) returns (outputs, work). Both backends must give the same, blocking and asynchronously."""
    expected, _ = call(GLOO, False)
    outputs, work = call(None, False)
    assert work is None and equal(outputs, expected), f"{text}: {outputs}, gloo {expected}"
    outputs, work = call(None, True)
    work.wait()
    assert work.is_completed() and work.is_success() and work.exception() is None
    assert equal(outputs, expected), f"{text}, async: {outputs}, gloo {expected}"
    outputs, work = call(None, True)
    work.get_future().wait()
    assert equal(outputs, expected), f"{text}, future: {outputs}, gloo {expected}"


def check_all_reduce_and_reduce() -> None:
    for dtype in BY_GLOO:
        for op in OPS:

            def all_reduce(group: Any, later: bool, dtype: torch.dtype = dtype, op: Any = op) -> tuple[Any, Any]:
                tensor = mine((3, 2), dtype)
                return tensor, dist.all_reduce(tensor, op, group=group, async_op=later)

            def reduce(group: Any, later: bool, dtype: torch.dtype = dtype, op: Any = op) -> tuple[Any, Any]:
                tensor = mine((3, 2), dtype)
                work = dist.reduce(tensor, SIZE - 1, op, group=group, async_op=later)
                if work is not None:
                    work.wait()
                return (tensor if RANK == SIZE - 1 else mine((3, 2), dtype)), work

            both(all_reduce, f"all_reduce {dtype} {op}")
            both(reduce, f"reduce {dtype} {op}")
    tensor = mine((4,))
    dist.reduce(tensor, 0)
    assert RANK == 0 or torch.equal(tensor, mine((4,)))


def check_reductions_that_gloo_lacks() -> None:
    total = sum((mine((3,), rank=rank) for rank in range(1, SIZE)), mine((3,), rank=0))
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int16, torch.complex64):
        tensor = mine((3,), dtype)
        dist.all_reduce(tensor)
        assert torch.equal(tensor, total.to(dtype)), dtype
    tensor = mine((3,))
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    torch.testing.assert_close(tensor, total / SIZE)
    tensor = mine((3,))
    dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.5))
    torch.testing.assert_close(tensor, total / 2)
    tensor = torch.tensor([RANK == 0, True, False])
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    assert tensor.tolist() == [True, True, False]
    tensor = torch.zeros(4, 6)
    tensor.t()[::2].copy_(mine((3, 4)))
    dist.all_reduce(tensor.t()[::2])  # not contiguous
    assert tensor.sum() == sum(mine((3, 4), rank=rank).sum() for rank in range(SIZE))
    for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
        with raises(NotImplementedError, "is not supported", "gloo"):
            dist.all_reduce(mine((3,), torch.int32), op)
    shared = torch.ones(1, 3).expand(4, 3)
    for wrong in (
        lambda: dist.all_reduce(shared),
        lambda: dist.broadcast(shared, 0),
        lambda: dist.all_gather([shared] * SIZE, torch.ones(4, 3)),
    ):
        with raises(ValueError, "share memory"):
            wrong()
    if RANK == 0:  # a refusal on one rank has no effect on the others
        with raises(ValueError, "layout"):
            dist.broadcast(torch.eye(2).to_sparse(), 0)
    dist.all_reduce(torch.ones(1))


def check_sparse() -> None:
    def rows(rank: int) -> torch.Tensor:
        """Row 0 on all ranks and row 1 + rank only on this one. If there are several ranks, the last has no rows."""
        if SIZE > 1 and rank == SIZE - 1:
            return torch.sparse_coo_tensor(torch.zeros(1, 0, dtype=torch.int64), torch.zeros(0, 2), (SIZE + 1, 2))
        places = torch.tensor([[1 + rank, 0, 0]])
        return torch.sparse_coo_tensor(places, mine((3, 2), rank=rank), (SIZE + 1, 2))

    def all_reduce(group: Any, later: bool) -> tuple[Any, Any]:
        tensor = rows(RANK)
        work = dist.all_reduce(tensor, group=group, async_op=later)
        if work is not None:
            work.wait()
        return tensor.to_dense(), work

    both(all_reduce, "sparse all_reduce")
    total = sum(rows(rank).to_dense() for rank in range(SIZE))
    tensor = rows(RANK)
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    torch.testing.assert_close(tensor.to_dense(), total / SIZE)
    with raises(ValueError, "SUM, AVG"):
        dist.all_reduce(rows(RANK), dist.ReduceOp.MAX)
    if SIZE > 1:
        with raises(RuntimeError, "Pass the same shape"):
            dist.all_reduce(torch.eye(3 + RANK).to_sparse())
        outside = torch.sparse_coo_tensor([[SIZE * RANK]], torch.ones(1, 2), (SIZE, 2), check_invariants=False)
        for later in (False, True):
            with raises(distrun.InvalidArgument, "group of ranks 0, 1", "in dimension 0, outside"):
                work = dist.all_reduce(outside.clone(), async_op=later)
                assert work is not None
                work.wait()


def check_broadcast_gather_scatter() -> None:
    root = SIZE - 1
    for dtype in MOVED:
        for shape in ((), (5,), (2, 3), (0, 2)):
            tensor = mine(shape, dtype)
            dist.broadcast(tensor, root)
            assert equal(tensor, mine(shape, dtype, root)), (dtype, shape)
            outputs = [torch.zeros(shape, dtype=dtype) for _ in range(SIZE)] if root == RANK else None
            dist.gather(mine(shape, dtype), outputs, root)
            assert outputs is None or equal(outputs, [mine(shape, dtype, rank) for rank in range(SIZE)])
            output = torch.zeros(shape, dtype=dtype)
            inputs = [mine(shape, dtype, 2 * rank) for rank in range(SIZE)] if RANK == 0 else None
            dist.scatter(output, inputs, 0)
            assert equal(output, mine(shape, dtype, 2 * RANK)), (dtype, shape)


def check_all_gather() -> None:
    for dtype in MOVED:
        for shape in ((), (5,), (2, 3), (0, 2)):
            outputs = [torch.zeros(shape, dtype=dtype) for _ in range(SIZE)]
            dist.all_gather(outputs, mine(shape, dtype))
            assert equal(outputs, [mine(shape, dtype, rank) for rank in range(SIZE)]), (dtype, shape)
    for dtype in (torch.float32, torch.int64, torch.bfloat16):

        def single(group: Any, later: bool, dtype: torch.dtype = dtype) -> tuple[Any, Any]:
            output = empty(3 * SIZE, dtype)
            return output, dist.all_gather_single(output, mine((3, 2), dtype), group=group, async_op=later)

        both(single, f"all_gather_single {dtype}")
    outputs = [torch.zeros(rank + 1) for rank in range(SIZE)]  # uneven
    dist.all_gather(outputs, mine((RANK + 1,)))
    assert equal(outputs, [mine((rank + 1,), rank=rank) for rank in range(SIZE)])
    whole = torch.zeros(SIZE, 4)
    whole[RANK] = mine((4,))
    dist.all_gather_into_tensor(whole, whole[RANK])  # in place, as FSDP2 does
    assert equal(whole, torch.stack([mine((4,), rank=rank) for rank in range(SIZE)]))
    rows = [[torch.zeros(2), torch.zeros(3)] for _ in range(SIZE)]
    dist.all_gather_coalesced(rows, [mine((2,)), mine((3,))])
    assert equal(rows, [[mine((2,), rank=rank), mine((3,), rank=rank)] for rank in range(SIZE)])


def check_outputs_are_there_once_it_is_completed() -> None:
    """Also outputs that are filled by a copy, and without a wait()."""
    into = torch.zeros(3, 2).t()  # not contiguous
    parts = [torch.zeros(2) for _ in range(SIZE)]
    into.copy_(torch.ones(2, 3))
    works = [dist.all_gather(parts, torch.full((2,), float(RANK)), async_op=True), dist.all_reduce(into, async_op=True)]
    for work in works:
        assert work is not None
        wait_for(work.is_completed, "the operation")
    assert [part[0].item() for part in parts] == list(range(SIZE))
    assert torch.equal(into, torch.full((2, 3), float(SIZE)))


def check_reduce_scatter() -> None:
    for dtype in (torch.int32, torch.int64, torch.float32, torch.float64, torch.float16):

        def single(group: Any, later: bool, dtype: torch.dtype = dtype) -> tuple[Any, Any]:
            output = empty(3, dtype)
            work = dist.reduce_scatter_tensor(output, mine((3 * SIZE, 2), dtype), group=group, async_op=later)
            return output, work

        def of_lists(group: Any, later: bool, dtype: torch.dtype = dtype) -> tuple[Any, Any]:
            output = empty(3, dtype)
            inputs = [mine((3, 2), dtype, RANK + rank) for rank in range(SIZE)]
            return output, dist.reduce_scatter(output, inputs, dist.ReduceOp.MAX, group=group, async_op=later)

        both(single, f"reduce_scatter_tensor {dtype}")
        both(of_lists, f"reduce_scatter {dtype}")
    output = torch.zeros(2)
    dist.reduce_scatter_tensor(output, mine((2 * SIZE,)), dist.ReduceOp.AVG)
    total = sum((mine((2 * SIZE,), rank=rank) for rank in range(1, SIZE)), mine((2 * SIZE,), rank=0))
    torch.testing.assert_close(output, total[2 * RANK : 2 * RANK + 2] / SIZE)


def check_all_to_all() -> None:
    def lists(group: Any, later: bool) -> tuple[Any, Any]:
        outputs = [torch.zeros(rank + 1) for rank in range(SIZE)]
        # Member r gets RANK + 1 elements from this rank.
        return outputs, dist.all_to_all(outputs, [mine((RANK + 1,), rank=r) for r in range(SIZE)], group, later)

    def even(group: Any, later: bool) -> tuple[Any, Any]:
        output = empty(2 * SIZE, torch.int64)
        return output, dist.all_to_all_single(output, mine((2 * SIZE, 2), torch.int64), group=group, async_op=later)

    def uneven(group: Any, later: bool) -> tuple[Any, Any]:
        received, sent = [rank + RANK for rank in range(SIZE)], [RANK + rank for rank in range(SIZE)]
        output = empty(sum(received))
        work = dist.all_to_all_single(output, mine((sum(sent), 2)), received, sent, group=group, async_op=later)
        return output, work

    # torch's gloo has no all_to_all of lists.
    outputs, work = lists(None, True)
    work.wait()
    assert equal(outputs, [mine((rank + 1,)) for rank in range(SIZE)])
    both(even, "all_to_all_single")
    both(uneven, "all_to_all_single with splits")
    output = torch.zeros(2 * SIZE, dtype=torch.uint16)
    dist.all_to_all_single(output, mine((2 * SIZE,), torch.uint16))
    assert equal(output[:2], mine((2 * SIZE,), torch.uint16, 0)[2 * RANK : 2 * RANK + 2])


def check_tensors_without_rows() -> None:
    """For the collectives that split one tensor into shares. The other checks already use such shapes."""
    for dtype in (torch.float32, torch.bool, torch.complex64):
        for shape in ((0,), (0, 2)):
            outputs = [torch.zeros(shape, dtype=dtype) for _ in range(3)]
            nothing = torch.zeros(shape, dtype=dtype)
            dist.all_gather_into_tensor(outputs[0], nothing)
            if dtype != torch.bool:
                dist.reduce_scatter_tensor(outputs[1], nothing)
            dist.all_to_all_single(outputs[2], nothing)
            dist.all_to_all(list(outputs[0].expand(SIZE, *shape)), [nothing] * SIZE)
            assert all(output.shape == shape for output in outputs)
    full = torch.ones(1)
    dist.all_reduce(full)
    assert full.item() == SIZE


def check_coalesced() -> None:
    group: Any = dist.group.WORLD
    tensors = [mine((2,)), mine((3,), torch.int64), mine((0,))]
    group.allreduce_coalesced(tensors).wait()
    assert equal(tensors[1], sum(mine((3,), torch.int64, rank) for rank in range(SIZE)))
    outputs = [torch.zeros(2 * SIZE), torch.zeros(SIZE, dtype=torch.int32)]
    group.allgather_into_tensor_coalesced(outputs, [mine((2,)), mine((1,), torch.int32)]).wait()
    assert equal(outputs[1], torch.cat([mine((1,), torch.int32, rank) for rank in range(SIZE)]))
    shares = [torch.zeros(1), torch.zeros(2)]
    group.reduce_scatter_tensor_coalesced(shares, [mine((SIZE,)), mine((2 * SIZE,))]).wait()
    total = sum((mine((2 * SIZE,), rank=rank) for rank in range(1, SIZE)), mine((2 * SIZE,), rank=0))
    assert equal(shares[1], total[2 * RANK : 2 * RANK + 2])
    tensors = [mine((2,)), mine((3,))]
    with dist.distributed_c10d._coalescing_manager(device=torch.device("cpu")):
        for tensor in tensors:
            dist.broadcast(tensor, 0)
    assert equal(tensors, [mine((2,), rank=0), mine((3,), rank=0)])
    with dist.distributed_c10d._coalescing_manager(async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    assert equal(tensors[0], SIZE * mine((2,), rank=0))


def check_an_exception_in_a_coalesced_call() -> None:
    """In this case torch does not end the coalesced call. Later operations must not be kept in it."""
    with raises(KeyError), dist.distributed_c10d._coalescing_manager(device=torch.device("cpu")):
        raise KeyError
    alive = []
    for _ in range(200):
        tensor = mine((2,))
        alive.append(weakref.ref(tensor))
        dist.broadcast(tensor, 0)
    del tensor
    assert sum(one() is not None for one in alive) < 100
    with dist.distributed_c10d._coalescing_manager(device=torch.device("cpu")):
        tensors = [mine((2,)) for _ in range(200)]
        for tensor in tensors:
            dist.broadcast(tensor, 0, async_op=True)
    assert all(equal(tensor, mine((2,), rank=0)) for tensor in tensors)


def check_the_methods_of_a_group_with_one_tensor() -> None:
    """Also with op, root and timeout by position and by name. The tensors have one row per rank, so that rows could be
    taken for tensors, and tensors for lists."""
    root, limit, most = SIZE - 1, timedelta(seconds=60), dist.ReduceOp.MAX

    def here(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        return tensors if root == RANK else []

    # (group, one output, one output per rank, one input, one input per rank): returns the work
    calls: list[Callable[..., Any]] = [
        lambda group, out, outs, x, xs: group.allreduce(out.copy_(x)),
        lambda group, out, outs, x, xs: group.allreduce(out.copy_(x), most, limit),
        lambda group, out, outs, x, xs: group.allreduce([out.copy_(x)], op=most, timeout=limit),
        lambda group, out, outs, x, xs: group.broadcast(out.copy_(x), root, limit),
        lambda group, out, outs, x, xs: group.broadcast(out.copy_(x), root=root, timeout=limit),
        lambda group, out, outs, x, xs: group.reduce(out.copy_(x), root),
        lambda group, out, outs, x, xs: group.reduce(out.copy_(x), root, most, limit),
        lambda group, out, outs, x, xs: group.reduce(out.copy_(x), root=root, op=most, timeout=limit),
        lambda group, out, outs, x, xs: group.allgather(outs, x),
        lambda group, out, outs, x, xs: group.allgather(outs, x, limit),
        lambda group, out, outs, x, xs: group.allgather(outs, x, timeout=limit),
        lambda group, out, outs, x, xs: group.gather(here(outs), x, root, limit),
        lambda group, out, outs, x, xs: group.gather(here(outs), x, root=root, timeout=limit),
        lambda group, out, outs, x, xs: group.scatter(out, here(xs), root, limit),
        lambda group, out, outs, x, xs: group.scatter(out, here(xs), root=root, timeout=limit),
        lambda group, out, outs, x, xs: group.reduce_scatter(out, xs),
        lambda group, out, outs, x, xs: group.reduce_scatter(out, xs, most, limit),
        lambda group, out, outs, x, xs: group.reduce_scatter(out, xs, op=most, timeout=limit),
        lambda group, out, outs, x, xs: group.alltoall_base(out, x, [], [], timeout=limit),
        lambda group, out, outs, x, xs: group.barrier(limit),
        lambda group, out, outs, x, xs: group.barrier(timeout=limit),
    ]
    for number, call in enumerate(calls):
        found = []
        for group in (dist.group.WORLD, GLOO):
            out, outs = torch.zeros(SIZE, 2), [torch.zeros(SIZE, 2) for _ in range(SIZE)]
            call(group, out, outs, mine((SIZE, 2)), [mine((SIZE, 2), rank=RANK + 2 * r) for r in range(SIZE)]).wait()
            # reduce: only the root has the result
            found.append([*outs, out] if number not in (5, 6, 7) or root == RANK else outs)
        assert equal(*found), f"call {number}: {found}"


def check_what_a_group_refuses() -> None:
    group: Any = dist.group.WORLD
    tensor = torch.zeros(SIZE, SIZE, 2)
    rows = list(tensor)
    for call in (
        lambda: group.allgather(tensor, rows),
        lambda: group.allgather(rows, rows),
        lambda: group.allgather([rows], tensor),
        lambda: group.gather(rows, rows, root=0),
        lambda: group.scatter(rows, rows, root=0),
        lambda: group.reduce_scatter(rows, tensor),
    ):
        with raises(ValueError, "a list of tensors and a tensor"):
            call()
    for root in (-1, SIZE):  # torch passes group_dst and group_src on unchanged
        for call in (
            lambda root=root: dist.reduce(tensor, group_dst=root),
            lambda root=root: dist.broadcast(tensor, group_src=root),
            lambda root=root: dist.gather(rows[0], group_dst=root),
            lambda root=root: group.scatter([rows[0]], [], root=root),
        ):
            with raises(ValueError, f"has no rank {root}.", f"0 to {SIZE - 1}"):
                call()
    with raises(TypeError, "leave out opts"):
        group.allreduce(tensor, dist.AllreduceOptions(), op=dist.ReduceOp.MAX)
    assert not group.supports_tensor_alloc(torch.device("cpu"))
    group._set_default_timeout(group._timeout)


def check_objects_and_barrier() -> None:
    objects: list[Any] = [None] * SIZE
    dist.all_gather_object(objects, {"rank": RANK})
    assert objects == [{"rank": rank} for rank in range(SIZE)]
    thing = [{"root": RANK}]
    dist.broadcast_object_list(thing, SIZE - 1)
    assert thing == [{"root": SIZE - 1}]
    gathered: list[Any] | None = [None] * SIZE if RANK == 0 else None
    dist.gather_object(RANK, gathered, 0)
    assert gathered in (None, list(range(SIZE)))
    part: list[Any] = [None]
    dist.scatter_object_list(part, [f"for {rank}" for rank in range(SIZE)], 0)
    assert part == [f"for {RANK}"]
    dist.barrier()
    work = dist.barrier(async_op=True)
    assert work is not None
    work.wait()


def check_subgroups() -> None:
    """Groups made by all ranks or by the members only, of one rank, and two with the same ranks. Operations run in all
    of them at once."""
    evens = list(range(0, SIZE, 2))
    group = dist.new_group(evens)
    alone = dist.new_group([RANK], use_local_synchronization=True)
    again = dist.new_group(list(range(SIZE)))
    works = [dist.all_reduce(torch.ones(1), group=one, async_op=True) for one in (alone, again)]
    if RANK in evens:
        tensor = mine((2,))
        dist.all_reduce(tensor, group=group)
        assert equal(tensor, sum((mine((2,), rank=rank) for rank in evens[1:]), mine((2,), rank=0)))
        tensor = mine((2,))
        dist.broadcast(tensor, evens[-1], group=group)
        assert equal(tensor, mine((2,), rank=evens[-1]))
        assert dist.get_rank(group) == evens.index(RANK) and dist.get_process_group_ranks(group) == evens
    for work, total in zip(works, (1.0, float(SIZE)), strict=True):
        assert work is not None and work.get_future().wait()[0].item() == total
    halves, _ = dist.new_subgroups(max(1, SIZE // 2))
    count = torch.ones(1)
    dist.all_reduce(count, group=halves)
    assert count.item() == max(1, SIZE // 2)
    dist.destroy_process_group(again)
    dist.all_reduce(count)


def check_ranks_in_another_order() -> None:
    if SIZE > 1:
        with raises(ValueError, "in ascending order"):
            dist.new_group(list(reversed(range(SIZE))), sort_ranks=False)


def check_misuse_and_timeouts() -> None:
    group: Any = dist.group.WORLD
    with raises(ValueError, "times the elements of the input"):
        dist.all_gather_single(torch.zeros(SIZE + 1), torch.zeros(1))
    with raises(ValueError, "splits"):
        dist.all_to_all_single(torch.zeros(SIZE), torch.zeros(SIZE), [SIZE + 1] * SIZE, [1] * SIZE)
    if SIZE == 1:
        return
    if RANK == 0:
        work = dist.all_reduce(torch.ones(1), async_op=True)
        assert work is not None
        with raises(RuntimeError, "allreduce", "0.2 seconds"):
            work.wait(timedelta(seconds=0.2))
        assert not work.is_completed()
    dist.barrier(group=GLOO)
    if RANK != 0:
        dist.all_reduce(torch.ones(1))
    else:
        assert work is not None and work.wait()
    short = dist.new_group(timeout=timedelta(seconds=4 if RANK == 0 else 60))
    inputs, outputs = list(torch.ones(SIZE, 1)), list(torch.zeros(SIZE, 1))
    if RANK == 0:
        with raises(RuntimeError, "4 seconds", "Some ranks have not called it"):
            dist.all_reduce(torch.ones(1), group=short)
        with raises(RuntimeError, "0.2 seconds"):
            group.allreduce(torch.ones(1), timeout=timedelta(seconds=0.2)).wait()
        with raises(RuntimeError, "alltoall", "0.2 seconds"):
            group.alltoall(outputs, inputs, timedelta(seconds=0.2)).wait()
        with raises(RuntimeError, "alltoall", "0.3 seconds"):
            group.alltoall(outputs, inputs, timeout=timedelta(seconds=0.3)).wait()
    dist.barrier(group=GLOO)
    if RANK != 0:
        dist.all_reduce(torch.ones(1), group=short)  # rank 0's part is still there
        dist.all_reduce(torch.ones(1))
        for _ in range(2):
            dist.all_to_all(outputs, inputs)
    dist.barrier(group=group)


def check_mismatches() -> None:
    """All ranks raise: in the call, in wait() and in the future. The group works afterwards."""
    if SIZE == 1:
        return
    for later in (False, True):
        with raises(RuntimeError, "shapes differ"):
            work = dist.all_reduce(torch.ones(3 + RANK), async_op=later)
            assert work is not None
            work.wait()
    work = dist.all_reduce(torch.ones(2, dtype=(torch.float32, torch.int32)[RANK > 0]), async_op=True)
    assert work is not None
    with raises(RuntimeError, "data types differ"):
        work.get_future().wait()
    assert not work.is_success() and "data types" in str(work.exception())
    with raises(RuntimeError, "bytes"):
        dist.all_gather([torch.zeros(1) for _ in range(SIZE)], torch.zeros(2 if RANK == 0 else 3))
    with raises(RuntimeError):
        dist.all_reduce(torch.ones(2)) if RANK == 0 else dist.broadcast(torch.ones(2), 0)
    count = torch.ones(1)
    dist.all_reduce(count)
    assert count.item() == SIZE


def check_destroy_and_start_again() -> None:
    """The last check, because the gloo group ends too."""
    for _ in range(2):
        dist.destroy_process_group()
        assert not dist.is_initialized()
        dist.init_process_group("distrun", timeout=timedelta(seconds=60))
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        assert tensor.item() == SIZE


run(globals())
dist.destroy_process_group()
