"""The functions that every front end offers under Horovod's names: start and end, ranks, process sets, timeline."""

from __future__ import annotations

import ctypes
import os
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
from distrun.process_sets import ProcessSet, add_all, add_process_set, global_process_set, remove_process_set

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
    """Stands for Horovod's elastic module. Every use of it raises an error that says what to do instead."""

    def __getattr__(self, name: str) -> NoReturn:
        if name not in _OF_ELASTIC:  # pickle looks for its names in all modules
            raise AttributeError(f"hvd.elastic has no {name}")
        raise NotImplementedError(
            f"hvd.elastic.{name}: this release has no elastic training. Save checkpoints, and start the job again "
            "from the last one after hvd.RankLost. hvd.should_stop() tells all ranks in the same step to stop."
        )


elastic = _Elastic()


def init(
    comm: Any = None,
    process_sets: Sequence[ProcessSet] | str | None = None,
    *,
    settings: Mapping[str, object] | None = None,
) -> None:
    """Joins the job that the launcher describes, or makes a job of one rank. A second call has no effect.

    Blocks until all ranks have called it, or start_timeout is over.

    comm: None, the list of all ranks, or an mpi4py communicator with all of them in the same order; for a part of the
    ranks use process sets. process_sets: sets to register, the same ones on every rank; none is registered if one of
    them cannot be. "dynamic" is accepted, because sets can always be added later. settings: names and values as in
    docs/reference/settings.md. They override the environment.

    NotImplementedError for another comm, ValueError or TypeError for wrong process_sets or settings, DistrunError if
    joining fails.
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
            f"init(comm=...) must have all ranks in their order, but comm has {place} and this is {own}. Leave out "
            "comm, and use a process set for some of the ranks: hvd.add_process_set(ranks)."
        )
    add_all(sets)


def _sets_in(process_sets: object) -> list[ProcessSet]:
    """Returns the sets to register. A list of ranks is refused: the program would have no set to pass to a call."""
    if process_sets in (None, "dynamic"):
        return []
    given = list(process_sets) if isinstance(process_sets, Iterable) else [process_sets]
    sets = [one for one in given if isinstance(one, ProcessSet)]
    if len(sets) != len(given):
        raise ValueError(
            'process_sets must be a list of ProcessSet, such as [hvd.ProcessSet([0, 1])], or "dynamic", not '
            f"{process_sets!r}."
        )
    return sets


def _place_in(comm: Any) -> list[int] | tuple[int, int] | None:
    """Returns the ranks of a list, or this rank and the size of a communicator; None for all ranks."""
    if comm is None or isinstance(comm, list | tuple | range):
        return sorted(comm or ()) or None
    if not (hasattr(comm, "Get_rank") and hasattr(comm, "Get_size")):
        raise NotImplementedError(
            f"init(comm=...) takes a list of ranks or a communicator of mpi4py, not {type(comm).__name__}."
        )
    return comm.Get_rank(), comm.Get_size()


def _opened() -> None:
    session = _session.current()
    world = session.world
    process_sets.opened(world.size)
    # On one host every rank skips this. The condition is the same on all ranks.
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
    """Leaves the job: waits for the operations in flight and for the other ranks, at most for shutdown_timeout.

    First it waits, without a limit, for the programs that JAX has queued. It skips this if the process ends by an
    exception other than sys.exit(0). After shutdown_timeout a warning names the ranks that have not left, and shutdown
    returns. Rank 0 coordinates the job, so it returns only when they have left.

    Raises Timeout if an operation of this rank is still in flight by then; the job has then ended. The end of the
    program calls this by itself. init may be called again afterwards.
    """
    _hooks.leave()


def is_initialized() -> bool:
    """True between init and shutdown."""
    return _session.is_open()


def rank() -> int:
    """Returns this process's rank in the job, from 0. NotInitialized before init."""
    return _session.world().rank


def size() -> int:
    """Returns the number of processes in the job. NotInitialized before init."""
    return _session.world().size


def local_rank() -> int:
    """Returns this process's rank among those on its host, from 0. NotInitialized before init."""
    return _session.world().local_rank


def local_size() -> int:
    """Returns the number of processes on this host. NotInitialized before init."""
    return _session.world().local_size


def cross_rank() -> int:
    """Returns the number of this host among those that have a process with this local rank, from 0."""
    return _session.world().cross_rank


def cross_size() -> int:
    """Returns the number of hosts that have a process with this local rank."""
    return _session.world().cross_size


def is_homogeneous() -> bool:
    """Returns True if every host has the same number of processes. Raises NotInitialized in a forked child."""
    _session.world()
    return _session.current().homogeneous


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Starts a Chrome trace of all ranks in one file. Collective: every rank calls it with the same path; blocks.

    mark_cycles is accepted and has no effect, because distrun has no cycles.
    """
    session = _session.current()
    _blocking.call(lambda: _start_timeline(session, os.path.expanduser(file_path).encode()))


def _start_timeline(session: _session.Session, path: bytes) -> None:
    with session.calling() as pointer:
        errors.check(library().distrun_timeline_start(pointer, path))


def stop_timeline() -> None:
    """Ends the trace. The file is complete when this returns on rank 0. No effect if no trace was started."""
    session = _session.current()
    _blocking.call(lambda: _stop_timeline(session))


def _stop_timeline(session: _session.Session) -> None:
    with session.calling() as pointer:
        errors.check(library().distrun_timeline_stop(pointer))
