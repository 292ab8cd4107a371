"""Runs at the end of the process: leaves the job, or reports the exception that ends the program."""

from __future__ import annotations

import atexit
import contextlib
import dis
import io
import os
import re
import sys
import threading
from collections.abc import Iterator
from types import TracebackType

from distrun import _abi, _operations, _session, errors, process_sets

_installed = False
_previous_excepthook = sys.excepthook
_previous_threading_hook = threading.excepthook


def shorten_tracebacks() -> None:
    """Leaves distrun's frames out of the tracebacks of its errors, from the import on: init itself may fail."""
    excepthook, threading_hook = sys.excepthook, threading.excepthook

    def hook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        with _short_tracebacks(value):
            excepthook(kind, value, value.__traceback__ if value.__traceback__ is not None else trace)

    def hook_of_threads(arguments: threading.ExceptHookArgs) -> None:
        with _short_tracebacks(arguments.exc_value):
            threading_hook(arguments)

    sys.excepthook, threading.excepthook = hook, hook_of_threads


def install() -> None:
    """Installs the hooks, once per process. init calls it. They wrap the hooks that the program has by then."""
    global _installed, _previous_excepthook, _previous_threading_hook
    if _installed:
        return
    _installed = True
    atexit.register(_leave)
    _previous_excepthook, sys.excepthook = sys.excepthook, _excepthook
    _previous_threading_hook, threading.excepthook = threading.excepthook, _threading_hook


def end_without_waiting() -> None:
    """Ends the process with code 1 after an uncaught exception outside a session, instead of waiting for other
    processes.

    Some frameworks wait for all processes at exit. The others may wait for this one elsewhere, so both would hang.
    The launcher sees the exit code. At an interactive prompt the process goes on.
    """
    previous = sys.excepthook

    def hook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        previous(kind, value, trace)
        # Ctrl-C reaches all ranks. In a session, distrun's own hook reports the exception to the launcher.
        if _session.is_open() or issubclass(kind, KeyboardInterrupt) or _at_a_prompt():
            return
        with contextlib.suppress(OSError, ValueError):
            # torch's hook may have called this one. It replaces stderr by a buffer, which it would print only later.
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
    """Shuts the session down, and unregisters the process sets."""
    if _session.forked():
        return
    try:
        _session.close_session()
    finally:
        if not _session.is_open():  # after an interrupt it is still open
            process_sets.closed()


def _leave() -> None:
    try:
        leave()
    except errors.DistrunError as error:
        print(f"distrun: leaving the job failed: {error}", file=sys.stderr)


def describe(kind: type[BaseException], value: BaseException | None, trace: TracebackType | None) -> str:
    """Describes an exception in one line for the other ranks, as "ValueError: bad (train.py:12)"."""
    found = place(trace)
    where = f" ({os.path.basename(found[0])}:{found[1]})" if found else ""
    return f"{name(kind, value)}{where}"


def name(kind: type[BaseException], value: BaseException | None) -> str:
    """Returns type and text of an exception, as "ValueError: bad"."""
    text = "" if value is None else _first_line(str(value)).removeprefix(f"{kind.__name__}: ")
    return f"{kind.__name__}{': ' if text else ''}{text}"


def place(trace: TracebackType | None) -> tuple[str, int] | None:
    """Returns the file and line of the program that raised; None without a traceback. It is the innermost frame that
    is no library's, as in the launcher's report about a program that prints a traceback."""
    found: tuple[str, int] | None = None
    own: tuple[str, int] | None = None
    while trace is not None:
        frame = trace.tb_frame
        here = (frame.f_code.co_filename, trace.tb_lineno)
        # By name: runpy calls a program "__main__" too (as under --torch-backend), but sys.modules has another one by
        # now.
        if not found or frame.f_globals.get("__name__") == "__main__":
            found = here
        nameless = here[0] in _NAMELESS
        if not _is_ours(trace) and not _is_library(here[0]) and not (nameless and own and own[0] not in _NAMELESS):
            own = here
        trace = trace.tb_next
    return own or found


# A program that was typed (python -c) has no file. Libraries call code that they make the same.
_NAMELESS = ("<string>", "<stdin>")
_LIBRARY = re.compile(r"/(site|dist)-packages/|/lib(64)?/python\d|/__autograph_generated_file")


def _is_library(file: str) -> bool:
    """True for code that was installed, or that a library made."""
    return bool(_LIBRARY.search(file)) or (file.startswith("<") and file not in _NAMELESS)


# TensorFlow puts these before the place in its graph, or in the program, and the text of an error.
_HEADINGS = ("Graph execution error:", "in user code:")


def _first_line(text: str) -> str:
    """Returns the first line that says what happened. Some errors put a heading in front of it, and TensorFlow also
    the location."""
    lines = [one.rstrip() for one in text.splitlines() if one.strip()]
    if not lines or not lines[0].endswith(":"):
        return lines[0].strip() if lines else ""
    where = ("Detected at node", "File ", "<stack traces", "[[", "Traceback (most recent call last):")
    said = ""
    code = 1 << 30  # lines with this indent, or a deeper one, are the code of a frame
    for line in lines[1:]:
        text = line.lstrip()
        indent = len(line) - len(text)
        if indent >= code:
            continue
        if text.startswith("File "):
            code = indent + 1
        elif not text.startswith(where) and not text.endswith("root error(s) found."):
            said = text
            break
    heading = lines[0].strip()
    return said if said and heading in _HEADINGS else f"{heading} {said}".rstrip()


def chain(value: BaseException | None, hidden: bool = True) -> list[BaseException]:
    """Returns `value`, then the exceptions that led to it, newest first. `hidden`: also those behind `from None`."""
    found: list[BaseException] = []
    while value is not None and not any(value is one for one in found):
        found.append(value)
        shows = hidden or not value.__suppress_context__
        value = value.__cause__ or (value.__context__ if shows else None)
    return found


def is_consequence(value: BaseException) -> bool:
    """True for the error of a job that had ended before."""
    error = _session.error_of(value)
    return error is not None and not error.usable


def _errors(value: BaseException | None) -> list[errors.DistrunError]:
    """Returns the distrun exceptions in the chain of causes and contexts of `value`."""
    return [error for one in chain(value) if (error := _session.error_of(one))]


def _abort(kind: type[BaseException], value: BaseException | None, trace: TracebackType | None) -> None:
    found = _errors(value)
    if not all(error.usable for error in found):
        return  # the job had ended before, so this exception is a consequence and not the cause
    file, line = place(trace) or ("", 0)
    tensor = next((error.tensor for error in found if error.tensor), "")
    try:
        _session.abort(describe(kind, value, trace), file, line or 0, tensor)  # generated code may have no lines
    except errors.DistrunError as error:
        print(f"distrun: could not tell the other ranks: {error}", file=sys.stderr)


def _is_ours(trace: TracebackType) -> bool:
    return str(trace.tb_frame.f_globals.get("__name__")).split(".", 1)[0] == "distrun"


def _up_to_the_call(trace: TracebackType | None) -> TracebackType | None:
    """Returns the traceback without the frames inside distrun at its end: the program's own call comes last."""
    entries = []
    while trace is not None:
        entries.append(trace)
        trace = trace.tb_next
    first = entries[0] if entries else None
    kept = entries[:]
    # Python's own modules between two functions of distrun, such as contextlib, belong to the call.
    for index in range(len(entries) - 1, -1, -1):
        if _is_ours(entries[index]):
            kept = entries[:index]
        elif not _STANDARD.match(entries[index].tb_frame.f_code.co_filename):
            break
    if not kept or len(kept) == len(entries):
        return first
    shown = None
    for entry in reversed(kept):
        shown = TracebackType(shown, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return shown


_STANDARD = re.compile(re.escape(os.path.dirname(os.__file__)) + r"/(?!(site|dist)-packages/)|<frozen ")
_RAISE = dis.opmap["RAISE_VARARGS"]


def _is_refusal(value: BaseException) -> bool:
    """True if a raise statement of distrun made the exception, for a call that it refuses. Python's own exceptions
    inside distrun are bugs."""
    trace = value.__traceback__
    if type(value) not in (ValueError, TypeError, NotImplementedError, RuntimeError) or trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    return _is_ours(trace) and trace.tb_frame.f_code.co_code[trace.tb_lasti] == _RAISE


@contextlib.contextmanager
def _short_tracebacks(value: BaseException | None) -> Iterator[None]:
    """Shortens the tracebacks of distrun's errors while they are printed, except that of a bug in distrun."""
    whole = [(one, one.__traceback__) for one in chain(value)]
    for one, trace in whole:
        error = _session.error_of(one)
        if _is_refusal(one) or (error is not None and error.code is not _abi.Code.INTERNAL):
            one.__traceback__ = _up_to_the_call(trace)
    try:
        yield
    finally:
        for one, trace in whole:
            one.__traceback__ = trace


def _excepthook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
    # Print the traceback before the other ranks end, so that the user sees the cause first. All ranks get the errors of
    # an operation alike. Then report first, so that the launcher shows the traceback of one rank only.
    of_all_ranks = bool(_errors(value))
    if of_all_ranks:
        _abort(kind, value, trace)
    try:
        with _short_tracebacks(value):
            _previous_excepthook(kind, value, value.__traceback__ if value.__traceback__ is not None else trace)
        sys.stderr.flush()
    finally:
        if not of_all_ranks:
            _abort(kind, value, trace)


def _threading_hook(arguments: threading.ExceptHookArgs) -> None:
    """Ends the job if a thread dies that has submitted operations, since other ranks wait for it. Other threads may
    die."""
    try:
        with _short_tracebacks(arguments.exc_value):
            _previous_threading_hook(arguments)
    finally:
        if _operations.this_thread_submitted() and not issubclass(arguments.exc_type, SystemExit):
            _abort(arguments.exc_type, arguments.exc_value, arguments.exc_traceback)
