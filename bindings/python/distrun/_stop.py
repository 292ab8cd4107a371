"""should_stop(): all ranks learn in the same step that one of them was asked to stop."""

from __future__ import annotations

import ctypes

from distrun import _abi, errors
from distrun._library import library
from distrun._session import current

_INTERRUPTED = int(_abi.Code.INTERRUPTED)


def should_stop(request: bool = False) -> bool:
    """Returns True on every rank, from the same call on, after one rank was asked to stop.

    A rank is asked by SIGTERM, SIGUSR1 or SIGUSR2, or by request=True. Every rank calls this once per step. A call
    takes 2 us and sends no message until a rank asks. The ranks then agree, in one round trip, on the first call that
    none of them has made yet. From the first call on, the first of these signals does not end the process, but a second
    one does. If the program handles a signal itself, its handler stays.
    """
    stop = ctypes.c_int32()
    session = current()
    session.enter()
    try:
        # Interrupted by a signal: Python runs its handlers before the next call.
        while (code := library().distrun_should_stop(session.pointer, request, stop)) == _INTERRUPTED:
            pass
        errors.check(code)
    finally:
        session.leave()
    return stop.value != 0
