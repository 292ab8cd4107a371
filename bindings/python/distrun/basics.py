"""What every front end offers under Horovod's names: starting, leaving, who am I, process sets, timeline, features."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from distrun import _blocking, _hooks, _operations, _session, _where, errors, process_sets
from distrun._abi import DType, Kind, ReduceOp
from distrun._library import library, native_version
from distrun._session import query
from distrun._stop import should_stop
from distrun.errors import (
    DistrunError,
    DuplicateName,
    HorovodInternalError,
    InvalidArgument,
    JobEnded,
    Mismatch,
    NotInitialized,
    RankLeft,
    RankLost,
    Timeout,
    Unsupported,
)
from distrun.features import (
    ccl_built,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    nccl_enabled,
    rocm_built,
    shm_enabled,
    sycl_built,
    tcp_enabled,
)
from distrun.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set

__all__ = [
    "Adasum",
    "Average",
    "DistrunError",
    "DuplicateName",
    "HorovodInternalError",
    "InvalidArgument",
    "JobEnded",
    "Max",
    "Min",
    "Mismatch",
    "NotInitialized",
    "ProcessSet",
    "Product",
    "RankLeft",
    "RankLost",
    "Sum",
    "Timeout",
    "Unsupported",
    "add_process_set",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "native_version",
    "nccl_built",
    "nccl_enabled",
    "query",
    "rank",
    "remove_process_set",
    "rocm_built",
    "shm_enabled",
    "should_stop",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
    "sycl_built",
    "tcp_enabled",
]

Average = ReduceOp.AVERAGE
Sum = ReduceOp.SUM
Adasum = ReduceOp.ADASUM
Min = ReduceOp.MIN
Max = ReduceOp.MAX
Product = ReduceOp.PRODUCT


_OF_ELASTIC = {
    "run", "run_fn", "init", "notification_manager", "State", "ObjectState", "TorchState", "TensorFlowState",
    "TensorFlowKerasState", "KerasState", "ElasticSampler", "CommitStateCallback", "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
}  # fmt: skip


class _Elastic:
    """Stands for Horovod's elastic module: every use of it says what to do instead."""

    def __getattr__(self, name: str) -> NoReturn:
        if name not in _OF_ELASTIC:  # pickle looks for its names in all modules
            raise AttributeError(f"hvd.elastic has no {name}")
        raise NotImplementedError(
            f"hvd.elastic.{name}: elastic training is not in this release; save checkpoints, catch hvd.RankLost, and "
            "start the job again from the last one. hvd.should_stop() tells all ranks in the same step to stop."
        )


elastic = _Elastic()


def init(
    comm: Any = None,
    process_sets: Sequence[ProcessSet] | str | None = None,
    *,
    settings: Mapping[str, object] | None = None,
) -> None:
    """Joins the job that the launcher describes, or makes a world of one; again: no effect.

    comm: None, the list of all ranks, or a communicator of mpi4py's that has all of them in the same order; a part of
    them is what process sets are for. process_sets: sets to register,
    the same ones on every rank ("dynamic" is accepted: sets can always be added later). settings: names and values as
    in docs/settings.md; they win over the environment.
    """
    place, sets = _place_in(comm), _sets_in(process_sets)
    if _session.open_session(settings):
        _where.install(_session.current().pointer)
        _hooks.install()
        _opened()
    if place not in (None, list(range(size())), (rank(), size())):
        own = f"rank {rank()} of {size()}"
        shutdown()
        raise NotImplementedError(
            f"init(comm=...) with a part of the ranks, or in another order, is not supported (comm has {place}, this "
            f"is {own}): leave out comm, and use process sets (hvd.add_process_set(ranks)) for parts of the job."
        )
    for process_set in sets:
        if process_set.process_set_id is None:
            add_process_set(process_set)


def _sets_in(process_sets: object) -> list[ProcessSet]:
    """Those to register. A list of ranks is refused: the program would have no set to pass to a call."""
    if process_sets in (None, "dynamic"):
        return []
    given = list(process_sets) if isinstance(process_sets, Iterable) else [process_sets]
    sets = [one for one in given if isinstance(one, ProcessSet)]
    if len(sets) != len(given):
        raise ValueError(
            f'process_sets is a list of ProcessSet, as in [hvd.ProcessSet([0, 1])], or "dynamic", not {process_sets!r}.'
        )
    return sets


def _place_in(comm: Any) -> list[int] | tuple[int, int] | None:
    """The ranks of a list; this rank and the number of ranks of a communicator; None for everybody."""
    if comm is None or isinstance(comm, list | tuple | range):
        return sorted(comm or ()) or None
    if not (hasattr(comm, "Get_rank") and hasattr(comm, "Get_size")):
        raise NotImplementedError(
            f"init(comm=...) takes a list of ranks or a communicator of mpi4py's, not {type(comm).__name__}."
        )
    return comm.Get_rank(), comm.Get_size()


def _opened() -> None:
    session = _session.current()
    world = session.world
    process_sets.opened(world.size)
    # With one host every rank skips this. The condition is the same on all ranks.
    if world.local_size != world.size:
        session.homogeneous = _all_equal(world.local_size)


def _all_equal(value: int) -> bool:
    pair = (ctypes.c_int32 * 2)(value, -value)
    address = ctypes.addressof(pair)
    operation = _operations.Op(
        kind=Kind.ALLREDUCE,
        name="distrun.homogeneous",
        dtype=DType.int32,
        shape=(2,),
        input=address,
        output=address,
        reduce=ReduceOp.MAX,
    )
    return _operations.enqueue([operation], pair, lambda _: pair[0] == -pair[1]).wait()


def shutdown() -> None:
    """Leaves the job: waits for the operations in flight and for the other ranks, at most shutdown_timeout. Before that
    for the programs that JAX has in front of it, however long they take, unless an exception other than that of
    sys.exit(0) is on its way out.

    Then a warning names the ranks that have not left, and it returns; on rank 0, which coordinates, when they have.
    Where something that this rank has submitted is in flight by then, it raises Timeout, and the job has ended.
    Happens by itself at the end of the program. init may be called again afterwards.
    """
    _hooks.leave()


def is_initialized() -> bool:
    """True between init and shutdown."""
    return _session.is_open()


def rank() -> int:
    """This process's number in the job, from 0."""
    return _session.world().rank


def size() -> int:
    """The number of processes in the job."""
    return _session.world().size


def local_rank() -> int:
    """This process's number among those on its host, from 0."""
    return _session.world().local_rank


def local_size() -> int:
    """The number of processes on this host."""
    return _session.world().local_size


def cross_rank() -> int:
    """The number of this host among those that have a process with this local rank, from 0."""
    return _session.world().cross_rank


def cross_size() -> int:
    """The number of hosts that have a process with this local rank."""
    return _session.world().cross_size


def is_homogeneous() -> bool:
    """True if every host has the same number of processes."""
    _session.world()
    return _session.current().homogeneous


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Writes a Chrome trace of all ranks to one file. Collective: every rank calls it with the same path.

    mark_cycles is accepted and has no effect: there are no cycles here.
    """
    session = _session.current()
    _blocking.call(lambda: _start_timeline(session, file_path.encode()))


def _start_timeline(session: _session.Session, path: bytes) -> None:
    with session.calling() as pointer:
        errors.check(library().distrun_timeline_start(pointer, path))


def stop_timeline() -> None:
    """Ends the trace, which is complete when this returns on rank 0; no effect if there is none."""
    session = _session.current()
    _blocking.call(lambda: _stop_timeline(session))


def _stop_timeline(session: _session.Session) -> None:
    with session.calling() as pointer:
        errors.check(library().distrun_timeline_stop(pointer))
