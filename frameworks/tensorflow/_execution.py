"""Runs the operations: by native ops, or by Python functions if this version of TensorFlow cannot load the ops.

init() chooses one Execution for the process. The rest of the package uses it without knowing which one it is.
"""

from __future__ import annotations

import warnings
from typing import Any

import tensorflow as tf
from distrun import _session, errors
from distrun._abi import Kind
from distrun._collectives import check_group, reduction
from distrun.process_sets import ProcessSet

from . import _names
from ._call import Call, call, executing_eagerly, factors_of


class Execution:
    """Runs operations whose names and options are checked. Inputs and outputs are those of `run`."""

    # Types of ops that a tf.function may run in any order relative to each other.
    unordered: frozenset[str] = frozenset()

    def eagerly(self, what: Call, inputs: tuple[Any, ...]) -> list[Any]:
        """Runs the operation outside of graphs."""
        raise NotImplementedError

    def in_graph(self, what: Call, inputs: tuple[Any, ...], graph: Any) -> list[Any]:
        """Adds the operation to `graph`, which is being built."""
        raise NotImplementedError

    def allreduce_eagerly(
        self, tensor: Any, name: str | None, op: int | None, prescale: float, postscale: float, process_set: ProcessSet
    ) -> Any:
        """Reduces one tensor outside of graphs, with the options as the program gave them."""
        how = reduction(op, *factors_of(prescale, postscale))
        return self.eagerly(call(Kind.ALLREDUCE, name, process_set, **how), ([tensor],))[0]

    def error_of(self, failure: BaseException) -> errors.DistrunError | None:
        """Returns the distrun exception behind an exception of TensorFlow's own class; None if there is none."""
        raise NotImplementedError

    def attach(self, session: int) -> None:
        """Gets the native session right after it was opened. DistrunError if it cannot be used."""

    def detach(self) -> bool:
        """Returns when no operation uses the session any more; False if one still does."""
        return True

    def forget_numbers(self, process_set: int) -> None:
        """Restarts the numbers of unnamed operations at 0."""


_chosen: Execution | None = None


def use(chosen: Execution) -> None:
    """Sets the Execution of this process."""
    global _chosen
    _chosen = chosen


def execution() -> Execution:
    """Returns the Execution that init() chose; NotInitialized before the first init()."""
    if _chosen is None:
        _session.current()
    assert _chosen is not None
    return _chosen


def _warn_of_overlap(graph: Any, kind: Kind) -> None:
    """Warns, once per loop, of an operation in a TensorFlow 1 loop whose iterations may overlap.

    Only data dependencies order such iterations. Loops of TensorFlow 2 do not show parallel_iterations.
    """
    context = graph._get_control_flow_context()
    while context is not None:
        overlaps = context.IsWhileContext() and context.parallel_iterations != 1
        if overlaps and not hasattr(context, "_distrun_warned"):
            context._distrun_warned = True
            warnings.warn(
                f"{kind.name.lower()} in the loop {context.name} of a v1 graph (tf.while_loop, map_fn, dynamic_rnn): "
                "its iterations may overlap, and in another order on each rank. Pass parallel_iterations=1 to the "
                "loop.",
                stacklevel=2,
            )
        context = context.outer_context


def run(what: Call, *inputs: Any) -> list[Any]:
    """Runs a call and returns all outputs. inputs: the list of tensors; for alltoall the tensor and its splits
    (int64)."""
    if what.grouped:
        name = f"'{what.names[0]}'" if what.names else "without a name"
        check_group(f"the grouped {what.kind.name.lower()} {name}", len(inputs[0]))
    if executing_eagerly():
        return execution().eagerly(what, inputs)
    graph = tf.compat.v1.get_default_graph()
    _warn_of_overlap(graph, what.kind)
    # Without a name: the gradient of an unnamed eager operation, computed in a graph, as for a Jacobian.
    names = what.names or (_names.place(what.kind, what.process_set, graph),)
    named = what._replace(names=_names.once(what.kind, what.process_set, names, graph))
    return execution().in_graph(named, inputs, graph)


def distrun_error(exception: BaseException) -> errors.DistrunError | None:
    """Returns the distrun exception behind one of TensorFlow's, with ranks, host and cause; None if there is none.

    TensorFlow raises its own classes for failures inside a graph.
    """
    if isinstance(exception, errors.DistrunError):
        return exception
    return None if _chosen is None else _chosen.error_of(exception)
