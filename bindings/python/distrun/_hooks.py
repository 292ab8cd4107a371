"""What happens at the end of the process: leaving in good order, or naming the exception that ends it."""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import sys
import threading
from types import TracebackType

from distrun import _operations, _session, errors, process_sets

_installed = False
_previous_excepthook = sys.excepthook
_previous_threading_hook = threading.excepthook


def install() -> None:
    """At init: once per process, and in front of the hooks that the program has by then."""
    global _installed, _previous_excepthook, _previous_threading_hook
    if _installed:
        return
    _installed = True
    atexit.register(_leave)
    _previous_excepthook, sys.excepthook = sys.excepthook, _excepthook
    _previous_threading_hook, threading.excepthook = threading.excepthook, _threading_hook


def end_without_waiting() -> None:
    """For a framework that waits at the end of each process for all others: one that an exception ends does not, since
    they wait for it elsewhere. Outside a session the launcher learns of it by the exit code. At a prompt
    no exception ends it."""
    previous = sys.excepthook

    def hook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        previous(kind, value, trace)
        # Ctrl-C reaches all ranks. In a session the launcher gets the exception.
        if _session.is_open() or issubclass(kind, KeyboardInterrupt) or _at_a_prompt():
            return
        with contextlib.suppress(OSError, ValueError):
            # torch's hook, which may have called this one, would write out afterwards what it has kept.
            if isinstance(sys.stderr, io.StringIO):
                print(sys.stderr.getvalue(), end="", file=sys.__stderr__, flush=True)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(1)

    sys.excepthook = hook


def _at_a_prompt() -> bool:
    """True if a person at a terminal can continue after an exception: in `python -i`, or in code.interact() and pdb's
    `interact`, which set sys.ps1."""
    return bool(hasattr(sys, "ps1") or sys.flags.inspect) and os.isatty(0)


def leave() -> None:
    """Shutdown, and everything that belongs to it."""
    if _session.forked():
        return
    try:
        _session.close_session()
    finally:
        if not _session.is_open():  # it still is after an interrupt
            process_sets.closed()


def _leave() -> None:
    try:
        leave()
    except errors.DistrunError as error:
        print(f"distrun: leaving the job failed: {error}", file=sys.stderr)


def describe(kind: type[BaseException], value: BaseException | None, trace: TracebackType | None) -> str:
    """One line for the other ranks: type, text, and the line of the program, as "ValueError: bad (train.py:12)"."""
    found = place(trace)
    where = f" ({os.path.basename(found[0])}:{found[1]})" if found else ""
    return f"{name(kind, value)}{where}"


def name(kind: type[BaseException], value: BaseException | None) -> str:
    """Type and text, as "ValueError: bad"."""
    text = "" if value is None else _first_line(str(value))
    return f"{kind.__name__}{': ' if text else ''}{text}"


def place(trace: TracebackType | None) -> tuple[str, int] | None:
    """File and line of the program; None if there is no traceback."""
    found = None
    while trace is not None:
        frame = trace.tb_frame
        # By the name that runpy gives a program too, as under --torch-backend: by now sys.modules has another __main__.
        if not found or frame.f_globals.get("__name__") == "__main__":
            found = (frame.f_code.co_filename, trace.tb_lineno)
        trace = trace.tb_next
    return found


def _first_line(text: str) -> str:
    """That says what has happened. TensorFlow puts where it was in front of that."""
    lines = [one.strip() for one in text.splitlines() if one.strip()]
    if lines[:1] == ["Graph execution error:"]:
        where = ("Detected at node", "File ", "<stack traces", "[[")
        said = [one for one in lines[1:] if not one.startswith(where) and not one.endswith("root error(s) found.")]
        lines = said or lines
    return lines[0] if lines else ""


def _errors(value: BaseException | None) -> list[errors.DistrunError]:
    """The distrun exceptions among `value` and what it was raised from or because of."""
    seen: set[int] = set()
    found = []
    while value is not None and id(value) not in seen:
        seen.add(id(value))
        if error := _session.error_of(value):
            found.append(error)
        value = value.__cause__ or value.__context__
    return found


def _abort(kind: type[BaseException], value: BaseException | None, trace: TracebackType | None) -> None:
    found = _errors(value)
    if not all(error.usable for error in found):
        return  # the job had ended already: this exception is a consequence and no cause
    file, line = place(trace) or ("", 0)
    tensor = next((error.tensor for error in found if error.tensor), "")
    try:
        _session.abort(describe(kind, value, trace), file, line or 0, tensor)  # generated code may have no lines
    except errors.DistrunError as error:
        print(f"distrun: the other ranks could not be told: {error}", file=sys.stderr)


def _excepthook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
    # The traceback is printed before the other ranks end, so the user sees the cause first.
    try:
        _previous_excepthook(kind, value, trace)
        sys.stderr.flush()
    finally:
        _abort(kind, value, trace)


def _threading_hook(arguments: threading.ExceptHookArgs) -> None:
    """A thread that submitted operations and dies leaves others waiting: that ends the job. Other threads may die."""
    try:
        _previous_threading_hook(arguments)
    finally:
        if _operations.this_thread_submitted() and not issubclass(arguments.exc_type, SystemExit):
            _abort(arguments.exc_type, arguments.exc_value, arguments.exc_traceback)
