"""Names for operations in graphs. They must be equal on all ranks, and differ from each other.

TensorFlow traces an inner tf.function once and uses that trace for all callers. It may trace a caller again, on one
rank only (a last batch of another size). So a name has the function that contains the operation, and the operation's
place in it. The names in called functions count as used, no matter when those functions were traced.
"""

from __future__ import annotations

import collections
import itertools
import re
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from distrun._abi import Kind

# Kind, process set, name. The runtime separates the names of each set, and only the set's members count them.
_Names = set[tuple[Kind, int, str]]

# For each type of op that calls functions: the attributes with these functions.
_CALLED = {
    "PartitionedCall": ("f",),
    "StatefulPartitionedCall": ("f",),
    "If": ("then_branch", "else_branch"),
    "StatelessIf": ("then_branch", "else_branch"),
    "Case": ("branches",),
    "StatelessCase": ("branches",),
    "While": ("cond", "body"),
    "StatelessWhile": ("cond", "body"),
    # Loops over datasets.
    "ScanDataset": ("f",),
    "ReduceDataset": ("f",),
}


def is_a(graph: Any, name: str) -> bool:
    """True if the graph's class, or a base of it, is TensorFlow's class `name`."""
    return any(kind.__name__ == name for kind in type(graph).__mro__)


def _around(graph: Any) -> Any:
    return getattr(graph, "outer_graph", None)


def _function_graph(graph: Any) -> Any:
    """Returns the graph of the function that is traced, or the v1 graph.

    Its branches and loops have graphs of their own, whose names have a number that differs among processes.
    """
    while is_a(graph, "ControlFlowFuncGraph") and _around(graph) is not None:
        graph = _around(graph)
    return graph


def _function_name(graph: Any) -> str:
    name = getattr(graph, "name", None) or "graph"
    # TensorFlow adds a number to the functions that it makes. The number depends on the order in this process.
    made = re.fullmatch(r"__(backward|forward|inference)_(.+)_\d+", name)
    if made is not None:
        name = f"{made[2]}_grad" if made[1] == "backward" else made[2]
    return re.sub(r"\W", "_", name)


def _own_names(graph: Any) -> _Names:
    """Returns the names used in the function itself and in its branches and loops, without the functions that it
    calls."""
    if not hasattr(graph, "_distrun_names"):
        graph._distrun_names = set()
    names: _Names = graph._distrun_names
    return names


def _called(graph: Any) -> set[Any]:
    """Returns the graphs of all functions that it has called so far, directly or indirectly."""
    known: tuple[int, set[Any]] = getattr(graph, "_distrun_called", (0, set()))
    seen, found = known
    operations = graph.get_operations()
    for operation in operations[seen:]:
        for attribute in _CALLED.get(operation.type, ()):
            value = operation.get_attr(attribute)
            for one in value if isinstance(value, list) else [value]:
                inner = getattr(graph._get_function(one.name), "graph", None)
                found |= set() if inner is None else {inner, *_called(inner)}
    graph._distrun_called = len(operations), found
    return found


def _uses_variable(graph: Any) -> bool:
    """True if the function uses a variable so far. During the trace TensorFlow adds an input when it meets a
    variable."""
    return any(one.dtype == tf.resource for one in graph.inputs)


def _in_order(graph: Any) -> bool:
    """True if TensorFlow runs the calls of this function one after the other.

    It does so for calls that use no variable. (It orders no calls of a v1 graph. The result is True for a function
    there, because the operations of each function are numbered separately.)
    """
    while hasattr(_around(graph), "outer_graph"):
        if _uses_variable(graph):
            return False
        graph = _around(graph)
    return True


def _called_in_any_order(graph: Any) -> set[Any]:
    """Returns the called functions that use a variable, perhaps only after their operations, and all that they call."""
    using = {one for one in _called(graph) if _uses_variable(one)}
    return using.union(*map(_called, using))


def _counted(graph: Any) -> Iterator[Any]:
    """Yields the functions whose names must differ from those in this graph.

    If calls run in order, other traces of the same function are left out. They share their names, because on another
    rank one trace may serve both calls.
    """
    function = _function_graph(graph)
    name = _function_name(function) if _in_order(function) else None
    inside = True
    while graph is not None:
        yield from (one for one in _called(graph) if inside or _function_name(one) != name)
        yield from () if inside else _called_in_any_order(graph)
        if not is_a(graph, "ControlFlowFuncGraph"):
            yield graph
        inside = inside and graph is not function
        graph = _around(graph)


def place(kind: Kind, process_set: int, graph: Any) -> str:
    """Returns the name of an unnamed operation: its function, and its number there among those of its process set."""
    function = _function_graph(graph)
    if not hasattr(function, "_distrun_numbers"):
        function._distrun_numbers = collections.Counter()
    numbers: collections.Counter[tuple[Kind, int]] = function._distrun_numbers
    numbers[kind, process_set] += 1
    return f"{_function_name(function)}.{numbers[kind, process_set] - 1}"


def once(kind: Kind, process_set: int, names: tuple[str, ...], graph: Any) -> tuple[str, ...]:
    """Returns the names, with a number added to those that are in use.

    A graph does not order its operations, so on another rank another one of the same name could run first.
    """
    taken: _Names = set().union(*map(_own_names, _counted(graph)))
    found = []
    for name in names:
        numbered = (name if use == 1 else f"{name}#{use}" for use in itertools.count(1))
        free = next(one for one in numbered if (kind, process_set, one) not in taken)
        taken.add((kind, process_set, free))
        _own_names(_function_graph(graph)).add((kind, process_set, free))
        found.append(free)
    return tuple(found)
