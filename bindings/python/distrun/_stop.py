"""should_stop(): all ranks learn in the same step that one of them was asked to stop."""

from __future__ import annotations

import ctypes

from distrun import _abi, errors
from distrun._library import library
from distrun._session import current

_INTERRUPTED = int(_abi.Code.INTERRUPTED)


def should_stop(request: bool = False) -> bool:
    """True on every rank, from the same call on, once a rank got SIGTERM, SIGUSR1 or SIGUSR2, or passed request=True.

    Every rank calls it once per step. It costs two microseconds and no message until a rank asks; the ranks then
    agree, in one round trip, on the first call that none of them has made. From the first call on these signals no
    longer end the process at once, unless the program handles them itself; a second one does.
    """
    stop = ctypes.c_int32()
    session = current()
    session.enter()
    try:
        # Interrupted: Python's handlers run before the next call.
        while (code := library().distrun_should_stop(session.pointer, request, stop)) == _INTERRUPTED:
            pass
        errors.check(code)
    finally:
        session.leave()
    return stop.value != 0
