"""One call of an operation: its names and options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from distrun import _arguments
from distrun._abi import Kind, ReduceOp
from distrun.process_sets import ProcessSet, registered_id

from . import _names

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
    """One name or several, each one line of text: the op library separates names by line ends."""
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


def factors_of(prescale: Any, postscale: Any) -> tuple[float, float]:
    """Both factors of a reduction."""
    return factor_of("prescale_factor", prescale), factor_of("postscale_factor", postscale)
