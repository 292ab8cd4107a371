"""One call of an operation, with its names and options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from distrun import _arguments
from distrun._abi import Kind, ReduceOp
from distrun.process_sets import ProcessSet, registered_id

from . import _names

executing_eagerly = tf.executing_eagerly  # a look-up in TensorFlow's lazy module takes longer than the call


class Call(NamedTuple):
    """The options that all tensors of an operation share. names: empty (numbered), one, or one for each tensor."""

    kind: Kind
    names: tuple[str, ...]
    process_set: int
    grouped: bool = False
    reduce: ReduceOp = ReduceOp.SUM
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = 0


def call(kind: Kind, names: str | Sequence[str] | None, process_set: ProcessSet, **options: Any) -> Call:
    """Returns a call. Without names, it is numbered in eager mode; in a graph its name is its place in the graph."""
    members = registered_id(process_set)
    if names is None:
        given: tuple[str, ...] = (
            () if executing_eagerly() else (_names.place(kind, members, tf.compat.v1.get_default_graph()),)
        )
    else:
        given = checked_names(names)
    if "root" in options:  # the op would keep only the lowest 32 bits
        options["root"] = _arguments.root_rank(options["root"])
    return Call(kind, given, members, **options)


def checked_names(names: object) -> tuple[str, ...]:
    """Returns one or several names. Each is one line of text, because the op library separates names by line ends."""
    given = tuple(names) if isinstance(names, list | tuple) else (names,)
    for name in given:
        if not _arguments.name(name):
            raise ValueError(f"name must be one line of text: {name!r}.")
    return given


def factor_of(argument: str, value: Any) -> float:
    """Returns a factor for tensors. A tensor is refused: it would give a constant of the operation in eager mode
    only."""
    if type(value) is float:  # nearly always; tf.is_tensor takes as long as a small operation
        return value
    if tf.is_tensor(value):
        raise TypeError(
            f"{argument} must be a number, not a tensor: {value!r:.60}. Multiply the input or the result by the "
            "tensor instead."
        )
    return _arguments.number(argument, value)


def factors_of(prescale: Any, postscale: Any) -> tuple[float, float]:
    """Checks and returns both factors of a reduction."""
    return factor_of("prescale_factor", prescale), factor_of("postscale_factor", postscale)
