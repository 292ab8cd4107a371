"""Arguments of wrong types are refused with their name and value, before anything is submitted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import distrun.numpy
import distrun.torch as hvd
from distrun import _arguments


@pytest.fixture
def world() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


FRONTS = pytest.mark.parametrize("front", [hvd, distrun.numpy], ids=["torch", "numpy"])


def ones(front: Any) -> Any:
    return torch.ones(2) if front is hvd else np.ones(2)


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ([], TypeError, r"settings must be a dict .*, not \[\]"),
        (["fusion_threshold=1"], TypeError, r"settings must be a dict .*, not \['fusion"),
        ("fusion_threshold=1", TypeError, "settings must be a dict .*, not 'fusion"),
        ({5: 1}, TypeError, "a name must be a str.*, not 5"),
        ({"fusion_threshold": None}, TypeError, "'fusion_threshold' .*, not None; leave the setting out"),
        ({"fusion_threshold": [1]}, TypeError, r"'fusion_threshold' .*, not \[1\]"),
        ({"fusion_threshold": b"1"}, TypeError, "'fusion_threshold' .*, not b'1'"),
        ({"fusion_threshold": "12345\0MiB"}, ValueError, "NUL character: 'fusion_threshold'"),
    ],
)
def test_settings_of_a_wrong_type(given: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        hvd.init(settings=given)
    assert not hvd.is_initialized()


@pytest.mark.parametrize("value", [12345, "12345", np.int64(12345), np.array(12345)])
def test_settings_of_a_right_type(value: Any) -> None:
    hvd.init(settings={"fusion_threshold": value})
    assert "12345" in hvd.query("settings")
    hvd.shutdown()


WRONG_NUMBERS = [
    *((value, TypeError) for value in ("2", b"2", None, 1j, np.complex64(2), np.ones(2), torch.ones(2), [1.0])),
    pytest.param(10**400, ValueError, id="beyond_float64"),
    pytest.param(10**5000, ValueError, id="not_shown"),
]


@FRONTS
@pytest.mark.parametrize(("value", "kind"), WRONG_NUMBERS)
@pytest.mark.parametrize("argument", ["prescale_factor", "postscale_factor"])
def test_factors_of_a_wrong_type(world: None, front: Any, argument: str, value: Any, kind: type[Exception]) -> None:
    shown = "one of type int that cannot" if isinstance(value, int) and value > 10**400 else ".*"
    for call, given in (
        (front.allreduce, ones(front)),
        (front.grouped_allreduce, [ones(front)]),
        (front.allreduce_, ones(front)),
        (front.reducescatter, ones(front)),
    ):
        with pytest.raises(kind, match=f"^{argument} must be .* number.*, not {shown}"):
            call(given, op=front.Sum, **{argument: value})


def test_what_has_several_lines_is_shown_in_one(world: None) -> None:
    with pytest.raises(TypeError) as caught:
        hvd.allreduce(torch.ones(2), prescale_factor=np.ones((2, 2)))
    assert str(caught.value) == "prescale_factor must be one number, not array([[1., 1.], [1., 1.]])."


@FRONTS
@pytest.mark.parametrize(
    "value", [2, 2.0, np.float32(2), np.int8(2), np.array(2.0), torch.tensor(2), torch.tensor(2.0)]
)
def test_scalars_of_every_kind_are_factors(world: None, front: Any, value: Any) -> None:
    assert front.allreduce(ones(front), op=front.Sum, prescale_factor=value).tolist() == [2, 2]
    assert front.reducescatter(ones(front), op=front.Sum, postscale_factor=value).tolist() == [2, 2]


def test_a_factor_in_a_compiled_program(world: None) -> None:
    @torch.compile(backend="eager")
    def scaled(value: torch.Tensor, factor: Any) -> torch.Tensor:
        return hvd.allreduce(value, op=hvd.Sum, postscale_factor=factor)

    with pytest.raises(TypeError, match="postscale_factor must be one number, not '2'"):
        scaled(torch.ones(2), "2")
    assert scaled(torch.ones(2), 2).tolist() == [2, 2]


@pytest.mark.parametrize(
    ("value", "kind"), [*WRONG_NUMBERS, *((value, ValueError) for value in (0, 0.0, float("nan"), float("inf")))]
)
def test_a_predivide_factor_of_a_wrong_type(world: None, value: Any, kind: type[Exception]) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    with pytest.raises(kind, match=r"^gradient_predivide_factor"):
        hvd.DistributedOptimizer(optimizer, gradient_predivide_factor=value)


@FRONTS
@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        (5, TypeError, "name must be a str.*, not 5"),
        (b"five", TypeError, "name must be a str.*, not b'five'"),
        (hvd.Sum, TypeError, "name must be a str.*, not <ReduceOp"),
        ("a\0b", ValueError, r"name must not contain a NUL character: 'a\\x00b'"),
        ("\udc80", ValueError, r"name must be text that UTF-8 can encode: '\\udc80'"),
        ("a\nb", ValueError, r"name must be one line of text: 'a\\nb'"),
        ("a\r", ValueError, r"name must be one line of text: 'a\\r'"),
    ],
)
def test_names_of_a_wrong_type(world: None, front: Any, name: Any, kind: type[Exception], text: str) -> None:
    one, none = ones(front), list[Any]()
    for call in (
        *(front.allreduce, front.allreduce_, front.allgather, front.alltoall, front.reducescatter),
        *(front.broadcast_object, front.allgather_object),
    ):
        with pytest.raises(kind, match=text):
            call(one, name=name)
    for call in (front.broadcast, front.broadcast_):
        with pytest.raises(kind, match=text):
            call(one, 0, name=name)
    for call in (front.grouped_allreduce, front.grouped_allgather, front.grouped_reducescatter):
        for group in ([one], none):
            with pytest.raises(kind, match=text):
                call(group, name=name)
    if front is hvd:
        with pytest.raises(kind, match=text):
            hvd.sparse_allreduce_async(torch.eye(2).to_sparse(), name, hvd.Sum)
    assert front.allreduce(one, name="five", op=front.Sum).tolist() == [1, 1]


@FRONTS
@pytest.mark.parametrize(
    ("root", "kind"), [("0", TypeError), (0.0, TypeError), (None, TypeError), (1 << 32, ValueError)]
)
def test_roots_of_objects(world: None, front: Any, root: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"^root_rank must be .*, not "):
        front.broadcast_object({}, root)


@FRONTS
@pytest.mark.parametrize("root", ["0", 0.0, None, [0]])
def test_roots_of_a_wrong_type(world: None, front: Any, root: Any) -> None:
    one = ones(front)
    for call in (
        lambda: front.broadcast(one, root),
        lambda: front.broadcast_(one, root),
        lambda: front.broadcast_object(1, root),
        lambda: front.broadcast_parameters({"one": one}, root),
    ):
        with pytest.raises(TypeError, match=r"^root_rank must be .* not "):
            call()
    assert front.broadcast(one, np.int64(0)).tolist() == [1, 1]


def test_a_name_of_a_wrong_type_in_a_compiled_program(world: None) -> None:
    @torch.compile(backend="eager")
    def named(value: torch.Tensor, name: Any) -> torch.Tensor:
        return hvd.allreduce(value, name=name)

    with pytest.raises(TypeError, match=r"name must be a str.*, not 5"):
        named(torch.ones(2), 5)
    assert named(torch.ones(2), "five").tolist() == [1, 1]


@FRONTS
def test_a_group_that_is_too_large(world: None, front: Any) -> None:
    one = ones(front)
    for call in (
        *(front.grouped_allreduce, front.grouped_allreduce_async, front.grouped_allreduce_async_),
        *(front.grouped_allgather, front.grouped_reducescatter),
    ):
        with pytest.raises(hvd.InvalidArgument, match=r"the grouped \w+ 'many' has 4097 tensors.*Make several groups"):
            call([one] * 4097, name="many")
        with pytest.raises(ValueError, match=r"the grouped \w+ 'without a name' has 4097 tensors"):
            call([one] * 4097)
    assert len(front.grouped_allreduce([one] * 4096, op=front.Sum)) == 4096


def test_a_group_of_an_optimizer_that_is_too_large(world: None) -> None:
    params = [torch.nn.Parameter(torch.ones(1)) for _ in range(4098)]
    for groups, text in (
        (1, "the first of groups=1 has 4098 tensors"),
        ([params[:1], params[1:]], r"groups\[1\] has 4097"),
    ):
        with pytest.raises(hvd.InvalidArgument, match=text):
            hvd.DistributedOptimizer(torch.optim.SGD(params, lr=0.1), groups=groups)
    hvd.DistributedOptimizer(torch.optim.SGD(params, lr=0.1), groups=2)


def test_numbers_of_groups_as_programs_have_them(world: None) -> None:
    params = [torch.nn.Parameter(torch.ones(1)) for _ in range(4)]
    for options in ({"groups": np.int64(2)}, {"num_groups": np.int32(2)}, {"num_groups": None}):
        hvd.DistributedOptimizer(torch.optim.SGD(params, lr=0.1), **options)


@FRONTS
@pytest.mark.parametrize("wrong", [1, "x", [0], None])
def test_what_is_no_process_set(world: None, front: Any, wrong: Any) -> None:
    cure = "from add_process_set"
    one = ones(front)
    for call in (front.allreduce, front.allreduce_, front.allgather, front.alltoall, front.reducescatter):
        with pytest.raises(TypeError, match=cure):
            call(one, process_set=wrong)
    for call in (front.grouped_allreduce, front.grouped_allgather, front.grouped_reducescatter):
        with pytest.raises(TypeError, match=cure):
            call([], process_set=wrong)
    for call in (front.broadcast, front.broadcast_, front.broadcast_object):
        with pytest.raises(TypeError, match=cure):
            call(one, 0, process_set=wrong)
    for call in (front.barrier, front.join, front.remove_process_set):
        with pytest.raises(TypeError, match=cure):
            call(process_set=wrong)
    with pytest.raises(TypeError, match=cure):
        front.allgather_object(1, process_set=wrong)


@pytest.mark.parametrize("wrong", [1, "x", [0], None])
def test_what_is_no_process_set_where_it_is_kept(world: None, wrong: Any) -> None:
    layer = torch.nn.Linear(2, 2)
    for make in (
        lambda: hvd.DistributedOptimizer(torch.optim.SGD(layer.parameters(), lr=0.1), process_set=wrong),
        lambda: hvd.SyncBatchNorm(2, process_set=wrong),
        lambda: hvd.SyncBatchNorm.convert_sync_batchnorm(torch.nn.BatchNorm1d(2), wrong),
        lambda: hvd.periodic_average(layer, 2, process_set=wrong),
        lambda: hvd.DistributedSampler([1, 2], process_set=wrong),
        lambda: hvd.sparse_allreduce_async(torch.eye(2).to_sparse(), "sparse", hvd.Sum, wrong),
    ):
        with pytest.raises(TypeError, match="from add_process_set"):
            make()


def test_queries_without_a_session() -> None:
    assert hvd.query("why", json=True) == [] and hvd.query("why") == ""
    with pytest.raises(hvd.InvalidArgument, match="name of a question as text, not None"):
        hvd.query(None)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("shape", "strides", "size", "overlap"),
    [
        ((3, 4), (4, 1), 1, False),
        ((), (), 1, False),
        ((0, 3), (0, 0), 1, False),
        ((1, 5), (0, 1), 1, False),  # a dimension of one has no second element
        ((3, 4), (0, 1), 1, True),
        ((4, 3), (1, 1), 1, True),  # windows
        ((4, 3), (8, 8), 8, True),
        ((4,), (-8,), 8, False),
        ((4,), (4,), 8, True),
        ((2, 3), (3, 2), 1, False),  # interleaved, each place once
        ((2, 3), (4, 2), 1, True),
        ((2, 1 << 20), (1, 1), 8, True),
        ((1 << 20, 2), (4, 6), 1, False),  # too many to compare
    ],
)
def test_elements_that_share_memory(shape: Any, strides: Any, size: int, overlap: bool) -> None:
    assert _arguments.elements_overlap(shape, strides, size) == overlap
