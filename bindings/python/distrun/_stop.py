"""should_stop(): all ranks learn in the same step that one of them was asked to stop."""

from __future__ import annotations

import ctypes
import signal
import threading
from types import FrameType

from distrun import _operations
from distrun._abi import DType, Kind, ReduceOp

_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)

_asked = False
_watching = False


def _ask(number: int, _frame: FrameType | None) -> None:
    global _asked
    _asked = True
    signal.signal(number, signal.SIG_DFL)  # the second signal means it


def _watch() -> None:
    """Takes over SIGTERM and SIGUSR1 where the program left them as they were; a handler of its own stays."""
    global _watching
    if _watching or threading.current_thread() is not threading.main_thread():
        return
    _watching = True
    for number in _SIGNALS:
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _ask)


def should_stop(request: bool = False) -> bool:
    """True on every rank, from the same call on, once a rank got SIGTERM or SIGUSR1 or passed request=True.

    Collective: every rank calls it once per step (a tiny allreduce). From the first call in the main thread on these
    signals no longer end the process at once; a second one does.
    """
    _watch()
    flag = ctypes.c_uint8(_asked or request)
    address = ctypes.addressof(flag)
    operation = _operations.Op(
        kind=Kind.ALLREDUCE,
        name="distrun.should_stop",
        dtype=DType.uint8,
        shape=(1,),
        input=address,
        output=address,
        reduce=ReduceOp.MAX,
    )
    return _operations.enqueue([operation], flag, lambda _: bool(flag.value)).wait()
