"""Names for operations inside compiled programs.

A name is fixed when a function is traced. It must be equal on all ranks, and differ from all others. A rank may trace a
function again (a last batch of another size) while the others do not. JAX also keeps the traces of inner functions: of
an inner jax.jit, of a body of lax.scan, of jax.checkpoint. So operations are counted within the innermost function, and
the place of that function in the source is part of the name: "allreduce.train_step@train.py:12.0". Operations of a
process set have a count of their own, since only its members run them: "allreduce.train_step@train.py:12.0@1".
"""

from __future__ import annotations

import itertools
import pathlib
import weakref
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import jax
from distrun import _session
from distrun.process_sets import ProcessSet

_counters: weakref.WeakKeyDictionary[Any, defaultdict[str, Iterator[int]]] = weakref.WeakKeyDictionary()
# For each function being traced: the number of equations examined so far, and the names found in them.
_looked: weakref.WeakKeyDictionary[Any, tuple[int, set[str]]] = weakref.WeakKeyDictionary()
_kept: weakref.WeakKeyDictionary[Any, frozenset[str]] = weakref.WeakKeyDictionary()


def functions() -> list[Any]:
    """Returns the traces of the program's functions that will be compiled, the innermost first.

    They are not public; returns none if this version of JAX does not expose them.
    """
    try:
        from jax._src import core

        trace, found = core.trace_ctx.trace, []
        while trace is not None:
            if type(trace).__name__ == "DynamicJaxprTrace":
                found.append(trace)
            trace = getattr(trace, "parent_trace", None)
        return found
    except (ImportError, AttributeError):
        return []


def refuse_inside_programs(call: str) -> None:
    """Raises RuntimeError inside a function that is traced. `call` is no operation: it would run once, during the
    trace."""
    if functions():
        raise RuntimeError(
            f"{call}() was called in a function that JAX compiles (jax.jit, or the body of lax.scan, cond or "
            "checkpoint). It would run once, while JAX traces the function, and not when the program runs. Call it "
            "before or after the compiled function."
        )


def _function(trace: Any) -> str:
    for owner in (trace.frame, trace):
        place = getattr(getattr(owner, "debug_info", None), "func_src_info", None)
        if isinstance(place, str):  # "train_step at /home/me/train.py:12"
            name, _, line = place.partition(" at ")
            return f"{name}@{pathlib.PurePath(line).name}" if line else name
    return "jit"


def _names_so_far(trace: Any) -> set[str]:
    """Returns the names in the function's equations so far. There may be thousands, so each is examined once."""
    frame = trace.frame
    made: list[Any] = frame.tracing_eqns if hasattr(frame, "tracing_eqns") else getattr(frame, "eqns", [])
    looked, names = _looked.get(trace, (0, set()))
    for one in made[looked:]:
        equation = one() if isinstance(one, weakref.ref) else one
        if equation is not None:  # JAX frees an equation if nothing uses its results
            names.update(_names_of(equation))
    _looked[trace] = len(made), names
    return names


def _names_of(equation: Any) -> Iterator[str]:
    """Yields the names of an equation's operations, also of those in functions that it calls."""
    params = equation.params
    if "attributes" in params:  # it is a foreign call
        yield str(dict(params["attributes"]).get("name"))
    yield from getattr(getattr(params.get("callback"), "callback_func", None), "distrun_names", ())
    for value in params.values():
        for function in value if isinstance(value, tuple) else (value,):
            if hasattr(function, "eqns"):
                yield from _names_in(function)


def _names_in(function: Any) -> frozenset[str]:
    if function not in _kept:
        _kept[function] = frozenset(name for equation in function.eqns for name in _names_of(equation))
    return _kept[function]


def refuse_several_devices() -> None:
    """Raises NotImplementedError if the program runs on several devices, since each would submit the operation.

    Arrays that are sharded over devices cannot be recognized while JAX traces.
    """
    if jax.local_device_count() == 1:
        return
    try:
        from jax._src import core

        mapped = dict(core.get_axis_env().axis_sizes)
        # vmap has a named axis too, but stays on one device. A grad may lie between it and the operation.
        trace: Any = core.trace_ctx.trace
        while trace is not None:
            if type(trace).__name__ == "BatchTrace":
                mapped.pop(trace.axis_data.name, None)
            trace = getattr(trace, "parent_trace", None)
    except (ImportError, AttributeError):
        return
    if any(size != 1 for size in mapped.values()):
        raise NotImplementedError(
            "this program runs on several devices of one rank (jax.pmap, shard_map), and each of them would submit "
            "the operation. Start one rank for each device, and use jax.jit."
        )


def in_set(name: str, process_set: ProcessSet) -> str:
    """Adds the process set's id to a name, because XLA may run operations of several sets at the same time."""
    return f"{name}@{process_set.process_set_id}" if process_set.process_set_id else name


def traced(operation: str, process_set: ProcessSet) -> str:
    """Returns the name of the program's next operation of this kind.

    Outside a traced function (a vmap alone), a counter numbers the operations; it restarts at 0 after join.
    """
    traces = functions()
    if not traces:
        number = _session.current().number(f"jax.traced.{operation}", process_set.process_set_id or 0)
        return f"{operation}.jit.{number}"
    counters = _counters.setdefault(traces[0], defaultdict(itertools.count))
    name = in_set(f"{operation}.{_function(traces[0])}.{next(counters[in_set(operation, process_set)])}", process_set)
    # Two functions on one line, or one function traced for two shapes, give the same name: add a number.
    return _free(name, itertools.count(), traces)


def distinct(name: str) -> str:
    """Returns a name that the program gave. Adds a number if the innermost function or its callees have used the name.

    Outer functions are ignored: JAX reuses the inner trace, which another rank may have made for another caller.
    """
    traces = functions()[:1]
    counters = _counters.setdefault(traces[0], defaultdict(itertools.count)) if traces else defaultdict(itertools.count)
    return _free(name, counters[name], traces)


def _free(name: str, uses: Iterator[int], traces: list[Any]) -> str:
    taken = [_names_so_far(trace) for trace in traces]
    numbered = (f"{name}#{use + 1}" if use else name for use in uses)
    return next(one for one in numbered if not any(one in names for names in taken))
