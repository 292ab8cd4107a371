"""Runs C calls that wait for other ranks and that a signal does not interrupt: init, adding and removing process sets,
starting and stopping the timeline."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

R = TypeVar("R")


class _Call(Generic[R]):
    """One call on a new thread. The caller takes the result. If the caller has left, `drop` gets it."""

    def __init__(self, function: Callable[[], R], drop: Callable[[R], None]) -> None:
        self._function = function
        self._drop = drop
        self._lock = threading.Lock()
        self._begun = False  # set by the new thread
        self._abandoned = False
        self._values: list[R] = []
        self._failure: BaseException | None = None
        # A daemon thread: an interrupted program may end while the call still waits for ranks that never come.
        self._thread = threading.Thread(target=self._run, name="distrun-call", daemon=True)

    def outcome(self) -> R:
        try:
            self._thread.start()
            self._thread.join()  # signal handlers run at once; if one raises, the call goes on alone
        except BaseException as error:
            with self._lock:
                self._abandoned = True
                begun, late = self._begun, list(self._values)
            for value in late:
                self._drop(value)
            if begun or not (isinstance(error, RuntimeError) and str(error).startswith("can't ")):
                raise
            # This error is Python's, not a signal handler's: no thread was started. The interpreter is shutting down,
            # and Python 3.12 starts no threads in atexit functions.
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
    """Returns function(). Signal handlers run during the call. If one raises, its exception is raised here, and `drop`
    gets the call's result later."""
    if threading.current_thread() is not threading.main_thread():
        return function()
    return _Call(function, drop).outcome()
