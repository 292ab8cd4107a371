"""send, recv and the functions built on them on the backend distrun, compared with the same calls on a gloo group."""

from __future__ import annotations

import copy
import random
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from checks import raises, run, wait_for
from torch import nn

import distrun
import distrun.torch.c10d  # registers the backend
from distrun.torch.c10d._messages import Counts, Messages

warnings.simplefilter("ignore", FutureWarning)
WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool, torch.uint16)
BROKEN = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.float8_e4m3fn)

dist.init_process_group("distrun")
GLOO = dist.new_group(backend="gloo")
RANK, SIZE = dist.get_rank(), dist.get_world_size()
NEXT, BEFORE = (RANK + 1) % SIZE, (RANK - 1) % SIZE


def mine(shape: tuple[int, ...] = (3,), dtype: torch.dtype = torch.float32, rank: int = RANK) -> torch.Tensor:
    return (torch.arange(torch.Size(shape).numel()).reshape(shape) % 3 + 10 * rank).to(dtype)


def equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    same = one.dtype == other.dtype and one.shape == other.shape
    return same and torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))


def both(call: Callable[[Any], list[torch.Tensor]], text: str) -> None:
    """call(group) returns the received tensors. They must be equal on both backends."""
    expected, found = call(GLOO), call(None)
    assert len(found) == len(expected) > 0, text
    assert all(map(equal, found, expected)), f"{text}: {found}, gloo {expected}"


def check_a_message_waits_for_nothing_else() -> None:
    """The first check, because the ranks' sets must not exist yet. A message stays buffered until it is received."""
    work = dist.isend(mine(), NEXT)
    assert work is not None
    group = dist.new_group(list(range(SIZE)))
    dist.barrier(group=group)
    assert not work.is_completed()
    dist.barrier(group=group)  # all ranks have sent, and none has received
    found = torch.zeros(3)
    assert dist.recv(found, BEFORE) == BEFORE
    assert equal(found, mine(rank=BEFORE))
    assert work.wait() and work.is_completed() and work.is_success()
    dist.destroy_process_group(group)


def check_ring_of_each_dtype() -> None:
    for dtype in (*WHOLE, *BROKEN):
        for shape in ((), (5,), (2, 3), (0, 2)):

            def ring(group: Any, dtype: torch.dtype = dtype, shape: tuple[int, ...] = shape) -> list[torch.Tensor]:
                found = torch.zeros(shape, dtype=dtype)
                sent = dist.isend(mine(shape, dtype), NEXT, group=group)
                received = dist.irecv(found, BEFORE, group=group)
                assert sent is not None and received is not None
                received.wait()
                sent.wait()
                return [found]

            both(ring, f"ring of {dtype} {shape}")


def check_chain_of_blocking_calls() -> None:
    def chain(group: Any) -> list[torch.Tensor]:
        total = mine()
        if RANK > 0:
            dist.recv(total, RANK - 1, group=group)
            total += mine()
        if RANK < SIZE - 1:
            dist.send(total, RANK + 1, group=group)
        return [total]

    both(chain, "chain")


def check_both_directions_and_tags() -> None:
    def exchange(group: Any) -> list[torch.Tensor]:
        """Every rank with every other one, with three tags each. They are received in the opposite order."""
        others = [rank for rank in range(SIZE) if rank != RANK]
        works = [dist.isend(mine((4,)) + 100 * tag, rank, group=group, tag=tag) for tag in range(3) for rank in others]
        found = [torch.zeros(4) for _ in range(3) for _ in others]
        places = [(tag, rank) for tag in (2, 1, 0) for rank in reversed(others)]
        for (tag, rank), tensor in zip(places, found, strict=True):
            dist.recv(tensor, rank, group=group, tag=tag)
            assert equal(tensor, mine((4,), rank=rank) + 100 * tag), (tag, rank)
        for work in works:
            assert work is not None
            work.wait()
        return found

    both(exchange, "tags")


def check_messages_of_one_tag_keep_their_order() -> None:
    def several(group: Any) -> list[torch.Tensor]:
        works = [dist.isend(mine() + number, NEXT, group=group) for number in range(5)]
        found = [torch.zeros(3) for _ in works]
        works += [dist.irecv(tensor, BEFORE, group=group) for tensor in found]
        for work in reversed(works):
            assert work is not None
            work.wait()
        assert equal(found[4], mine(rank=BEFORE) + 4)
        return found

    both(several, "order")


def check_counts_of_tags() -> None:
    """The counts of each tag are right. If the tags increase, only a few of them use memory."""
    for tags in (range(20), (-1, 5), (0, 2, 4, 2**31)):
        chosen, counts, expected = random.Random(1), Counts(), Counter[int]()
        for _ in range(500):
            tag = chosen.choice(tags)
            assert counts.take(tag) == expected[tag]
            expected[tag] += 1
    steps = Counts()
    for step in range(1000):
        assert [steps.take(tag) for tag in (step, step, 10**6 - step)] == [0, 1, 0]
        assert len(steps._begins) < 8


class Pair:
    """The interface of a group of two that Messages uses."""

    members, position, label = (0, 1), 0, "pair"

    def place(self, rank: int) -> int:
        return rank


def at_once(call: Callable[[int], None]) -> None:
    """Runs call(0), call(1), ... on separate threads, which take turns at almost every step."""
    failures: list[BaseException] = []
    start = threading.Barrier(4)

    def tell(number: int) -> None:
        try:
            start.wait()
            call(number)
        except BaseException as failure:
            failures.append(failure)

    pause = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=tell, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(pause)
    assert not failures, failures


def check_messages_of_several_threads() -> None:
    """Each thread uses its own increasing tags."""
    pair: Any = Pair()
    messages, names = Messages(pair), list[str]()

    def take(_: Any, name: str) -> Any:
        names.append(name)

    def count(number: int) -> None:
        for tag in range(number, 8000, 4):
            messages.start(0, 1, tag, take)

    at_once(count)
    assert Counter(names) == Counter(f"c10d.pair.message0.from0.to1.tag{tag}" for tag in range(8000))

    def ring(number: int) -> None:
        for tag in range(number, 80, 4):
            sent, found = dist.isend(mine() + tag, NEXT, tag=tag), torch.zeros(3)
            assert sent is not None and dist.recv(found, BEFORE, tag=tag) == BEFORE
            assert equal(found, mine(rank=BEFORE) + tag) and sent.wait()

    at_once(ring)
    dist.barrier()


def check_batches() -> None:
    def batch(group: Any) -> list[torch.Tensor]:
        found = [torch.zeros(2) for _ in range(SIZE)]
        ops = [dist.P2POp(dist.irecv, found[rank], rank, group) for rank in range(SIZE) if rank != RANK]
        ops += [dist.P2POp(dist.isend, mine((2,)) + rank, rank, group) for rank in range(SIZE) if rank != RANK]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        return found

    both(batch, "batch")


def check_layouts_and_sizes() -> None:
    """Tensors that are not contiguous on both sides, an expanded value, and a large tensor."""
    found = torch.zeros(4, 6)
    work = dist.isend(torch.ones(1).expand(2, 2), NEXT)
    dist.recv(found.t()[::3, ::2].t(), BEFORE)
    assert work is not None and work.wait()
    assert found.sum() == 4
    large = torch.arange(1 << 20, dtype=torch.float32)
    other = torch.zeros_like(large)
    works = [dist.isend(large + RANK, NEXT), dist.irecv(other, BEFORE)]
    for work in works:
        assert work is not None
        work.get_future().wait()
    assert torch.equal(other, large + BEFORE)


def check_objects() -> None:
    text = {"from": RANK, "list": list(range(RANK))}
    if RANK % 2 == 0 and RANK + 1 < SIZE:
        dist.send_object_list([text, None], RANK + 1)
    if RANK % 2 == 1:
        found: list[Any] = [None, "not yet"]
        assert dist.recv_object_list(found, RANK - 1) == RANK - 1
        assert found == [{"from": RANK - 1, "list": list(range(RANK - 1))}, None]


def check_mismatches() -> None:
    """Both ranks raise an error that names the message. The next message arrives."""
    pairs = ((torch.zeros(3), torch.zeros(4), "shapes differ"), (torch.zeros(3), torch.zeros(3).int(), "types differ"))
    for tag, (sent, received, text) in enumerate(pairs, 7):
        if RANK < 2:
            with raises(RuntimeError, text, f"from0.to1.tag{tag}"):
                dist.send(sent, 1, tag=tag) if RANK == 0 else dist.recv(received, 0, tag=tag)
    if RANK == 0:
        dist.send(mine(), 1, tag=7)
    if RANK == 1:
        dist.recv(received := torch.zeros(3), 0, tag=7)
        assert equal(received, mine(rank=0))


def check_what_is_refused() -> None:
    with raises(NotImplementedError, "any source", "gloo"):
        dist.recv(torch.zeros(1))
    with raises(ValueError):
        dist.send(torch.zeros(1), RANK)
    with raises(ValueError, f"rank {RANK} cannot send to itself"):
        dist.isend(torch.zeros(1), RANK)
    if RANK == 0:
        with raises(ValueError, "layout"):
            dist.send(torch.eye(2).to_sparse(), 1)
    for place in (-1, SIZE):
        with raises(ValueError, f"has no rank {place}."):
            dist.group.WORLD.send([torch.zeros(1)], place)
        with raises(ValueError, f"has no rank {place}."):
            dist.group.WORLD.recv([torch.zeros(1)], place)
    dist.barrier()


def check_limits() -> None:
    short = dist.new_group(timeout=timedelta(seconds=4 if RANK == 0 else 60))
    if RANK == 0:
        work = dist.irecv(found := torch.zeros(3), 1, group=short, tag=3)
        assert work is not None
        with raises(distrun.errors.Timeout, "recv from rank 1 with tag 3", "4 seconds"):
            work.wait()
    dist.barrier()
    if RANK == 1:
        dist.send(mine(), 0, group=short, tag=3)
    if RANK == 0:  # the message of rank 1 may still be on its way
        wait_for(lambda: equal(found, mine(rank=1)), "the message that came too late")
    dist.barrier()
    dist.destroy_process_group(short)


def check_groups() -> None:
    """A message belongs to its group, even if groups share the sets of their ranks. Ranks are ranks of the group."""
    last = [SIZE - 2, SIZE - 1]
    groups = [dist.new_group(last), dist.new_group(list(range(SIZE))), dist.group.WORLD]
    if RANK in last:
        works = []
        for number, group in enumerate(groups):
            if last[1] == RANK:
                works.append(dist.isend(mine() + number, last[0], group=group))
        for number, group in reversed(list(enumerate(groups))):
            if last[0] == RANK:
                found = torch.zeros(3)
                dist.recv(found, last[1], group=group)
                assert equal(found, mine(rank=last[1]) + number)
        for work in works:
            assert work is not None
            work.wait()
        if last[1] == RANK:
            dist.send(mine(), group=groups[0], group_dst=0)
        else:
            dist.recv(found := torch.zeros(3), group=groups[0], group_src=1)
            assert equal(found, mine(rank=last[1]))
    for group in groups[:2]:
        if group is not dist.GroupMember.NON_GROUP_MEMBER:
            dist.destroy_process_group(group)


def check_the_set_of_a_destroyed_group_goes() -> None:
    before = len(distrun.process_sets.registered())
    for _ in range(3):
        group = dist.new_group(list(range(SIZE)))
        count = torch.ones(1)
        work = dist.all_reduce(count, group=group, async_op=True)
        assert work is not None
        if RANK == 0:
            work.wait()
            dist.destroy_process_group(group)  # the other ranks have not reached this point yet
            dist.barrier()
        else:
            dist.barrier()
            work.wait()
            dist.destroy_process_group(group)
        assert count.item() == SIZE
    assert len(distrun.process_sets.registered()) == before
    dist.barrier()


def check_split_group() -> None:
    """PyTorch before 2.15 requires an accelerator. The check then pretends to have one."""
    available, current = torch.accelerator.is_available, torch.accelerator.current_accelerator
    world: Any = dist.group.WORLD
    try:
        pair = dist.split_group(split_ranks=[[0, 1]])
    except RuntimeError as error:
        assert "No device associated" in str(error), error
    else:
        assert isinstance(pair, dist.ProcessGroup) == (RANK < 2)
        count_members(pair, 2)
    world.eager_connect_single_device(torch.device("cuda", 0))
    torch.accelerator.is_available, torch.accelerator.current_accelerator = lambda: True, lambda: torch.device("cuda")
    try:
        halves = [list(range(SIZE // 2)), list(range(SIZE // 2, SIZE))]
        half = dist.split_group(split_ranks=halves)
        some = dist.split_group(split_ranks=[[0]], group_desc="the first")
    finally:
        torch.accelerator.is_available, torch.accelerator.current_accelerator = available, current
        world.bound_device_id = None
    assert isinstance(some, dist.ProcessGroup) == (RANK == 0)
    assert half is not None and dist.get_process_group_ranks(half) == halves[RANK * 2 // SIZE]
    count_members(half, SIZE // 2)


def count_members(group: object, members: int) -> None:
    """Sums over a group of distrun, which is then destroyed. On ranks outside the group it does nothing."""
    if isinstance(group, dist.ProcessGroup):
        count = torch.ones(1)
        dist.all_reduce(count, group=group)
        assert count.item() == members and dist.get_backend(group) == "distrun"
        dist.destroy_process_group(group)


def check_pipeline() -> None:
    """torch.distributed.pipelining: a stage on each rank gets the same gradients as the whole model in one process."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    torch.manual_seed(5)
    layers = [nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(SIZE)]
    whole = copy.deepcopy(nn.Sequential(*layers))
    x, y = torch.rand(16, 8), torch.rand(16, 8)
    stage = PipelineStage(layers[RANK], RANK, SIZE, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
    last = RANK == SIZE - 1
    result = schedule.step(*([x] if RANK == 0 else []), **({"target": y} if last else {}))
    expected = whole(x)
    nn.functional.mse_loss(expected, y).backward()
    assert not last or torch.allclose(result, expected)
    for mine_one, its in zip(layers[RANK].parameters(), whole[RANK].parameters(), strict=True):
        torch.testing.assert_close(mine_one.grad, its.grad)


run(globals())
dist.destroy_process_group()
