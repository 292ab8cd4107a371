"""distrun._horovod: the operations of a fake front end, whose tensors are strings."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import distrun
import distrun.numpy as hvd
from distrun import _horovod, errors
from distrun._abi import Kind, ReduceOp
from distrun._collectives import Call
from distrun._horovod import NAMES, Operations, Request, public
from distrun.process_sets import ProcessSet, global_process_set

UNREGISTERED = ProcessSet([0])


class Recorder:
    """Replaces Collectives. Records the started operations. Their outputs are the tensors in upper case."""

    def __init__(self) -> None:
        self.adapter = SimpleNamespace(given=lambda value: f"<{value}>")
        self.calls: list[tuple[Call, list[str], bool]] = []

    def start(self, what: Call, tensors: Sequence[str], process_set: ProcessSet, *, in_place: bool = False) -> Any:
        assert process_set is global_process_set
        self.calls.append((what, list(tensors), in_place))
        outputs = [tensor.upper() for tensor in tensors]
        return SimpleNamespace(wait=lambda: outputs[0] if what.single else outputs)

    def alltoall(self, tensor: str, splits: tuple[int, ...] | None, what: Call) -> Any:
        self.calls.append((what, [tensor], False))
        return SimpleNamespace(wait=lambda: (tensor.upper(), splits))


class Stars:
    """A compressor."""

    @staticmethod
    def compress(tensor: str) -> tuple[str, str]:
        return f"*{tensor}", tensor

    @staticmethod
    def decompress(tensor: str, ctx: str) -> str:
        return f"{tensor} was {ctx}"


@pytest.fixture(scope="module", autouse=True)
def job() -> Iterator[None]:
    distrun.init()
    yield
    distrun.shutdown()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def words(recorder: Recorder) -> Operations[Any, str]:
    collectives: Any = recorder
    return Operations[Any, str](collectives, __name__, noun="word", given="object", tensor="str")


def ask(name: str | None = "n", **options: Any) -> Request:
    return Request(name, global_process_set, **options)


def test_every_operation_has_a_public_name() -> None:
    methods = {name for name in vars(Operations) if not name.startswith("_")} - {"begin", "run"}
    functions = {"barrier", "join", "poll", "synchronize"}
    assert sorted(methods | functions) == NAMES


@pytest.mark.parametrize("name", ["allreduce", "allgather", "broadcast", "reducescatter"])
def test_forms_of_one_tensor(words: Operations[Any, str], recorder: Recorder, name: str) -> None:
    assert getattr(words, name)("a", ask()) == "<A>"
    assert getattr(words, f"{name}_async")("b", ask()).wait() == "<B>"
    kind = Kind[name.upper()]
    assert [(what.kind, what.names, what.group) for what, *_ in recorder.calls] == [(kind, (f"{name}.n",), -1)] * 2
    assert [rest for _, *rest in recorder.calls] == [[["<a>"], False], [["<b>"], False]]


@pytest.mark.parametrize("name", ["allreduce", "allgather", "reducescatter"])
def test_grouped_forms(words: Operations[Any, str], recorder: Recorder, name: str) -> None:
    assert getattr(words, f"grouped_{name}")(("a", "b"), ask()) == ["<A>", "<B>"]
    assert getattr(words, f"grouped_{name}_async")(("a", "b"), ask()).wait() == ["<A>", "<B>"]
    assert getattr(words, f"grouped_{name}")([], ask()) == []
    named = [f"{name}.n_1of2", f"{name}.n_2of2"]
    assert [(what.names, what.group) for what, *_ in recorder.calls] == [(named, 0), (named, 0), ([], 0)]


@pytest.mark.parametrize("name", ["allreduce", "broadcast"])
def test_forms_that_overwrite_get_the_tensor_itself(words: Operations[Any, str], recorder: Recorder, name: str) -> None:
    assert getattr(words, f"{name}_")("a", ask()) == "A"
    assert getattr(words, f"{name}_async_")("b", ask()).wait() == "B"
    assert [rest for _, *rest in recorder.calls] == [[["a"], True], [["b"], True]]


def test_grouped_forms_that_overwrite(words: Operations[Any, str], recorder: Recorder) -> None:
    assert words.grouped_allreduce_(("a", "b"), ask()) == ["A", "B"]
    assert words.grouped_allreduce_async_(("a", "b"), ask()).wait() == ["A", "B"]
    assert [rest for _, *rest in recorder.calls] == [[["a", "b"], True]] * 2


@pytest.mark.parametrize("name", ["allreduce", "reducescatter"])
def test_compression(words: Operations[Any, str], name: str) -> None:
    compression: Any = Stars
    assert getattr(words, name)("a", ask(compression=compression)) == "*<A> was <a>"
    grouped = getattr(words, f"grouped_{name}")(["a", "b"], ask(compression=compression))
    assert grouped == ["*<A> was <a>", "*<B> was <b>"]


def test_alltoall(words: Operations[Any, str], recorder: Recorder) -> None:
    assert words.alltoall("a", ask(splits=[2, 1])) == ("<A>", (2, 1))
    assert words.alltoall_async("a", ask()).wait() == ("<A>", None)
    with pytest.raises(ValueError, match="splits must be whole numbers"):
        words.alltoall("a", ask(splits=[0.5]))
    assert [what.kind for what, *_ in recorder.calls] == [Kind.ALLTOALL] * 2


def test_options_reach_the_call(words: Operations[Any, str], recorder: Recorder) -> None:
    words.allreduce("a", ask(op=ReduceOp.MAX, prescale=2.0, postscale=3.0))
    words.broadcast("a", ask(root=5))
    (reduced, *_), (sent, *_) = recorder.calls
    assert (reduced.reduce, reduced.prescale, reduced.postscale) == (ReduceOp.MAX, 2.0, 3.0)
    assert (sent.root, sent.prescale) == (5, 1.0)


def test_what_is_refused_is_not_started(words: Operations[Any, str], recorder: Recorder) -> None:
    with pytest.raises(ValueError, match="op must be"):
        words.allreduce("a", ask(op=17))
    with pytest.raises(ValueError, match="not registered"):
        words.allgather("a", Request("n", UNREGISTERED))
    with pytest.raises(TypeError, match="name must be a str"):
        words.broadcast_("a", Request(5, global_process_set))  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgument, match="at most 4096"):
        words.grouped_allreduce(["a"] * 4097, ask())
    assert recorder.calls == []


def test_unnamed_operations_are_counted(words: Operations[Any, str], recorder: Recorder) -> None:
    for _ in range(2):
        words.allgather("a", ask(None))
        words.grouped_allgather(["a"], ask(None))
    names = [name for what, *_ in recorder.calls for name in what.names]
    assert [name.rpartition("noname.")[2] for name in names] == ["0", "group0_1of1", "1", "group1_1of1"]


def shuffled_options(root_rank: int, priority: int = 0, name: str | None = None) -> Request:
    return Request(name, global_process_set, root=root_rank + priority)


def test_a_public_function(words: Operations[Any, str], recorder: Recorder) -> None:
    broadcast_ = public(words.broadcast_, shuffled_options)
    assert str(inspect.signature(broadcast_)) == (
        "(tensor: 'str', root_rank: 'int', priority: 'int' = 0, name: 'str | None' = None) -> 'str'"
    )
    assert (broadcast_.__name__, broadcast_.__module__) == ("broadcast_", __name__)
    assert broadcast_.__doc__ == "Like broadcast, but overwrites the word."
    assert broadcast_("a", 1, 2, name="x") == "A"
    assert recorder.calls[0][0].root == 3
    with pytest.raises(TypeError, match=r"^broadcast_\(\) got an unexpected keyword argument 'foo'"):
        broadcast_("a", 1, foo=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^broadcast_\(\) missing 1 required positional argument: 'root_rank'"):
        broadcast_("a")  # type: ignore[call-arg]


def test_tensors_by_keyword(words: Operations[Any, str]) -> None:
    one: Any = public(words.allgather, _horovod.name_options)
    several: Any = public(words.grouped_allgather, _horovod.name_options)
    assert one(tensor="a", name="x") == "<A>" and several(tensors=["a"], name="y") == ["<A>"]
    assert str(inspect.signature(several)).startswith("(tensors: 'Sequence[object]', name")


@pytest.mark.parametrize("name", ["allreduce", "allreduce_", "allreduce_async"])
def test_a_warning_is_about_the_programs_line(words: Operations[Any, str], name: str) -> None:
    reduce: Any = public(getattr(words, name), _horovod.reduction_options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        reduce("a", average=True)
    assert [(one.category, one.filename) for one in caught] == [(DeprecationWarning, __file__)]


def test_memory_is_in_flight_until_the_program_has_seen_the_end() -> None:
    """Also that of the first operation of a session, which is complete while another one is submitted."""
    distrun.shutdown()
    distrun.init()
    written = np.ones(4)
    handle = hvd.allreduce_async_(written, op=hvd.Sum, name="first")
    hvd.allreduce(np.ones(1), name="another")
    hvd.allreduce(np.ones(1), name="another")
    with pytest.raises(errors.InvalidArgument, match=r"overlaps that of tensor 'allreduce.first', which is in flight"):
        hvd.allreduce_async_(written[2:], op=hvd.Sum, name="second")
    hvd.synchronize(handle)
    hvd.allreduce_(written[2:], op=hvd.Sum, name="second")
