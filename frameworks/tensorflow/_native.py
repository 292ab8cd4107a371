"""The op library: loaded into TensorFlow, bound to the libdistrun.so of the Python core, attached to its session."""

from __future__ import annotations

import ctypes
import functools
import os
import warnings
from types import ModuleType
from typing import Any

import tensorflow as tf
from distrun import _session, errors
from distrun._abi import ErrorStruct, Kind
from distrun._library import library, library_file

from . import _fallback
from ._eager import eager_call

_FILE = "libdistrun_tensorflow.so"
_DATA_OPS = ("Allreduce", "Allgather", "Broadcast", "Alltoall", "Reducescatter")


class Unavailable(Exception):
    """This TensorFlow cannot use the op library; the text says why."""


class Native:
    """The loaded library: `ops` and `eager` are TensorFlow's functions for it, `calls` and `held` its C functions."""

    def __init__(self, ops: ModuleType, path: str) -> None:
        self.ops = ops
        # By number: to hash a Kind takes longer than the rest of a look-up, and small operations notice it.
        self.eager = [eager_call(ops, kind) for kind in sorted(Kind)]
        self.unordered: frozenset[str] = frozenset()
        # Only now: a library that was loaded before TensorFlow looks registers nothing.
        self.calls = ctypes.CDLL(path)
        self.held = ctypes.PyDLL(path)  # keeps the GIL
        for name in ("report", "bind", "attach"):
            getattr(self.calls, f"distrun_tensorflow_{name}").restype = ctypes.c_char_p
        self.calls.distrun_tensorflow_bind.argtypes = [ctypes.c_void_p]
        self.calls.distrun_tensorflow_attach.argtypes = [ctypes.c_void_p]
        self.calls.distrun_tensorflow_failure.argtypes = [ctypes.c_char_p, ctypes.POINTER(ErrorStruct)]
        self.calls.distrun_tensorflow_python.argtypes = [ctypes.c_void_p] * 5
        self.calls.distrun_tensorflow_python.restype = None


def _refuse_if_loaded(path: str) -> None:
    """TensorFlow looks for operations once, when it loads a file, and accepts them from one file only."""
    from tensorflow.python.framework import op_def_registry

    try:
        ctypes.CDLL(path, mode=os.RTLD_NOLOAD)
    except OSError:
        pass
    else:
        raise Unavailable("something loaded the op library before TensorFlow did")
    if op_def_registry.get("DistrunAllreduce") is not None:
        raise ImportError(
            "another copy of distrun's TensorFlow library is loaded in this process already; TensorFlow can have one. "
            "Look for a second installed distrun on sys.path."
        )


def _load() -> Native:
    path = str(library_file().resolve().with_name(_FILE))
    _refuse_if_loaded(path)
    try:
        ops = tf.load_op_library(path)
    except (tf.errors.OpError, OSError) as error:
        raise Unavailable(f"TensorFlow cannot load {path}: {error}") from None
    native = Native(ops, path)
    report = native.calls.distrun_tensorflow_report().decode()
    report = report or native.calls.distrun_tensorflow_bind(library()._handle).decode()
    if report:
        raise Unavailable(report)
    return native


def _unordered_ops() -> frozenset[str]:
    """Tells TensorFlow that the data operations of one function need no order among themselves; their names."""
    try:
        from tensorflow.python.framework import auto_control_deps
    except ImportError:
        return frozenset()
    known: Any = getattr(auto_control_deps, "ASYNC_STATEFUL_OPS", None)
    if known is None:
        return frozenset()
    names = frozenset(f"Distrun{name}" for name in _DATA_OPS)
    auto_control_deps.ASYNC_STATEFUL_OPS = type(known)([*known, *names])
    return names


def _signal_functions(native: Native) -> None:
    api = ctypes.pythonapi
    names = ("PyGILState_Ensure", "PyGILState_Release", "PyErr_CheckSignals", "PyErr_Fetch", "PyErr_Restore")
    native.calls.distrun_tensorflow_python(*(ctypes.cast(getattr(api, name), ctypes.c_void_p) for name in names))


@functools.cache
def native() -> Native | None:
    """The library; None, after one warning, where this TensorFlow cannot use it."""
    try:
        made = _load()
    except Unavailable as reason:
        warnings.warn(
            f"distrun.tensorflow uses its slower path, Python functions, with TensorFlow {tf.__version__}: {reason}.",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    made.unordered = _unordered_ops()
    _signal_functions(made)
    return made


class _Attachment(_session.Extension):
    """Gives each session to the kernels while it is open."""

    def __init__(self) -> None:
        self._attached: Native | None = None

    def attach(self, session: int) -> None:
        """The library is loaded here, at init, and not when the package is imported."""
        made = native()
        failure = made.calls.distrun_tensorflow_attach(session).decode() if made is not None else ""
        if failure:
            raise errors.DistrunError(failure)
        self._attached = made

    def detach(self) -> bool:
        """Returns when no kernel uses the session any more; False if one still does."""
        if self._attached is not None and not self._attached.calls.distrun_tensorflow_detach():
            return False
        self._attached = None
        return True

    def forget_numbers(self, process_set: int) -> None:
        """Those of eager operations, which the kernels count."""
        if self._attached is not None:
            self._attached.calls.distrun_tensorflow_forget_numbers(process_set)

    def error_of(self, failure: BaseException) -> errors.DistrunError | None:
        """TensorFlow's own classes are raised by functions and sessions."""
        return distrun_error(failure)


def extend() -> None:
    """At import: every session is attached, whichever front end opens it."""
    _session.extend(_Attachment())


def distrun_error(exception: BaseException) -> errors.DistrunError | None:
    """The distrun exception behind one of TensorFlow's, with ranks, host and cause; None if it is of another origin.

    TensorFlow raises its own classes for what fails inside a graph.
    """
    if isinstance(exception, errors.DistrunError):
        return exception
    made = native()
    if made is None:
        return next((one for one in _fallback.failures if str(one) in str(exception)), None)
    error = ErrorStruct(struct_size=ctypes.sizeof(ErrorStruct))
    if not made.calls.distrun_tensorflow_failure(str(exception).encode(errors="replace"), ctypes.byref(error)):
        return None
    return errors.from_struct(error)


def raise_kept() -> None:
    """Raises what a signal handler raised while an operation waited."""
    made = native()
    if made is not None:
        made.held.distrun_tensorflow_raise_kept()
