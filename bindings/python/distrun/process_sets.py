"""Process sets: operations among some of the ranks.

All ranks of the job add and remove a set together, or only its members do. `add_unordered` and `drop_process_set` may
be called in any order with other calls.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import itertools
import threading
from collections.abc import Iterable, Iterator, Sequence

from distrun import _blocking, _session, errors
from distrun._library import library


class ProcessSet:
    """A set of world ranks. Operations can use it once it is registered, by init() or add_process_set().

    ranks: the world ranks in ascending order. process_set_id: the set's number; None while it is not registered.
    NotImplementedError for an mpi4py communicator, ValueError for ranks that are not integers.
    """

    def __init__(self, ranks_or_comm: Iterable[int]) -> None:
        if not isinstance(ranks_or_comm, Iterable):
            raise NotImplementedError("ProcessSet takes a list of ranks, not a communicator of mpi4py. Pass its ranks.")
        ranks = list(ranks_or_comm)
        if not all(isinstance(rank, int) and not isinstance(rank, bool) for rank in ranks):
            raise ValueError(f"the ranks of a ProcessSet must be integers, not {ranks!r}.")
        self.process_set_id: int | None = None
        self.ranks: list[int] | None = sorted(ranks)
        self.mpi_comm: None = None
        self._members_only = False  # registered by its members alone
        self._kept: dict[str, Iterator[int]] = collections.defaultdict(itertools.count)

    def size(self) -> int | None:
        """Returns the number of members; None while the set is not registered."""
        return None if self.process_set_id is None or self.ranks is None else len(self.ranks)

    def rank(self) -> int | None:
        """Returns this process's position in the set; None while it is not registered. ValueError for a non-member."""
        if self.process_set_id is None or self.ranks is None:
            return None
        mine = _session.world().rank
        if mine not in self.ranks:
            raise ValueError(f"rank {mine} is not part of {self}.")
        return self.ranks.index(mine)

    def included(self) -> bool | None:
        """Returns True if this process is a member; None while the ranks are not known."""
        return None if self.ranks is None else _session.world().rank in self.ranks

    def __str__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm})"

    __repr__ = __str__

    # A set is an identity, like a process group. A deep copy of a layer with a set works with the same ranks.
    def __deepcopy__(self, memo: object) -> ProcessSet:
        return self

    def __reduce__(self) -> str | tuple[object, ...]:
        return "global_process_set" if self is global_process_set else (ProcessSet, (self.ranks,))


global_process_set = ProcessSet([])
global_process_set.ranks = None

_lock = threading.RLock()  # reentrant: a signal handler may make a call too
_registered: dict[int, ProcessSet] = {}


def checked(process_set: object) -> ProcessSet:
    """Returns `process_set` if it is a ProcessSet, registered or not; TypeError otherwise. For objects that keep it."""
    if not isinstance(process_set, ProcessSet):
        raise TypeError(
            f"process_set must be a ProcessSet from add_process_set (leave it out for all ranks), not {process_set!r}."
        )
    return process_set


def registered_id(process_set: ProcessSet) -> int:
    """Returns the set's id for the C API. ValueError if it is not registered, NotInitialized before init."""
    number = checked(process_set).process_set_id
    if number is None:
        _session.current()
        raise ValueError(f"{process_set} is not registered. Pass it to init() or add_process_set() on all ranks first.")
    return number


def number_kept(what: str, process_set: ProcessSet) -> int:
    """Returns the next number for an object that all members create in the same order (an optimizer, a layer).

    A number never comes twice: an object may outlive the registration of its set, or the session.
    """
    registered_id(process_set)
    return next(process_set._kept[what])


def has_peers(process_set: ProcessSet) -> bool:
    """True if this rank reduces with other ranks in the set.

    ValueError for a set that is not registered, as in registered_id. Otherwise a program would silently train alone.
    """
    registered_id(process_set)
    return bool(process_set.included()) and process_set.size() != 1


def opened(size: int) -> None:
    """Registers the global set with all ranks. Called by init."""
    global_process_set.process_set_id = 0
    global_process_set.ranks = list(range(size))
    _registered[0] = global_process_set


def closed() -> None:
    """Unregisters all sets. Called by shutdown."""
    for process_set in _registered.values():
        process_set.process_set_id = None
    _registered.clear()
    global_process_set.ranks = None


def add_process_set(process_set: ProcessSet | Sequence[int], *, members_only: bool = False) -> ProcessSet:
    """Registers a set. Every rank of the job calls this with the same ranks, members or not. Blocks until all have.

    process_set: a ProcessSet or a sequence of world ranks. Returns the set.

    members_only: only the members call it, and the other ranks do not know the set. Its ranks may equal those of
    another set. Only the members remove it, too. Ranks must make the calls that they share in the same order; otherwise
    each of them gets a Mismatch.

    ValueError for wrong ranks, for a set that is registered already, and with members_only on a rank outside the set.
    """
    session = _session.current()
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    ranks = _ranks_of(process_set, session.world.size)
    if members_only and session.world.rank not in ranks:
        raise ValueError(
            f"rank {session.world.rank} is not part of {process_set}. With members_only=True, only its members add it."
        )
    with _lock:
        if not members_only:
            _refuse_same_ranks(process_set, list(_registered.values()))  # add_unordered adds on another thread
        number = _blocking.call(lambda: _add(session, ranks, members_only))
        process_set._members_only = members_only
        session.forget_numbers(number)
        process_set.process_set_id = number
        _registered[number] = process_set
    return process_set


def add_all(sets: Sequence[ProcessSet]) -> None:
    """Registers the sets that are not registered yet; none of them if one cannot be. ValueError as add_process_set."""
    new = [one for index, one in enumerate(sets) if one.process_set_id is None and one not in sets[:index]]
    for index, one in enumerate(new):
        _ranks_of(one, _session.current().world.size)
        _refuse_same_ranks(one, [*_registered.values(), *new[:index]])
    added: list[ProcessSet] = []
    try:
        for one in new:
            added.append(add_process_set(one))
    except Exception:
        with contextlib.suppress(errors.DistrunError):  # the session may be lost, and its sets with it
            for one in reversed(added):
                remove_process_set(one)
        raise


def _ranks_of(process_set: ProcessSet, size: int) -> list[int]:
    """Returns the ranks of a set that can be registered. ValueError otherwise."""
    ranks = process_set.ranks
    if ranks is None or not ranks:
        raise ValueError("a process set needs at least one rank.")
    if len(set(ranks)) != len(ranks):
        raise ValueError(f"{process_set} names a rank twice.")
    if ranks[0] < 0 or ranks[-1] >= size:
        raise ValueError(f"{process_set} names a rank outside 0 to {size - 1}, the ranks of this job.")
    if process_set.process_set_id is not None:
        raise ValueError(f"{process_set} is registered already.")
    return ranks


def _refuse_same_ranks(process_set: ProcessSet, others: Iterable[ProcessSet]) -> None:
    """Raises ValueError if another set has the same ranks."""
    for other in others:
        # Every rank must refuse the same sets, so sets that only their members know are ignored.
        if other.ranks == process_set.ranks and not other._members_only:
            raise ValueError(f"a process set with the same ranks is registered already: {other}.")


def _add(session: _session.Session, ranks: list[int], members_only: bool) -> int:
    number = ctypes.c_int32()
    array = (ctypes.c_int32 * len(ranks))(*ranks)
    with session.calling() as pointer:
        add = library().distrun_process_set_add_by_members if members_only else library().distrun_process_set_add
        errors.check(add(pointer, array, len(ranks), ctypes.byref(number)))
    return number.value


def add_unordered(ranks: Sequence[int]) -> ProcessSet:
    """Registers a set of this rank and others. Only its members call this, in any order with their other calls.

    Blocks until all members have called it, without a limit. Other threads run, and may make such calls themselves.
    If several sets have the same ranks, they are matched in the order of each member's calls.
    """
    process_set = ProcessSet(ranks)
    members = process_set.ranks or []
    number = ctypes.c_int32()
    array = (ctypes.c_int32 * len(members))(*members)
    with _session.current().calling() as pointer:
        code = library().distrun_process_set_add_apart(pointer, array, len(members), -1.0, ctypes.byref(number))
        errors.check(code)
    process_set._members_only = True
    process_set.process_set_id = number.value
    _registered[number.value] = process_set
    return process_set


def drop_process_set(process_set: ProcessSet) -> None:
    """Unregisters a set on this rank at once. The members call this in any order; the set ends after the last call.

    No effect for the global set, and for a set that is not registered.
    """
    number = process_set.process_set_id
    if number is None or number == 0 or _registered.pop(number, None) is not process_set:
        return
    process_set.process_set_id = None
    session = _session.current()
    session.forget_numbers(number)
    with session.calling() as pointer:
        errors.check(library().distrun_process_set_drop(pointer, number))


def _remove(session: _session.Session, number: int) -> None:
    with session.calling() as pointer:
        errors.check(library().distrun_process_set_remove(pointer, number))


def remove_process_set(process_set: ProcessSet) -> bool:
    """Unregisters a set. All ranks call this together, or only the members if they alone added it. Blocks.

    Returns False, without any effect, for the global set and for a set that is not registered.
    """
    number = checked(process_set).process_set_id
    if number is None or number == 0 or _registered.get(number) is not process_set:
        return False
    session = _session.current()
    _session.drain_all()

    def removed(_: None) -> None:
        if _registered.get(number) is process_set:
            del _registered[number]
            process_set.process_set_id = None
            session.forget_numbers(number)

    with _lock:
        removed(_blocking.call(lambda: _remove(session, number), drop=removed))
    return True


def find(number: int) -> ProcessSet:
    """Returns the registered set with this id. ValueError if there is none."""
    found = _registered.get(number)
    if found is None:
        _session.current()
        raise ValueError(f"no process set with the id {number} is registered. It may have been removed.")
    return found


def registered() -> dict[int, list[int]]:
    """Returns the registered sets as {id: ranks}."""
    return {number: list(process_set.ranks or ()) for number, process_set in sorted(_registered.items())}
