"""The exceptions. Each has the runtime's facts about the failure as attributes, so a program need not parse texts."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from distrun._abi import Code, ErrorStruct
from distrun._library import library


class DistrunError(RuntimeError):
    """Any failure that the runtime reports.

    tensor: name of the tensor concerned, or "". ranks: the world ranks that disagree, are missing or died. host: their
    host, or "". cause: the first cause in a few words, or "". usable: False if the job cannot continue. code: the C
    API's code.
    """

    code: Code = Code.INTERNAL
    _of: type[DistrunError] | None = None  # in a class made by _ending(): the class it was made from

    def __init__(
        self,
        message: str,
        *,
        tensor: str = "",
        ranks: Sequence[int] = (),
        host: str = "",
        cause: str = "",
        usable: bool = True,
        code: Code | None = None,
    ) -> None:
        super().__init__(message)
        self.tensor = tensor
        self.ranks = tuple(ranks)
        self.host = host
        self.cause = cause
        self.usable = usable
        if code is not None:
            self.code = code

    def __reduce__(self) -> tuple[object, ...]:
        state = {name: getattr(self, name) for name in ("tensor", "ranks", "host", "cause", "usable", "code")}
        if self._of is not None:  # this class has no name to find it by
            return (_restored, (self._of, str(self)), state)
        return (type(self), (str(self),), state)


class InvalidArgument(DistrunError, ValueError):
    """The caller's mistake. Raised on this rank, or on all ranks if they find it together (one has joined, for
    instance)."""

    code = Code.INVALID_ARGUMENT


class DuplicateName(DistrunError, ValueError):
    """An operation with this name is still in flight on this rank."""

    code = Code.DUPLICATE_NAME


class Mismatch(DistrunError):
    """The ranks disagree on dtype, shape, operation, scale, root, group or device. Raised on every rank."""

    code = Code.MISMATCH


class JobEnded(DistrunError):
    """The job cannot continue. Every error that ended the job is an instance, also a Timeout (`usable` is then False).

    Horovod's name for it is HorovodInternalError.
    """

    code = Code.ABORTED


class RankLost(JobEnded):
    """Another rank died (a signal, an uncaught exception), or its host cannot be reached any more."""

    code = Code.RANK_LOST


class RankLeft(JobEnded):
    """A rank left the job while other ranks wait for it."""

    code = Code.RANK_LEFT


class Timeout(DistrunError):
    """A time limit passed. After a wait's limit the job continues; if the limit ended the job, `usable` is False."""

    code = Code.TIMEOUT


class NotInitialized(DistrunError, ValueError):
    """Called before init(), after shutdown(), or in a forked child."""

    code = Code.NOT_INITIALIZED


class Unsupported(DistrunError):
    """No backend can do this. The text says why."""

    code = Code.UNSUPPORTED


HorovodInternalError = JobEnded

_CLASSES: dict[int, type[DistrunError]] = {
    Code.INVALID_ARGUMENT: InvalidArgument,
    Code.DUPLICATE_NAME: DuplicateName,
    Code.MISMATCH: Mismatch,
    Code.RANK_LOST: RankLost,
    Code.RANK_LEFT: RankLeft,
    Code.TIMEOUT: Timeout,
    Code.NOT_INITIALIZED: NotInitialized,
    Code.SHUT_DOWN: NotInitialized,
    Code.UNSUPPORTED: Unsupported,
    Code.ABORTED: JobEnded,
}


_endings: dict[type[DistrunError], type[DistrunError]] = {}


def _ending(kind: type[DistrunError]) -> type[DistrunError]:
    """Returns the class of the same name that is both `kind` and JobEnded, for a job that has ended."""
    if issubclass(kind, JobEnded):
        return kind
    if kind is DistrunError:
        return JobEnded
    if kind not in _endings:
        body = {"__doc__": kind.__doc__, "__module__": kind.__module__, "_of": kind}
        _endings.setdefault(kind, type(kind.__name__, (kind, JobEnded), body))  # another thread may have been first
    return _endings[kind]


def _restored(kind: type[DistrunError], message: str) -> DistrunError:
    return _ending(kind)(message)


def end_job(error: DistrunError) -> None:
    """Marks the job as ended by `error`, although the runtime says that it could continue."""
    error.usable = False
    error.__class__ = _ending(type(error))


_own_rank = -1
_end_known = False


def set_own_rank(rank: int) -> None:
    """Stores this process's rank; init calls it. An abort by another rank becomes RankLost, one by this rank does
    not."""
    global _own_rank, _end_known
    _own_rank = rank
    _end_known = False


def end_known() -> bool:
    """Returns True once an error has reported that this session's job has ended."""
    return _end_known


def from_struct(error: ErrorStruct) -> DistrunError:
    """Returns the exception for a filled struct."""
    global _end_known
    _end_known = _end_known or not error.usable
    kind = _CLASSES.get(error.code, DistrunError)
    # An exception of a rank may arrive from that rank or from the launcher first. Both must give the same class.
    if error.code == Code.ABORTED and error.num_ranks and _own_rank not in error.ranks[: error.num_ranks]:
        kind = RankLost
    if not error.usable:
        kind = _ending(kind)
    return kind(
        (error.message or b"").decode(errors="replace"),
        tensor=(error.tensor or b"").decode(errors="replace"),
        ranks=error.ranks[: error.num_ranks] if error.num_ranks else (),
        host=(error.host or b"").decode(errors="replace"),
        cause=(error.cause or b"").decode(errors="replace"),
        usable=bool(error.usable),
        code=Code(error.code) if error.code in Code._value2member_map_ else Code.INTERNAL,
    )


def last_error() -> DistrunError:
    """Returns the exception for the call that just failed on this thread."""
    error = ErrorStruct(struct_size=ctypes.sizeof(ErrorStruct))
    library().distrun_last_error(ctypes.byref(error))
    return from_struct(error)


def handle_error(handle: int) -> DistrunError | None:
    """Returns the exception of a completed operation; None if it succeeded."""
    error = ErrorStruct(struct_size=ctypes.sizeof(ErrorStruct))
    library().distrun_get_error(handle, ctypes.byref(error))
    return None if error.code == Code.OK else from_struct(error)


def check(code: int) -> None:
    """Raises the exception for `code` unless it is DISTRUN_OK."""
    if code != Code.OK:
        raise last_error()
