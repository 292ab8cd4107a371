"""One call of an operation: its names and options, and the way to run it, natively or by Python functions."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from distrun import _arguments
from distrun._abi import Kind, ReduceOp
from distrun._collectives import check_group, reduce_op
from distrun.process_sets import ProcessSet, registered_id

from . import _fallback, _names, _native
from ._eager import EagerCall

_Tensor = tf.Tensor
executing_eagerly = tf.executing_eagerly  # looking them up in TensorFlow's lazy module takes longer than the call


class Call(NamedTuple):
    """What all tensors of an operation have in common. names: empty (numbered), one, or one for each tensor."""

    kind: Kind
    names: tuple[str, ...]
    process_set: int
    grouped: bool = False
    reduce: ReduceOp = ReduceOp.SUM
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = 0


def call(kind: Kind, names: str | Sequence[str] | None, process_set: ProcessSet, **options: Any) -> Call:
    """A call of the front end's; unnamed ones are named by the place in the graph, or numbered when eager."""
    members = registered_id(process_set)
    if names is None:
        given: tuple[str, ...] = (
            () if executing_eagerly() else (_names.place(kind, members, tf.compat.v1.get_default_graph()),)
        )
    else:
        given = checked_names(names)
    if "root" in options:  # the op would take its lowest 32 bits
        options["root"] = _arguments.root_rank(options["root"])
    return Call(kind, given, members, **options)


def checked_names(names: object) -> tuple[str, ...]:
    """One name or several, each of which the op library can tell from the next."""
    given = tuple(names) if isinstance(names, list | tuple) else (names,)
    for name in given:
        if not _arguments.name(name):
            raise ValueError(f"name is one line of text, not {name!r}.")
    return given


def factor_of(argument: str, value: Any) -> float:
    """What tensors are multiplied by. A tensor would be a number of the operation in eager mode only."""
    if type(value) is float:  # nearly all: TensorFlow takes as long to say what is a tensor as a small operation takes
        return value
    if tf.is_tensor(value):
        raise TypeError(
            f"{argument} is a number, which an operation has for good, not {value!r:.60}: multiply what is reduced, or "
            "the result, by a tensor."
        )
    return _arguments.number(argument, value)


def _in_loop(graph: Any) -> bool:
    while graph is not None:
        # Of the loop itself, or of its gradient, whose class is made from it.
        if _names.is_a(graph, "WhileBodyFuncGraph"):
            return True
        graph = getattr(graph, "outer_graph", None)
    return False


def _warn_of_overlap(graph: Any, kind: Kind) -> None:
    """Of the loops of TensorFlow 1, once for each: what their iterations take from each other is all that orders them.
    Those of its successor do not show the number."""
    context = graph._get_control_flow_context()
    while context is not None:
        overlaps = context.IsWhileContext() and context.parallel_iterations != 1
        if overlaps and not hasattr(context, "_distrun_warned"):
            context._distrun_warned = True
            warnings.warn(
                f"{kind.name.lower()} in the loop {context.name} of a v1 graph (tf.while_loop, map_fn, dynamic_rnn): "
                "unless each of its iterations needs the one before, they may overlap, and on another rank another one "
                "comes first. Pass parallel_iterations=1 to the loop.",
                stacklevel=2,
            )
        context = context.outer_context


# Of the native ops (bindings/tensorflow/ops.cc). An eager call leaves out what has its default: TensorFlow takes half a
# microsecond for each attribute of each call.
DEFAULTS: dict[str, Any] = {
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
    """Names and values in turn, those that are not the default."""
    chosen = {name: value for name, value in _attributes(what, True).items() if value != DEFAULTS[name]}
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


def run(what: Call, *inputs: Any) -> list[Any]:
    """All outputs. inputs: the list of tensors; for alltoall the tensor and the splits (int64)."""
    if what.grouped:
        name = f"'{what.names[0]}'" if what.names else "without a name"
        check_group(f"the grouped {what.kind.name.lower()} {name}", len(inputs[0]))
    native = _native.native()
    if executing_eagerly():
        if native is None:
            return _fallback.run(what, *inputs)
        outcome = _eagerly(native.eager[what.kind], inputs, _eager_attributes(what))
        return outcome if what.kind in _LISTS else _flat(outcome)
    graph = tf.compat.v1.get_default_graph()
    _warn_of_overlap(graph, what.kind)
    # The gradient of an eager operation that had no name, in a graph: in a Jacobian.
    names = what.names or (_names.place(what.kind, what.process_set, graph),)
    what = what._replace(names=_names.once(what.kind, what.process_set, names, graph))
    if native is None:
        return _fallback.run(what, *inputs)
    name = f"distrun_{what.kind.name.lower()}"
    if what.kind not in (Kind.JOIN, Kind.BARRIER) and _in_loop(graph):
        name += "_ordered"
    result = getattr(native.ops, name)(*inputs, **_attributes(what, False))
    outputs = _flat(result)
    operation = result if isinstance(result, tf.Operation) else outputs[0].op
    # The other ranks wait for this one, whether it uses the result or not. Ordered ones run in any case.
    if operation.type in native.unordered and hasattr(graph, "control_outputs"):
        graph.control_outputs.append(operation)
    return outputs if outputs else [operation]


# Their one output is a list of tensors.
_LISTS = frozenset({Kind.ALLREDUCE, Kind.BROADCAST, Kind.REDUCESCATTER})


@functools.lru_cache(maxsize=4096)
def _allreduce_attributes(
    name: str | None, op: int | None, prescale: float, postscale: float, process_set: int
) -> tuple[Any, ...]:
    names = () if name is None else checked_names(name)
    reduce, factors = reduce_op(op), (factor_of("prescale_factor", prescale), factor_of("postscale_factor", postscale))
    return _eager_attributes(Call(Kind.ALLREDUCE, names, process_set, False, reduce, *factors))


def is_native_eager(tensor: Any) -> bool:
    """Whether an operation on `tensor` is an eager call of a native op."""
    return isinstance(tensor, _Tensor) and executing_eagerly() and _native.native() is not None


def eager_allreduce(
    tensor: Any, name: str | None, op: int | None, prescale: float, postscale: float, process_set: ProcessSet
) -> Any:
    """Of what is_native_eager(). The options are looked up as they were given, since a program repeats itself and to
    read them takes a quarter of the time of a small operation."""
    native = _native.native()
    assert native is not None
    given = name, op, prescale, postscale, registered_id(process_set)
    try:
        attributes = _allreduce_attributes(*given)
    except TypeError:  # also of what cannot be looked up: a tensor, an array
        attributes = None
    if attributes is None:
        attributes = _allreduce_attributes.__wrapped__(*given)
    return _eagerly(native.eager[Kind.ALLREDUCE], ([tensor],), attributes)[0]


def _eagerly(function: EagerCall, inputs: tuple[Any, ...], attributes: tuple[Any, ...]) -> Any:
    try:
        result = function(inputs, attributes)
    except tf.errors.OpError as failure:
        if isinstance(failure, tf.errors.CancelledError):
            _native.raise_kept()
        ours = _native.distrun_error(failure)
        if ours is None:
            raise
    else:
        return result
    raise ours


def _flat(result: Any) -> list[Any]:
    if result is None or isinstance(result, tf.Operation):
        return []
    if not isinstance(result, list | tuple):
        return [result]
    flat: list[Any] = []
    for one in result:
        flat += _flat(one)
    return flat
