"""The handlers that XLA calls inside a compiled program. They are in libdistrun_jax.so, next to libdistrun.so.

There is one for programs on CPUs and one for NVIDIA GPUs. Both have the same name, and XLA takes the handler of the
platform that it compiles for.
"""

from __future__ import annotations

import ctypes
import functools
import pathlib
import warnings

import jax
from distrun import _abi, _session, errors, features
from distrun._library import library
from distrun.process_sets import ProcessSet, registered_id

TARGET = "distrun_collective"


class _Extension(_session.Extension):
    """Passes the session to the handler; see distrun._session.Extension."""

    def __init__(self, native: ctypes.CDLL) -> None:
        self.native = native

    def attach(self, session: int) -> None:
        text: bytes = self.native.distrun_jax_attach(session)
        if text:
            raise RuntimeError(f"distrun.jax cannot use the session: {text.decode(errors='replace')}")

    def detach(self) -> bool:
        return bool(self.native.distrun_jax_detach())

    def error_of(self, failure: BaseException) -> errors.DistrunError | None:
        return error_of(failure)


@functools.cache
def _extension() -> _Extension | None:
    """Loads and registers the handler, once. None, after a warning, if this version of JAX does not accept it."""
    if not _registered("distrun_jax_collective", "cpu", "", "Python callbacks"):
        return None
    return _Extension(_load())


def _registered(function: str, platform: str, what_for: str, other_way: str) -> bool:
    """Loads and registers a handler. False, after a warning, if this version of JAX does not accept it."""
    try:
        # The handler uses API version 0.1, which jaxlib accepts from 0.6 on.
        jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(getattr(_load(), function)), platform=platform)
    except Exception as reason:  # an unknown JAX may raise anything
        warnings.warn(
            f"JAX {jax.__version__} does not accept distrun's native handler{what_for} ({reason}). Operations inside "
            f"jax.jit use {other_way}, which is slower.",
            stacklevel=3,
        )
        return False
    return True


@functools.cache
def _load() -> ctypes.CDLL:
    core = library()
    native = ctypes.CDLL(str(pathlib.Path(core._name).resolve().parent / "libdistrun_jax.so"))
    prototypes: dict[str, tuple[object, list[object]]] = {
        "distrun_jax_bind": (ctypes.c_char_p, [ctypes.c_void_p]),
        "distrun_jax_attach": (ctypes.c_char_p, [ctypes.c_void_p]),
        "distrun_jax_detach": (ctypes.c_int32, []),
        "distrun_jax_failure": (ctypes.c_int32, [ctypes.c_char_p, ctypes.POINTER(_abi.ErrorStruct)]),
    }
    for name, (result, arguments) in prototypes.items():
        function = getattr(native, name)
        function.restype, function.argtypes = result, arguments
    missing: bytes = native.distrun_jax_bind(core._handle)
    if missing:
        raise ImportError(f"{missing.decode()}; reinstall distrun")
    return native


def attach() -> bool:
    """Passes the session to the handler, now and at every later init. False if there is no handler."""
    extension = _extension()
    if extension is None:
        return False
    _session.extend(extension)
    return True


def ready(process_set: ProcessSet) -> bool:
    """True if the program that is compiled now can call a handler: on CPUs, and on NVIDIA GPUs if the members of the
    set move GPU tensors."""
    return attach() and (jax.default_backend() == "cpu" or gpu(process_set) >= 0)


def gpu(process_set: ProcessSet) -> int:
    """Returns the CUDA index of the GPU that programs run on, if the handler can use it; else -1."""
    if jax.default_backend() != "gpu" or not features.moves_cuda(registered_id(process_set)):
        return -1
    if not _registered_for_cuda():
        return -1
    number: int = jax.local_devices(backend="cuda")[0].local_hardware_id
    return number


@functools.cache
def _registered_for_cuda() -> bool:
    """Registers the handler for GPUs, once. False if they are not NVIDIA's or, after a warning, if this version of JAX
    does not accept it."""
    try:
        jax.local_devices(backend="cuda")
    except RuntimeError:
        return False
    other_way = "Python callbacks and the host's memory"
    return _registered("distrun_jax_collective_cuda", "CUDA", " for GPUs", other_way)


def error_of(failure: BaseException) -> errors.DistrunError | None:
    """Returns the distrun exception behind JAX's exception for a compiled program; None if there is none.

    When a program waits for a result (block_until_ready), JAX raises its own JaxRuntimeError with distrun's text. The
    exception returned here also has the attributes: tensor, ranks, host.
    """
    if isinstance(failure, errors.DistrunError):
        return failure
    extension = _extension()
    if extension is None:
        return None
    raw = _abi.ErrorStruct(struct_size=ctypes.sizeof(_abi.ErrorStruct))
    if not extension.native.distrun_jax_failure(str(failure).encode(errors="replace"), ctypes.byref(raw)):
        return None
    return errors.from_struct(raw)
