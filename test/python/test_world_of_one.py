"""A world of one rank in this process: everything that needs no second rank."""

from __future__ import annotations

import copy
import ctypes
import json
import pickle
import platform
import re
import runpy
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import distrun
import distrun.numpy
import distrun.torch as hvd
from distrun import _abi, _blocking, _hooks, _operations, _session, errors
from distrun._library import library
from distrun.torch import _reducer


@pytest.fixture
def world() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


def test_life_of_a_session() -> None:
    assert not hvd.is_initialized()
    with pytest.raises(hvd.NotInitialized, match="init"):
        hvd.rank()
    with pytest.raises(hvd.NotInitialized, match="init"):
        hvd.allreduce(torch.ones(1))
    with pytest.raises(ValueError, match="init"):  # as in Horovod
        hvd.size()
    hvd.init(comm=[], process_sets="dynamic")
    hvd.init()
    assert hvd.is_initialized() and (hvd.rank(), hvd.size(), hvd.cross_size()) == (0, 1, 1)
    hvd.shutdown()
    hvd.shutdown()
    assert not hvd.is_initialized() and hvd.global_process_set.ranks is None


def test_one_of_several_tasks_of_a_platform_is_no_world_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SM_HOSTS", '["algo-1", "algo-2"]')
    with pytest.raises(distrun.InvalidArgument, match=r"SM_HOSTS names 2 tasks.*unset SM_HOSTS"):
        hvd.init()
    monkeypatch.setenv("SM_HOSTS", '["algo-1"]')
    hvd.init()
    assert hvd.size() == 1
    hvd.shutdown()


def test_what_waits_where_no_thread_can_start(world: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in a function of atexit with Python 3.12."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    hvd.start_timeline(str(tmp_path / "timeline.json"))
    monkeypatch.setattr(threading.Thread, "start", refuse)
    hvd.stop_timeline()
    monkeypatch.undo()
    assert json.loads((tmp_path / "timeline.json").read_text())


class _Extension(_session.Extension):
    def __init__(self, fails: bool = False, drains: bool = True) -> None:
        self.calls: list[str] = []
        self.fails = fails
        self.drains = drains

    def attach(self, session: int) -> None:
        assert session
        self.calls.append("attach")
        if self.fails:
            raise RuntimeError("no room")

    def detach(self) -> bool:
        self.calls.append("detach")
        return self.drains


def test_an_extension_has_the_session_while_it_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_session, "_extensions", [])
    early, late, failing = _Extension(), _Extension(), _Extension(fails=True)
    _session.extend(early)
    hvd.init()
    _session.extend(late)
    _session.extend(late)
    assert (early.calls, late.calls) == (["attach"], ["attach"])
    hvd.shutdown()
    assert (early.calls, late.calls) == (["attach", "detach"], ["attach", "detach"])
    _session.extend(failing)
    with pytest.raises(RuntimeError, match="no room"):
        hvd.init()
    assert not hvd.is_initialized()
    _session._extensions.remove(failing)
    hvd.init()
    hvd.shutdown()


def test_a_session_that_an_extension_still_uses_is_not_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []
    stuck, other = _Extension(drains=False), _Extension()
    monkeypatch.setattr(_session, "_extensions", [stuck, other])
    hvd.init()
    pointer, close = _session.current().pointer, library().distrun_close
    monkeypatch.setattr(library(), "distrun_close", closed.append)
    hvd.shutdown()
    close(pointer)
    assert not closed and not hvd.is_initialized()
    assert stuck.calls == other.calls == ["attach", "detach"]


def test_one_session_in_a_process(world: None) -> None:
    pointer = ctypes.c_void_p()
    assert library().distrun_init(None, ctypes.byref(pointer)) == _abi.Code.INVALID_ARGUMENT
    assert "this process has a session already. Use it (distrun_current)" in str(errors.last_error())
    assert pointer.value is None
    current = library().distrun_current  # for C libraries
    current.restype = ctypes.c_void_p
    assert current() == _session.current().pointer


def test_an_absurd_count_is_the_callers_mistake(world: None) -> None:
    op = _abi.OpStruct(struct_size=ctypes.sizeof(_abi.OpStruct))
    handles = (ctypes.c_void_p * 1)()
    session = _session.current().pointer
    assert library().distrun_enqueue(session, ctypes.byref(op), 1 << 60, handles) == _abi.Code.INVALID_ARGUMENT
    assert "one call takes at most" in str(errors.last_error())
    assert library().distrun_wait_all(handles, 1 << 60, 0.0, None) == _abi.Code.INVALID_ARGUMENT


def test_a_backend_for_several_ranks_does_not_keep_one_from_running() -> None:
    hvd.init(settings={"backend": "shm"})
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 1
    hvd.shutdown()
    with pytest.raises(hvd.DistrunError, match=r"There is no backend foo\. Choose .*\bself\b.*DISTRUN_BACKEND"):
        hvd.init(settings={"backend": "foo"})


@pytest.mark.parametrize("front", [hvd, distrun.numpy])
def test_a_reduction_in_averages_place_is_refused(world: None, front: Any) -> None:
    value = torch.ones(1) if front is hvd else np.ones(1)
    with pytest.raises(TypeError, match=r"op=hvd.Max"):
        front.allreduce(value, front.Max)
    with pytest.raises(TypeError, match=r"op=hvd.Max"):
        front.grouped_allreduce([value], front.Max)
    with pytest.warns(DeprecationWarning):
        front.allreduce(value, True)


@pytest.mark.parametrize("front", [hvd, distrun.numpy])
def test_what_is_no_handle_is_refused(world: None, front: Any) -> None:
    for call in (front.synchronize, front.poll):
        with pytest.raises(TypeError, match=r"handle that an ..._async call returned, not 7"):
            call(7)


def test_settings_reach_the_runtime() -> None:
    hvd.init(settings={"fusion_threshold": 12345})
    assert "12345" in hvd.query("settings")
    hvd.shutdown()
    with pytest.raises(hvd.DistrunError, match="fusion_threshold"):
        hvd.init(settings={"fusion_threshold": "much"})
    assert not hvd.is_initialized()


class Communicator:
    """The methods that mpi4py's communicator has."""

    def __init__(self, rank: int, size: int) -> None:
        self.Get_rank, self.Get_size = (lambda: rank), (lambda: size)


def test_arguments_of_init() -> None:
    with pytest.raises(NotImplementedError, match="mpi4py"):
        hvd.init(comm=object())
    hvd.init(comm=Communicator(0, 1))
    hvd.shutdown()
    with pytest.raises(NotImplementedError, match=r"comm has \(0, 2\) and this is rank 0 of 1.*add_process_set"):
        hvd.init(comm=Communicator(0, 2))
    with pytest.raises(NotImplementedError, match="process set"):
        hvd.init(comm=[1])
    for wrong in ("static", [[0]], [0], hvd.ProcessSet):
        with pytest.raises(ValueError, match=r"\[hvd.ProcessSet\(\[0, 1\]\)\], or \"dynamic\", not"):
            hvd.init(process_sets=wrong)
        assert not hvd.is_initialized()


def test_process_sets(world: None) -> None:
    assert hvd.global_process_set.ranks == [0] and hvd.global_process_set.included()
    with pytest.raises(ValueError, match="same ranks"):
        hvd.add_process_set([0])
    with pytest.raises(ValueError, match="integers"):
        hvd.ProcessSet(["a"])
    with pytest.raises(ValueError, match="at least one"):
        hvd.add_process_set([])
    loose = hvd.ProcessSet([0])
    assert loose.size() is None and loose.rank() is None and "ranks=[0]" in str(loose)
    with pytest.raises(ValueError, match="not registered"):
        hvd.barrier(process_set=loose)
    for call in (hvd.barrier, hvd.remove_process_set):
        with pytest.raises(TypeError, match=r"from add_process_set.* not None"):
            call(process_set=None)


def test_unnamed_operations_are_numbered_per_operation_and_set(world: None) -> None:
    session = _session.current()
    assert [session.number("allreduce", 0), session.number("allgather", 0), session.number("allreduce", 0)] == [0, 0, 1]
    assert session.number("allreduce", 7) == 0
    session.forget_numbers(7)
    assert (session.number("allreduce", 7), session.number("allreduce", 0)) == (0, 2)


def test_both_ways_to_say_the_operation(world: None) -> None:
    tensor = torch.ones(2)
    with pytest.warns(DeprecationWarning, match="average"):
        assert torch.equal(hvd.allreduce(tensor, average=False), tensor)
    with pytest.raises(ValueError, match="either"):
        hvd.allreduce(tensor, average=True, op=hvd.Sum)
    with pytest.raises(ValueError, match="op must be"):
        hvd.allreduce(tensor, op=17)


def test_handles_let_their_tensors_go(world: None) -> None:
    session = _session.current()
    handle = hvd.allreduce_async_(torch.ones(4))
    handle.wait()
    assert handle._keep is None and not session.in_flight
    assert handle.wait() is handle.wait()
    # Forgotten handles are kept while in flight. A later call finds them after they are complete.
    for _ in range(100):
        hvd.allreduce_async(torch.ones(4))
    hvd.barrier()
    while not all(kept.poll() for kept in list(session.in_flight.values())):
        time.sleep(0.01)
    session.sweep_at = 1
    hvd.allreduce_async(torch.ones(4)).wait()
    assert len(session.in_flight) <= 1


def test_training_without_a_launcher_is_plain_training(world: None) -> None:
    def train(wrap: bool) -> torch.nn.Module:
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        if wrap:
            optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), backward_passes_per_step=2)
            hvd.broadcast_parameters(model.state_dict(), root_rank=0)
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(4, 3)).square().sum().backward()
            optimizer.step()
        return model

    for one, other in zip(train(True).parameters(), train(False).parameters(), strict=True):
        assert torch.equal(one, other)


def test_optimizer_arguments(world: None) -> None:
    model = torch.nn.Linear(3, 2)

    def wrap(named: Any = None, **options: Any) -> Any:
        return hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), named, **options)

    named = list(model.named_parameters())
    with pytest.raises(ValueError, match="tuples"):
        wrap(list(model.parameters()))
    with pytest.raises(ValueError, match="duplicates: weight"):
        wrap([*named, named[0]])
    with pytest.raises(ValueError, match="not named"):
        wrap(named[:1])
    with pytest.raises(ValueError, match="> 0"):
        wrap(backward_passes_per_step=0)
    with pytest.raises(ValueError, match="gradient_predivide_factor"):
        wrap(op=hvd.Sum, gradient_predivide_factor=2.0)
    for groups in (-1, "two", [1, 2]):
        with pytest.raises(ValueError, match="groups"):
            wrap(groups=groups)
    with pytest.raises(NotImplementedError, match="Average"):
        wrap(op=hvd.Adasum)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match="num_groups"):
            wrap(num_groups=-1)
    assert set(wrap()._parameter_names.values()) == {"noname.0.0", "noname.0.1"}


def test_wrapped_optimizer_shares_everything(world: None) -> None:
    model = torch.nn.Linear(2, 1)
    plain = torch.optim.Adam(model.parameters(), lr=0.5)
    torch.optim.lr_scheduler.StepLR(plain, 1)  # replaces the step method of the instance
    wrapped = hvd.DistributedOptimizer(plain)
    assert wrapped.param_groups is plain.param_groups and wrapped.state is plain.state
    assert isinstance(wrapped, torch.optim.Adam) and wrapped.defaults == plain.defaults
    model(torch.ones(1, 2)).sum().backward()
    wrapped.step()
    assert len(plain.state) == 2 and "lr: 0.5" in repr(wrapped)


def gradients_on_their_way(compression: type[Any]) -> tuple[_reducer.Reducer, list[torch.Tensor]]:
    """Gradients 3 and 5 of two parameters, and the reducer that sends them. In a world of one, an optimizer sends
    nothing."""
    options = _reducer.Options(compression, hvd.Sum, 1.0, 1, False, hvd.global_process_set, False)
    reducer = _reducer.Reducer(options, "own.")
    params = [torch.ones(1, requires_grad=True) for _ in range(2)]
    for number, param in enumerate(params):
        reducer.add(param, str(number), None)
    (3 * params[0] + 5 * params[1]).backward()
    return reducer, params


@pytest.mark.parametrize("during", ["compress", "decompress"])
def test_who_comes_back_to_an_optimizer_at_work_is_refused(world: None, during: str) -> None:
    class ComesBack(hvd.Compression.none):  # type: ignore[misc, name-defined]
        @staticmethod
        def compress(tensor: Any) -> tuple[Any, Any]:
            if during == "compress" and made:
                made[0].finish()
            return tensor, None

        @staticmethod
        def decompress(tensor: Any, context: Any) -> Any:
            if during == "decompress":
                made[0].finish()
            return tensor

    made: list[_reducer.Reducer] = []
    reducer, params = gradients_on_their_way(ComesBack)
    made.append(reducer)
    if during == "compress":
        reducer.finish()
        params[0].grad = None
    with pytest.raises(RuntimeError, match="Set a flag there"):
        params[0].square().sum().backward() if during == "compress" else reducer.finish()


def test_an_interrupted_step_goes_on_where_it_was(world: None) -> None:
    class Interrupted(hvd.Compression.none):  # type: ignore[misc, name-defined]
        @staticmethod
        def decompress(tensor: Any, context: Any) -> Any:
            written.append(tensor.item())
            if len(written) == 2:
                raise KeyError("a signal handler's")
            return tensor

    written: list[float] = []
    reducer, params = gradients_on_their_way(Interrupted)
    with pytest.raises(KeyError, match="a signal handler's"):
        reducer.finish()
    assert reducer.outstanding()
    reducer.finish()
    assert not reducer.outstanding() and [param.grad.item() for param in params if param.grad is not None] == [3, 5]
    assert sorted(written[:2]) == [3, 5] and written[2:] == written[1:2]


def test_what_failed_before_an_interruption_is_told_when_the_step_is_repeated(world: None) -> None:
    class Interrupted(hvd.Compression.none):  # type: ignore[misc, name-defined]
        @staticmethod
        def decompress(tensor: Any, context: Any) -> Any:
            seen.append(tensor.item())
            if len(seen) == 1:
                raise distrun.Mismatch("the first gradient differs")
            if len(seen) == 2:
                raise KeyError("a signal handler's")
            return tensor

    seen: list[float] = []
    reducer, _ = gradients_on_their_way(Interrupted)
    with pytest.raises(KeyError, match="a signal handler's"):
        reducer.finish()
    with pytest.raises(distrun.Mismatch, match="the first gradient differs"):
        reducer.finish()
    reducer.finish()


@pytest.mark.parametrize("sent", [True, False])
@pytest.mark.parametrize("exception", [KeyError, hvd.Timeout])
def test_gradients_whose_handing_over_is_interrupted_leave_once(
    world: None, monkeypatch: pytest.MonkeyPatch, exception: type[Exception], sent: bool
) -> None:
    real, calls = _operations.enqueue_array, []

    def enqueue_array(array: Any, count: int, keep: object, finish: Any, *ops: Any) -> Any:
        if count == 2:  # not the question before it
            calls.append(count)
        if calls != [2] or count != 2:
            return real(array, count, keep, finish, *ops)
        if sent:
            real(array, count, keep, finish, *ops)
        raise exception("a signal handler's")

    reducer, params = gradients_on_their_way(hvd.Compression.none)
    monkeypatch.setattr(_operations, "enqueue_array", enqueue_array)
    with pytest.raises(exception, match="a signal handler's"):
        reducer.finish()
    handed_over = list(reducer._flights)
    assert len(handed_over) == int(sent)
    reducer.finish()
    assert calls == ([2] if sent else [2, 2]) and not reducer.outstanding()
    assert [param.grad.item() for param in params if param.grad is not None] == [3, 5]
    assert all(handle._resolved for handle, _ in handed_over)


def test_who_shuts_down_while_gradients_are_handed_over_ends_as_he_wants(
    world: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = _operations.enqueue_array

    def enqueue_array(array: Any, count: int, keep: object, finish: Any, *ops: Any) -> Any:
        if count == 2:  # not the question before it
            hvd.shutdown()
            raise SystemExit(0)
        return real(array, count, keep, finish, *ops)

    reducer, _ = gradients_on_their_way(hvd.Compression.none)
    monkeypatch.setattr(_operations, "enqueue_array", enqueue_array)
    with pytest.raises(SystemExit):
        reducer.finish()


def test_parameters_that_are_unfrozen_are_all_taken_care_of_after_an_interruption(
    world: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    reducer, _ = gradients_on_their_way(hvd.Compression.none)
    frozen = [torch.zeros(1) for _ in range(2)]
    for index, param in enumerate(frozen):
        reducer.add(param, f"frozen.{index}", None)
        param.requires_grad_(True)
    with monkeypatch.context() as interrupted, pytest.raises(KeyError, match="a signal handler's"):

        def add(param: torch.Tensor, *rest: Any) -> None:
            if param is frozen[1]:
                raise KeyError("a signal handler's")
            _reducer.Reducer._add(reducer, param, *rest)

        interrupted.setattr(reducer, "_add", add)
        reducer.finish()
    reducer.finish()
    assert [slot.name for slot in reducer._slots[-2:]] == ["frozen.0", "frozen.1"] and not reducer._frozen


def test_the_question_of_layouts_is_asked_once_in_a_step_that_is_interrupted(
    world: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(list):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            if len(asks) == 1 and not seen:
                seen.append(1)
                raise KeyError("a signal handler's")
            return super().__iter__()

    asks: list[int] = []
    seen: list[int] = []
    reducer, _ = gradients_on_their_way(hvd.Compression.none)
    ask = reducer._ask_for_layouts

    def asked() -> Any:
        asks.append(1)
        question = ask()
        return question and (question[0], Interrupted(question[1]))

    monkeypatch.setattr(reducer, "_ask_for_layouts", asked)
    with pytest.raises(KeyError, match="a signal handler's"):
        reducer.finish()
    reducer.finish()
    assert len(asks) == 1


def test_a_set_whose_removal_was_interrupted_and_went_on_is_unregistered(
    world: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = hvd.add_process_set(hvd.ProcessSet([0]), members_only=True)

    def interrupted(function: Any, drop: Any) -> None:
        drop(function())
        raise KeyError("a signal handler's")

    with monkeypatch.context() as within, pytest.raises(KeyError, match="a signal handler's"):
        within.setattr(_blocking, "call", interrupted)
        hvd.remove_process_set(ours)
    assert ours.process_set_id is None
    hvd.add_process_set(ours, members_only=True)
    assert hvd.allreduce(torch.ones(1), process_set=ours).item() == 1 and hvd.remove_process_set(ours)


def test_parameters_in_every_form(world: None) -> None:
    model = torch.nn.Linear(2, 1)
    for params in (model.state_dict(), model.named_parameters(), list(model.parameters()), iter(model.parameters())):
        hvd.broadcast_parameters(params, root_rank=0)
    for wrong in (3, "text", {"a": 1.0}, [("a", None)], torch.ones(2)):
        with pytest.raises(ValueError, match=r"param|Tensor"):
            hvd.broadcast_parameters(wrong, root_rank=0)


def test_array_likes(world: None) -> None:
    assert float(distrun.numpy.allreduce(3.5)) == 3.5
    assert distrun.numpy.allgather([[1, 2]]).tolist() == [[1, 2]]
    with pytest.raises(ValueError, match="NumPy array"):
        distrun.numpy.allreduce_([1.0, 2.0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="are not supported"):
        distrun.numpy.allreduce("text")


def test_exceptions_survive_pickling_and_copying() -> None:
    error = distrun.RankLost("rank 1 is gone", ranks=[1], host="h", cause="killed", usable=False)
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is distrun.RankLost and str(other) == "rank 1 is gone"
        assert other.ranks == (1,) and other.host == "h" and not other.usable


def test_cause_of_an_uncaught_exception_is_one_line() -> None:
    try:
        raise ValueError("first line\nsecond line")
    except ValueError as error:
        text = _hooks.describe(type(error), error, error.__traceback__)
    assert text.startswith("ValueError: first line (test_world_of_one.py:") and "\n" not in text
    assert _hooks.describe(KeyboardInterrupt, KeyboardInterrupt(), None) == "KeyboardInterrupt"


def test_the_cause_names_the_line_of_a_program_that_runpy_runs(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("import json\n\njson.loads('{')\n")
    with pytest.raises(ValueError) as caught:
        runpy.run_path(str(program), run_name="__main__")
    assert _hooks.describe(caught.type, caught.value, caught.tb).endswith(" (train.py:3)")


def test_threads_that_never_submitted_are_known(world: None) -> None:
    seen: list[bool] = []
    hvd.allreduce(torch.ones(1))
    thread = threading.Thread(target=lambda: seen.append(_operations.this_thread_submitted()))
    thread.start()
    thread.join()
    assert seen == [False] and _operations.this_thread_submitted()


@pytest.mark.parametrize(
    ("said", "libc", "cure"),
    [
        (
            "/apps/gcc/10/lib64/libstdc++.so.6: version `GLIBCXX_3.4.29' not found",
            ("glibc", "2.36"),
            "GCC 11 or newer.*module unload",
        ),
        ("/lib64/libc.so.6: version `GLIBC_2.34' not found", ("glibc", "2.31"), "glibc 2.34.*has glibc 2.31"),
        ("/lib64/libc.so.6: version `GLIBC_2.38' not found", ("glibc", "2.36"), r"glibc 2\.38, .* has glibc 2.36"),
        ("Error loading shared library libstdc++.so.6", ("", ""), "glibc 2.34.*has another C library.*Alpine"),
        ("libsodium.so.23: cannot open shared object file", ("glibc", "2.36"), None),
    ],
)
def test_a_library_that_does_not_fit_the_machine_is_told_with_its_cure(
    monkeypatch: pytest.MonkeyPatch, said: str, libc: tuple[str, str], cure: str | None
) -> None:
    def refuse(_: str) -> ctypes.CDLL:
        raise OSError(said)

    monkeypatch.setattr(platform, "libc_ver", lambda: libc)
    monkeypatch.setattr(ctypes, "CDLL", refuse)
    with pytest.raises(ImportError if cure else OSError, match=re.escape(said) + (f".*{cure}" if cure else "$")):
        library.__wrapped__()


def test_queries(world: None) -> None:
    assert "self" in hvd.query("why") and "self" in hvd.query("backends")
    assert not hvd.mpi_enabled() and not hvd.gloo_enabled() and hvd.nccl_built() == 0
    assert hvd.ccl_built() is False and hvd.ddl_built() is False and hvd.mpi_threads_supported() is False
    assert distrun.__version__ == distrun.native_version() and np.all(
        np.array(distrun.__version__.split("."), int) >= 0
    )


def test_a_cuda_tensor_without_nccl_fails_with_the_reason(world: None) -> None:
    if hvd.nccl_built():
        pytest.skip("nccl is available here")
    # An installation may lack the plug-in, if nvcc was missing when it was built.
    why = "nccl: .*not" if re.search(r"(?m)^nccl: not available \((?!no plug-in)", hvd.query("backends")) else "gloo: "
    data = np.ones(3, np.float32)
    where = data.ctypes.data
    op = _operations.Op(_abi.Kind.ALLREDUCE, "on a gpu", _abi.DType.float32, data.shape, where, where, device_type=1)
    with pytest.raises(hvd.DistrunError, match=rf"No backend can move cuda tensors.*{why}.*distrun check --build"):
        _operations.enqueue([op], data, lambda _: None).wait()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 1
