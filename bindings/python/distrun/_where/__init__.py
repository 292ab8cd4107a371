"""Reports where the threads of this process are, for the launcher's report of a hang.

The runtime calls this from its own thread, only after ranks have waited for a long time. The thread takes the GIL, so
no frame changes while it reads them.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from distrun import _abi, _hooks, _session, errors
from distrun._library import library

_MOST_FRAMES = 64  # kMaxFrames; the launcher chooses which of them the screen shows
# A frame of these modules waits for another thread or process of the program.
_WAITS_OF_OTHERS = (
    "threading",
    "queue",
    "multiprocessing",
    "concurrent",
    "asyncio",
    "selectors",
    "subprocess",
    "socket",
)
_FUTEX = {"x86_64": "202", "aarch64": "98"}.get(os.uname().machine)


def install(pointer: int) -> None:
    """Registers the callback with the session that was just opened."""
    errors.check(library().distrun_describe_by(pointer, _describer))


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__") or "")


def _in(frame: FrameType, packages: tuple[str, ...]) -> bool:
    name = _module(frame)
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_ours(frame: FrameType) -> bool:
    return _in(frame, ("distrun",))


def shown(frame: FrameType | None) -> list[FrameType]:
    """Returns the frames to show, innermost first. Frames inside a call of distrun are left out: the report names the
    operation instead."""
    frames = list(_outwards(frame))
    first = next((index for index, one in enumerate(frames) if _is_ours(one)), 0)
    while first < len(frames) and _is_ours(frames[first]):
        first += 1
    return frames[first:][:_MOST_FRAMES]


def waits(frame: FrameType | None) -> bool | None:
    """True if distrun's wait in the main thread has a time limit, False if not; None if the thread is in no such
    wait."""
    frames = list(_outwards(frame))
    while frames and _in(frames[0], ("threading",)):  # joins the thread of a blocking call
        frames.pop(0)
    if not frames:
        return None
    if _is_ours(frames[0]):
        inside = [one for one in frames if one.f_code.co_name == "_wait_native" and _is_ours(one)]
        return bool(inside) and inside[0].f_locals.get("deadline") is not None
    packages = _session.frameworks()
    if _in(frames[0], packages) and not _in(frames[0], ("tensorflow.python.data",)):
        return False
    # The program called a framework's library itself, as with x.block_until_ready().
    return False if packages and not _in(frame or frames[0], _WAITS_OF_OTHERS) and _waits_for_a_lock() else None


def _waits_for_a_lock() -> bool:
    """True if the main thread waits in a futex system call, so that it neither reads nor sleeps."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/syscall") as file:
            return file.read().split(" ", 1)[0] == _FUTEX
    except OSError:
        return False


def _exception_of(thread: int) -> BaseException | None:
    """Returns the exception that another thread handles."""
    found: Any = sys._current_exceptions().get(thread)
    raised: BaseException | None = found[1] if isinstance(found, tuple) else found  # a tuple: before Python 3.12
    return raised


def _in_excepthook(frame: FrameType | None) -> BaseException | None:
    """Returns the uncaught exception, if `frame` belongs to a call of sys.excepthook for it."""
    # Python sets sys.last_exc before it calls the hook. It keeps the value afterwards, for instance at a prompt.
    last: BaseException | None = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    frames = list(_outwards(frame))
    if last is None or not frames:
        return None
    arguments: list[object] = []
    for value in frames[-1].f_locals.values():
        arguments.extend(value if isinstance(value, tuple) else (value,))
    return last if any(value is last for value in arguments) else None


def reported_exceptions(raised: BaseException | None) -> list[BaseException]:
    """Returns the exceptions to tell: `raised` or the first that led to it, and then the one where it all began.

    A generator that is closed handles GeneratorExit, which says nothing. The error of a job that has ended says nothing
    either. The end of an iteration is no failure.
    """
    if isinstance(raised, StopIteration | StopAsyncIteration):
        return []
    said = [one for one in _hooks.chain(raised, hidden=False) if not isinstance(one, GeneratorExit)]
    said = [one for one in said if not _hooks.is_consequence(one)]
    return said[:1] + said[1:][-1:]


def _text(text: str) -> bytes:
    return text.encode(errors="replace").replace(b"\0", b"?")


def _report_thread(view: int, name: str, frame: FrameType | None) -> None:
    native = library()
    native.distrun_view_thread(view, _text(name))
    for one in shown(frame):
        code = one.f_code
        native.distrun_view_frame(view, _text(code.co_filename), one.f_lineno or 0, _text(code.co_name))


def _describe(view: int) -> None:
    main = threading.main_thread().ident or 0
    frames = sys._current_frames()
    limited = waits(frames.get(main))
    if limited is not None:
        library().distrun_view_wait(view, limited)
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    _report_thread(view, "", frames.get(main))
    inside = [main]  # the main thread, and other threads inside a call of distrun
    for thread, frame in frames.items():
        if thread == main or names.get(thread) in (None, "distrun-call"):
            continue
        if any(_is_ours(one) for one in _outwards(frame)):
            _report_thread(view, names[thread] or "", frame)
            inside.append(thread)
    for thread in inside:
        raised = _exception_of(thread) or (_in_excepthook(frames.get(main)) if thread == main else None)
        if reported := reported_exceptions(raised):
            text = " (from ".join(_hooks.name(type(one), one) for one in reported) + ")" * (len(reported) - 1)
            file, line = _hooks.place(reported[0].__traceback__) or ("", 0)
            library().distrun_view_exception(view, _text(text), _text(file), line or 0)
            return


def _describe_safely(view: int) -> None:
    try:
        _describe(view)
    except Exception:  # a thread that ends at this moment, or a program that has replaced a part of Python
        return


_describer = _abi.Describer(_describe_safely)
# Never freed: threads that Python does not know call it, perhaps after this module is gone.
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_describer))
