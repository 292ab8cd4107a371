"""Messages between two ranks. Each is a broadcast in a process set of the two, with a name that both know.

The first message of two ranks makes their set, and all groups use it. Making it takes both ranks, but a sender must not
block. So until the set exists, messages wait here, and a thread waits for the set.
"""

from __future__ import annotations

import bisect
import collections
import threading
import time
import weakref
from collections.abc import Callable

from distrun import _session, errors
from distrun._operations import Handle
from distrun.process_sets import add_unordered

from ._channel import Channel
from ._moves import Message
from ._work import InFlight

Begin = Callable[[Channel], Handle[None]]


class Messages:
    """The messages of one group. Those with the same direction and tag are matched in the order of the calls.

    Others do not wait for each other, and may come from several threads.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._lock = threading.Lock()
        self._sent: dict[tuple[int, int], Counts] = collections.defaultdict(Counts)

    def start(self, sender: int, receiver: int, tag: int, begin: Message) -> InFlight:
        """Submits a message by begin(channel of the two, name of the message). Never blocks."""
        if sender == receiver:
            raise ValueError(f"rank {sender} cannot send to itself. Use tensor.clone() or copy_().")
        group = self._channel.members
        source, target = group[self._channel.place(sender)], group[self._channel.place(receiver)]
        with self._lock:
            number = self._sent[sender, receiver].take(tag)
        name = f"c10d.{self._channel.label}.message{number}.from{source}.to{target}.tag{tag}"
        if len(group) == 2:
            return begin(self._channel, name)
        peer = target if source == group[self._channel.position] else source
        return _pair(peer).start(lambda channel: begin(channel, name))


class Counts:
    """Counts the messages of each tag during the life of the group.

    Neighboring tags with equal counts are stored as one range. So a program whose tags count up (its steps) needs no
    more memory with each tag.
    """

    def __init__(self) -> None:
        self._begins: list[float] = [float("-inf")]  # the first tags of ranges with equal counts
        self._counts = [0]

    def take(self, tag: int) -> int:
        """Returns the count of `tag` so far, and increments it."""
        here, after = self._begin(tag), self._begin(tag + 1)
        before = self._counts[here]
        self._counts[here] += 1
        for begin in (after, here):
            if self._counts[begin] == self._counts[begin - 1]:
                del self._begins[begin], self._counts[begin]
        return before

    def _begin(self, tag: int) -> int:
        """Returns the index of the range that begins at `tag`, and makes that range if needed."""
        place = bisect.bisect_left(self._begins, tag)
        if place == len(self._begins) or self._begins[place] != tag:
            self._begins.insert(place, tag)
            self._counts.insert(place, self._counts[place - 1])
        return place


class _Pair:
    """The process set of this rank and another one, and the messages that wait for it."""

    def __init__(self, ranks: list[int]) -> None:
        self._ranks = ranks
        self._lock = threading.Lock()
        self._channel: Channel | None = None
        self._failure: BaseException | None = None
        self._waiting: list[_Deferred] = []
        threading.Thread(target=self._make, name="distrun-c10d-pair", daemon=True).start()

    def start(self, begin: Begin) -> InFlight:
        with self._lock:
            if self._failure is not None:
                raise self._failure.with_traceback(None)
            if self._channel is not None:
                return begin(self._channel)
            deferred = _Deferred(begin)
            self._waiting.append(deferred)
            return deferred

    def _make(self) -> None:
        channel, failure = None, None
        try:
            channel = Channel(add_unordered(self._ranks))
        except BaseException as error:
            failure = error
        with self._lock:
            self._channel, self._failure = channel, failure
            for deferred in self._waiting:
                deferred.proceed(channel, failure)
            self._waiting.clear()


class _Deferred:
    """A message that waits for its set, and then stands for the operation that was started in it."""

    def __init__(self, begin: Begin) -> None:
        self._begin: Begin | None = begin
        self._started = threading.Event()
        self._handle: Handle[None] | None = None
        self._failure: BaseException | None = None

    def proceed(self, channel: Channel | None, failure: BaseException | None) -> None:
        """Called when the set exists, or has failed."""
        try:
            if channel is not None and self._begin is not None:
                self._handle = self._begin(channel)
        except BaseException as error:
            failure = error
        self._failure, self._begin = failure, None
        self._started.set()

    def poll(self) -> bool:
        return self._started.is_set() and (self._handle is None or self._handle.poll())

    def wait(self, timeout: float | None = None) -> None:
        end = None if timeout is None else time.monotonic() + timeout
        if not self._started.wait(timeout):
            raise errors.Timeout("the other rank has not sent to this one yet, and has not received from it.")
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        if self._handle is not None:
            self._handle.wait(None if end is None else max(0.0, end - time.monotonic()))


_pairs: weakref.WeakKeyDictionary[_session.Session, dict[int, _Pair]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def _pair(peer: int) -> _Pair:
    session = _session.current()
    with _lock:
        pairs = _pairs.setdefault(session, {})
        if peer not in pairs:
            pairs[peer] = _Pair([session.world.rank, peer])
        return pairs[peer]
