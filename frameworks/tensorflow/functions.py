"""Broadcasts of the initial state: variables and objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import tensorflow as tf
from distrun import _objects, _seeds
from distrun._abi import Kind
from distrun._parameters import layer_path, slot_path, without_numbers
from distrun._session import world
from distrun.process_sets import ProcessSet, global_process_set

from ._call import call
from ._execution import run


def variable_names(variables: Sequence[Any], shortened: Callable[[str], str] = layer_path) -> list[str]:
    """Returns a name for each variable, equal on all ranks: layer and variable, or TensorFlow's name.

    Keras's counters of layers are removed. From its second use on, a name gets a number.
    """
    uses: dict[str, int] = {}
    names = []
    for variable in variables:
        path, name = getattr(variable, "path", None), getattr(variable, "name", None) or "variable"
        text = shortened(str(path)) if path else without_numbers(str(name).partition(":")[0])
        name = re.sub(r"\s", "_", text)
        uses[name] = uses.get(name, 0) + 1
        names.append(name if uses[name] == 1 else f"{name}.{uses[name]}")
    return names


def broadcast_variables(
    variables: Iterable[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """Overwrites variables with the values of rank `root_rank`. In a graph, returns the operation that does.
    Collective.

    All variables are one batch. Seeds of random numbers (Keras's SeedGenerator, tf.random.Generator) become a function
    of the root's seed and of the rank. `inplace` is Horovod's and has no effect: the variables are always assigned.
    TypeError for values that are not variables.
    """
    del inplace
    made = _assigned(_listed(variables), root_rank, None, process_set)
    return None if tf.executing_eagerly() else tf.group(*made)


def broadcast_(
    variables: Iterable[Any], root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Like broadcast_variables, but under one name. Returns the variables; in a graph, their new values."""
    given = _listed(variables)
    made = _assigned(given, root_rank, name, process_set)
    return given if tf.executing_eagerly() else made


def _listed(variables: object) -> list[Any]:
    """Returns the variables as a list. TypeError for a model, an optimizer, a single variable, a dict and other
    values."""
    if not isinstance(variables, Iterable) or isinstance(variables, str | bytes | Mapping) or _is_one(variables):
        raise TypeError(
            f"variables must be a list of variables, such as model.variables, not {type(variables).__name__}."
        )
    given = list(variables)
    for index, one in enumerate(given):
        if not _is_one(one):
            raise TypeError(
                f"variables must be a list of variables, such as model.variables, but number {index} is "
                f"{type(one).__name__}. Send other values with broadcast_object."
            )
    return given


def _is_one(variable: object) -> bool:
    """True for a variable of TensorFlow or of Keras, which have different classes."""
    return hasattr(variable, "assign") and hasattr(variable, "dtype")


def _assigned(variables: list[Any], root_rank: int, name: str | None, process_set: ProcessSet) -> list[Any]:
    if not variables:
        return []
    names = [f"variable.{one}" for one in variable_names(variables, slot_path)] if name is None else name
    what = call(Kind.BROADCAST, names, process_set, root=root_rank)
    given = [tf.convert_to_tensor(variable) for variable in variables]
    values = run(what, given)
    own = _seeds.mask(world().rank, int(root_rank))
    for index, key in _seeds.places(variables).items():
        masks = np.zeros(given[index].shape, given[index].dtype.as_numpy_dtype)
        masks[key] = own
        values[index] = tf.bitwise.bitwise_xor(values[index], tf.constant(masks))
    return [variable.assign(value) for variable, value in zip(variables, values, strict=True)]


def broadcast_global_variables(root_rank: int) -> Any:
    """Returns the operation that broadcasts all global variables of the v1 graph from rank `root_rank`.

    RuntimeError in eager mode.
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "hvd.broadcast_global_variables() does not support eager execution. Please use "
            "`hvd.broadcast_variables(<model/optimizer variables>)` instead."
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """Broadcasts all global variables from rank `root_rank` after a session of a v1 graph was created.

    So all ranks start with the same random initial values, or with those that the root restored from a checkpoint.
    `device` is Horovod's and has no effect.
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        del device
        super().__init__()
        self.root_rank = root_rank
        self.bcast_op: Any = None

    def begin(self) -> None:
        """Adds the operation to the graph, before it is finalized."""
        if self.bcast_op is None or self.bcast_op.graph is not tf.compat.v1.get_default_graph():
            self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Runs the operation."""
        del coord
        session.run(self.bcast_op)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    *,
    allow_pickle: bool = False,
) -> Any:
    """Returns the object of rank `root_rank` on every member; see distrun.broadcast_object(). Collective; blocks.

    `session` is Horovod's and has no effect.
    """
    del session
    return _objects.broadcast_object(obj, root_rank, name, process_set, allow_pickle=allow_pickle)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    *,
    allow_pickle: bool = False,
) -> Callable[[Any], Any]:
    """Returns a function that broadcasts its argument as broadcast_object() does."""
    del session
    return lambda obj: _objects.broadcast_object(obj, root_rank, name, process_set, allow_pickle=allow_pickle)


def allgather_object(
    obj: Any,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    *,
    allow_pickle: bool = False,
) -> list[Any]:
    """Returns the objects of all members, in rank order; see distrun.allgather_object(). Collective; blocks.

    `session` is Horovod's and has no effect.
    """
    del session
    return _objects.allgather_object(obj, name, process_set, allow_pickle=allow_pickle)
