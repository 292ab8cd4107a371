"""Names for operations in graphs, which must be equal on all ranks and different from each other.

TensorFlow traces a tf.function that others call once and keeps it for all callers, while those that call it
may be traced again, on one rank only (a last batch of another size). So a name says the function that the operation is
in and its place there, and what a function has called counts whether it was traced just now or long before.
"""

from __future__ import annotations

import collections
import itertools
import re
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from distrun._abi import Kind

# Kind, process set, name: the runtime tells those of each set apart, and only its members are there to count them.
_Names = set[tuple[Kind, int, str]]

# The attributes that hold the functions of the ops that call some.
_CALLED = {
    "PartitionedCall": ("f",),
    "StatefulPartitionedCall": ("f",),
    "If": ("then_branch", "else_branch"),
    "StatelessIf": ("then_branch", "else_branch"),
    "Case": ("branches",),
    "StatelessCase": ("branches",),
    "While": ("cond", "body"),
    "StatelessWhile": ("cond", "body"),
    # A loop over a dataset.
    "ScanDataset": ("f",),
    "ReduceDataset": ("f",),
}


def is_a(graph: Any, name: str) -> bool:
    """Whether it is of TensorFlow's class `name`, or of one made from that."""
    return any(kind.__name__ == name for kind in type(graph).__mro__)


def _around(graph: Any) -> Any:
    return getattr(graph, "outer_graph", None)


def _function_graph(graph: Any) -> Any:
    """Of the function that is traced, whose branches and loops have graphs of their own, with names that hold a number
    of this process; or the v1 graph."""
    while is_a(graph, "ControlFlowFuncGraph") and _around(graph) is not None:
        graph = _around(graph)
    return graph


def _function_name(graph: Any) -> str:
    name = getattr(graph, "name", None) or "graph"
    # TensorFlow numbers what it makes of a function as this process comes to it.
    made = re.fullmatch(r"__(backward|forward|inference)_(.+)_\d+", name)
    if made is not None:
        name = f"{made[2]}_grad" if made[1] == "backward" else made[2]
    return re.sub(r"\W", "_", name)


def _own_names(graph: Any) -> _Names:
    """Of the function itself, with its branches and loops, not of those that it calls."""
    if not hasattr(graph, "_distrun_names"):
        graph._distrun_names = set()
    names: _Names = graph._distrun_names
    return names


def _called(graph: Any) -> set[Any]:
    """The graphs of all that it has called so far, directly or not."""
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
    """So far: TensorFlow adds an input to a function that is traced when it comes to the variable."""
    return any(one.dtype == tf.resource for one in graph.inputs)


def _in_order(graph: Any) -> bool:
    """Whether calls of this function run one after the other in those that call it: TensorFlow orders calls that use no
    variable. (Right in a v1 graph it orders none, and each function counts by itself.)"""
    while hasattr(_around(graph), "outer_graph"):
        if _uses_variable(graph):
            return False
        graph = _around(graph)
    return True


def _called_in_any_order(graph: Any) -> set[Any]:
    """Of those that it has called: finished ones that use a variable, maybe after their operations, and all in them."""
    using = {one for one in _called(graph) if _uses_variable(one)}
    return using.union(*map(_called, using))


def _counted(graph: Any) -> Iterator[Any]:
    """The functions whose names this graph's must differ from. Where calls run in order not those of other traces of
    the same function: they have their names in common, since on another rank one trace may serve for both."""
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
    """The name of an operation that the program has not named: its function's, and the number there among those of its
    process set."""
    function = _function_graph(graph)
    if not hasattr(function, "_distrun_numbers"):
        function._distrun_numbers = collections.Counter()
    numbers: collections.Counter[tuple[Kind, int]] = function._distrun_numbers
    numbers[kind, process_set] += 1
    return f"{_function_name(function)}.{numbers[kind, process_set] - 1}"


def once(kind: Kind, process_set: int, names: tuple[str, ...], graph: Any) -> tuple[str, ...]:
    """The names, numbered where others have them already: nothing orders a graph's operations, so on another rank
    another one of the same name could come first."""
    taken: _Names = set().union(*map(_own_names, _counted(graph)))
    found = []
    for name in names:
        numbered = (name if use == 1 else f"{name}#{use}" for use in itertools.count(1))
        free = next(one for one in numbered if (kind, process_set, one) not in taken)
        taken.add((kind, process_set, free))
        _own_names(_function_graph(graph)).add((kind, process_set, free))
        found.append(free)
    return tuple(found)
