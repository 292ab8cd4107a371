"""C calls that block on other ranks and do not return when a signal comes: init, the making of process sets,
the timeline's start and end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

R = TypeVar("R")


class _Call(Generic[R]):
    """One call on a new thread. The caller takes the result, or `drop` gets it if the caller has left."""

    def __init__(self, function: Callable[[], R], drop: Callable[[R], None]) -> None:
        self._function = function
        self._drop = drop
        self._lock = threading.Lock()
        self._begun = False  # on its thread
        self._abandoned = False
        self._values: list[R] = []
        self._failure: BaseException | None = None
        # A daemon: an interrupted program may end while the call still waits for ranks that never come.
        self._thread = threading.Thread(target=self._run, name="distrun-call", daemon=True)

    def outcome(self) -> R:
        try:
            self._thread.start()
            self._thread.join()  # runs signal handlers at once; one that raises leaves the call behind
        except BaseException as error:
            with self._lock:
                self._abandoned = True
                begun, late = self._begun, list(self._values)
            for value in late:
                self._drop(value)
            if begun or not (isinstance(error, RuntimeError) and str(error).startswith("can't ")):
                raise
            # Python's own, no handler's: no thread was started. The program ends, and Python 3.12 starts none in a
            # function of atexit.
            return self._function()
        if self._failure is not None:
            raise self._failure
        return self._values[0]

    def _run(self) -> None:
        with self._lock:
            if self._abandoned:
                return
            self._begun = True
        try:
            value = self._function()
        except BaseException as failure:
            self._failure = failure
            return
        with self._lock:
            self._values.append(value)
            abandoned = self._abandoned
        if abandoned:
            self._drop(value)


def call(function: Callable[[], R], drop: Callable[[R], None] = lambda _: None) -> R:
    """function(), while signal handlers run. If one raises, that is raised and a later result goes to `drop`."""
    if threading.current_thread() is not threading.main_thread():
        return function()
    return _Call(function, drop).outcome()
