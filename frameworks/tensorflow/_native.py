"""The op library: loaded into TensorFlow, bound to the core's libdistrun.so, attached to its session.

Its ops get the options of a call as attributes.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import tensorflow as tf
from distrun import errors
from distrun._abi import DType, ErrorStruct, Kind, ReduceOp
from distrun._collectives import reduce_op
from distrun._library import library, library_file
from distrun.process_sets import ProcessSet, registered_id

from . import _names
from ._call import Call, checked_names, factors_of
from ._eager import eager_call
from ._errors import as_tensorflows
from ._execution import Execution

_FILE = "libdistrun_tensorflow.so"
_DATA_OPS = ("Allreduce", "Allgather", "Broadcast", "Alltoall", "Reducescatter")


# The kinds whose op has one output, a list of tensors.
_LISTS = frozenset({Kind.ALLREDUCE, Kind.BROADCAST, Kind.REDUCESCATTER})

# The defaults of the native ops' attributes (bindings/tensorflow/ops.cc). An eager call leaves out defaults, because
# TensorFlow takes half a microsecond for each attribute of each call.
_DEFAULTS: dict[str, Any] = {
    "tensor_name": "",
    "process_set": 0,
    "eager": 1,
    "grouped": 0,
    "reduce": ReduceOp.SUM.native,
    "prescale": repr(1.0),
    "postscale": repr(1.0),
    "root": 0,
}


@functools.lru_cache(maxsize=4096)
def _eager_attributes(what: Call) -> tuple[Any, ...]:
    """Returns the names and values of attributes that differ from the default, alternating."""
    chosen = {name: value for name, value in _attributes(what, True).items() if value != _DEFAULTS[name]}
    return tuple(word for pair in chosen.items() for word in pair)


@functools.lru_cache(maxsize=4096)
def _attributes(what: Call, eager: bool) -> dict[str, Any]:
    made: dict[str, Any] = {
        "tensor_name": "\n".join(what.names),
        "process_set": what.process_set,
        "eager": int(eager),
        "grouped": int(what.grouped),
    }
    if what.kind in (Kind.ALLREDUCE, Kind.REDUCESCATTER):
        made |= {
            "reduce": what.reduce.native,
            "prescale": repr(float(what.prescale)),
            "postscale": repr(float(what.postscale)),
        }
    if what.kind == Kind.BROADCAST:
        made["root"] = what.root
    return made


@functools.lru_cache(maxsize=4096)
def _allreduce_attributes(
    name: str | None, op: int | None, prescale: float, postscale: float, process_set: int
) -> tuple[Any, ...]:
    names = () if name is None else checked_names(name)
    reduce, factors = reduce_op(op), factors_of(prescale, postscale)
    return _eager_attributes(Call(Kind.ALLREDUCE, names, process_set, False, reduce, *factors))


def _flat(result: Any) -> list[Any]:
    if result is None or isinstance(result, tf.Operation):
        return []
    if not isinstance(result, list | tuple):
        return [result]
    flat: list[Any] = []
    for one in result:
        flat += _flat(one)
    return flat


def _in_loop(graph: Any) -> bool:
    while graph is not None:
        # The body of a loop, or of its gradient, whose class derives from it.
        if _names.is_a(graph, "WhileBodyFuncGraph"):
            return True
        graph = getattr(graph, "outer_graph", None)
    return False


def _attribute(op: Any, name: str) -> Any:
    try:
        value = op.get_attr(name)
    except KeyError:  # an eager call without this attribute
        return _DEFAULTS[name]
    return value.decode() if isinstance(value, bytes) else value


def call_of(kind: Kind, op: Any) -> Call:
    """Returns the call that a native op was made for."""
    name = _attribute(op, "tensor_name")
    what = Call(kind, tuple(name.split("\n")) if name else (), _attribute(op, "process_set"))
    what = what._replace(grouped=bool(_attribute(op, "grouped")))
    if kind in (Kind.ALLREDUCE, Kind.REDUCESCATTER):
        prescale, postscale = (float(_attribute(op, word)) for word in ("prescale", "postscale"))
        reduce = ReduceOp.of_native(_attribute(op, "reduce"))
        what = what._replace(reduce=reduce, prescale=prescale, postscale=postscale)
    return what._replace(root=_attribute(op, "root")) if kind == Kind.BROADCAST else what


@functools.cache
def _dtypes() -> frozenset[Any]:
    """Returns the dtypes that TensorFlow and distrun have."""
    found = set()
    for code in DType:
        with contextlib.suppress(TypeError):
            found.add(tf.as_dtype(code.name.rstrip("_")))
    return frozenset(found)


def _cure(dtype: Any) -> str:
    if dtype == tf.string:
        return "Send text with broadcast_object or allgather_object, as a list of bytes."
    if dtype.is_quantized:
        return f"To send its bytes, pass tf.bitcast(tensor, tf.{dtype.name.replace('q', '', 1)})."
    if dtype in (tf.resource, tf.variant):
        return "Pass the tensors that it holds."
    return "Cast it to a number, such as float32."


def _dtype_error(kind: Kind, names: Sequence[str], inputs: tuple[Any, ...]) -> errors.InvalidArgument | None:
    """Returns the error for a dtype that distrun does not have. The kernel's own has only TensorFlow's number of it."""
    operation = kind.name.lower()
    tensors = [] if not inputs else list(inputs[0]) if isinstance(inputs[0], list | tuple) else [inputs[0]]
    for index, tensor in enumerate(tensors):
        if tensor.dtype in _dtypes():
            continue
        name, place = "", f"_{index + 1}of{len(tensors)}" if len(tensors) > 1 else ""
        if names:
            name = f"{operation}." + (names[index] if len(names) == len(tensors) else names[0] + place)
        text = f"tensor '{name}': " if name else f"tensor {index + 1} of {len(tensors)}: " if place else ""
        return errors.InvalidArgument(
            f"{text}{operation} of dtype {tensor.dtype.name} is not supported. {_cure(tensor.dtype)}",
            tensor=name,
        )
    return None


class Unavailable(Exception):
    """This version of TensorFlow cannot use the op library. The text says why."""


class NativeOps(Execution):
    """Runs operations with the loaded library: its ops as TensorFlow's functions, and its C functions."""

    def __init__(self, ops: ModuleType, path: str) -> None:
        self._ops = ops
        # Indexed by number. Hashing a Kind takes longer than the rest of a look-up, which small operations notice.
        self._eager = [eager_call(ops, kind) for kind in sorted(Kind)]
        # Only after TensorFlow has loaded it: a library that was loaded before registers no ops.
        self._calls = ctypes.CDLL(path)
        self._held = ctypes.PyDLL(path)  # keeps the GIL
        for name in ("report", "bind", "attach"):
            getattr(self._calls, f"distrun_tensorflow_{name}").restype = ctypes.c_char_p
        self._calls.distrun_tensorflow_bind.argtypes = [ctypes.c_void_p]
        self._calls.distrun_tensorflow_attach.argtypes = [ctypes.c_void_p]
        self._calls.distrun_tensorflow_failure.argtypes = [ctypes.c_char_p, ctypes.POINTER(ErrorStruct)]
        self._calls.distrun_tensorflow_python.argtypes = [ctypes.c_void_p] * 5
        self._calls.distrun_tensorflow_python.restype = None

    def bind(self) -> str:
        """Connects the ops with the core's library and Python's signals. Returns why TensorFlow cannot use them, or
        ""."""
        report: bytes = self._calls.distrun_tensorflow_report()
        report = report or self._calls.distrun_tensorflow_bind(library()._handle)
        if not report:
            self.unordered = _unordered_ops()
            api = ctypes.pythonapi
            names = ("PyGILState_Ensure", "PyGILState_Release", "PyErr_CheckSignals", "PyErr_Fetch", "PyErr_Restore")
            self._calls.distrun_tensorflow_python(*(ctypes.cast(getattr(api, name), ctypes.c_void_p) for name in names))
        return report.decode()

    def eagerly(self, what: Call, inputs: tuple[Any, ...]) -> list[Any]:
        """Calls the op of this kind."""
        outcome = self._call(what.kind, inputs, _eager_attributes(what))
        return outcome if what.kind in _LISTS else _flat(outcome)

    def allreduce_eagerly(
        self, tensor: Any, name: str | None, op: int | None, prescale: float, postscale: float, process_set: ProcessSet
    ) -> Any:
        """Looks up the attributes by the options as given. Programs repeat the same ones, and parsing them takes a
        quarter of a small operation's time."""
        given = name, op, prescale, postscale, registered_id(process_set)
        try:
            attributes = _allreduce_attributes(*given)
        except TypeError:  # also for values that cannot be hashed: a tensor, an array
            attributes = None
        if attributes is None:
            attributes = _allreduce_attributes.__wrapped__(*given)
        return self._call(Kind.ALLREDUCE, ([tensor],), attributes)[0]

    def in_graph(self, what: Call, inputs: tuple[Any, ...], graph: Any) -> list[Any]:
        """Adds one op. In a loop it is one whose order TensorFlow keeps."""
        if wrong := _dtype_error(what.kind, what.names, inputs):
            raise ValueError(str(wrong))  # AutoGraph keeps the class of simple exceptions only
        name = f"distrun_{what.kind.name.lower()}"
        if what.kind not in (Kind.JOIN, Kind.BARRIER) and _in_loop(graph):
            name += "_ordered"
        result = getattr(self._ops, name)(*inputs, **_attributes(what, False))
        outputs = _flat(result)
        operation = result if isinstance(result, tf.Operation) else outputs[0].op
        # The other ranks wait for this op, whether its result is used or not. Ordered ops run in any case.
        if operation.type in self.unordered and hasattr(graph, "control_outputs"):
            graph.control_outputs.append(operation)
        return outputs if outputs else [operation]

    def _call(self, kind: Kind, inputs: tuple[Any, ...], attributes: tuple[Any, ...]) -> Any:
        try:
            return self._eager[kind](inputs, attributes)
        except tf.errors.OpError as failure:
            if isinstance(failure, tf.errors.CancelledError):
                self._held.distrun_tensorflow_raise_kept()  # raises a signal handler's exception
            given = dict(zip(attributes[::2], attributes[1::2], strict=True)).get("tensor_name", "")
            ours = _dtype_error(kind, given.split("\n") if given else (), inputs) or self.error_of(failure)
            if ours is None:
                raise
        raise as_tensorflows(ours)

    def error_of(self, failure: BaseException) -> errors.DistrunError | None:
        """Returns the error that the kernels stored, found by the text of TensorFlow's exception."""
        error = ErrorStruct(struct_size=ctypes.sizeof(ErrorStruct))
        if not self._calls.distrun_tensorflow_failure(str(failure).encode(errors="replace"), ctypes.byref(error)):
            return None
        return errors.from_struct(error)

    def attach(self, session: int) -> None:
        """Passes the session to the kernels."""
        failure = self._calls.distrun_tensorflow_attach(session).decode()
        if failure:
            raise errors.DistrunError(failure)

    def detach(self) -> bool:
        """Takes the session from the kernels. False if one of them still uses it."""
        return bool(self._calls.distrun_tensorflow_detach())

    def forget_numbers(self, process_set: int) -> None:
        """Restarts the numbers of eager operations, which the kernels count."""
        self._calls.distrun_tensorflow_forget_numbers(process_set)


def _refuse_if_loaded(path: str) -> None:
    """Raises if the library is loaded already. TensorFlow registers ops only when it loads a file, and from one
    file."""
    from tensorflow.python.framework import op_def_registry

    try:
        ctypes.CDLL(path, mode=os.RTLD_NOLOAD)
    except OSError:
        pass
    else:
        raise Unavailable("another module loaded distrun's op library before TensorFlow")
    if op_def_registry.get("DistrunAllreduce") is not None:
        raise ImportError(
            "another copy of distrun's TensorFlow library is already loaded in this process. Look for a second "
            "installed distrun on sys.path."
        )


def load() -> NativeOps:
    """Returns the ops, ready for a session. Unavailable if this version of TensorFlow cannot use them."""
    path = str(library_file().resolve().with_name(_FILE))
    _refuse_if_loaded(path)
    try:
        ops = tf.load_op_library(path)
    except (tf.errors.OpError, OSError) as error:
        raise Unavailable(f"TensorFlow cannot load {path}: {error}") from None
    native = NativeOps(ops, path)
    report = native.bind()
    if report:
        raise Unavailable(report)
    return native


def _unordered_ops() -> frozenset[str]:
    """Tells TensorFlow that a function's data operations need no order among themselves. Returns the ops' names."""
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
