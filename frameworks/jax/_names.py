"""Names for operations inside compiled programs.

They are fixed when a function is traced, must be equal on all ranks and different from each other. A rank may trace a
function again (a last batch of another size) while the others do not, and JAX keeps what it traced of the functions
inside it: of an inner jax.jit, of a body of lax.scan, of jax.checkpoint. So operations are counted in the innermost
function, and where that is written is part of their names: "allreduce.train_step@train.py:12.0". Those of a process set
are counted by themselves, as only its members may have them: "allreduce.train_step@train.py:12.0@1".
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
# Of each function that is being traced: how many equations were looked at, and the names in them.
_looked: weakref.WeakKeyDictionary[Any, tuple[int, set[str]]] = weakref.WeakKeyDictionary()
_kept: weakref.WeakKeyDictionary[Any, frozenset[str]] = weakref.WeakKeyDictionary()


def functions() -> list[Any]:
    """Of the functions of the program that will be compiled, the innermost first; none where JAX does not show them
    (they are not public)."""
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
    """RuntimeError for what is no operation of a program: JAX would make it while it traces, and never again."""
    if functions():
        raise RuntimeError(
            f"{call}() was called in a function that JAX compiles (jax.jit, or a body of lax.scan, cond or "
            "checkpoint): it would be done once, while the function is traced, on the ranks that trace it, and not "
            "when the program runs. Call it outside, before or after the compiled function."
        )


def _function(trace: Any) -> str:
    for owner in (trace.frame, trace):
        place = getattr(getattr(owner, "debug_info", None), "func_src_info", None)
        if isinstance(place, str):  # "train_step at /home/me/train.py:12"
            name, _, line = place.partition(" at ")
            return f"{name}@{pathlib.PurePath(line).name}" if line else name
    return "jit"


def _names_so_far(trace: Any) -> set[str]:
    """In the equations that the function has made; a step may have many thousands, and each is looked at once."""
    frame = trace.frame
    made: list[Any] = frame.tracing_eqns if hasattr(frame, "tracing_eqns") else getattr(frame, "eqns", [])
    looked, names = _looked.get(trace, (0, set()))
    for one in made[looked:]:
        equation = one() if isinstance(one, weakref.ref) else one
        if equation is not None:  # JAX lets go of those whose results nothing uses
            names.update(_names_of(equation))
    _looked[trace] = len(made), names
    return names


def _names_of(equation: Any) -> Iterator[str]:
    """Of the operations that it does, itself or in functions that were traced just now or long before."""
    params = equation.params
    if "attributes" in params:  # of a foreign call
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
    """Each device would submit the operation once. Of arrays sharded over devices nothing is known while tracing."""
    if jax.local_device_count() == 1:
        return
    try:
        from jax._src import core

        mapped = dict(core.get_axis_env().axis_sizes)
        # vmap names an axis too, and stays on one device; grad may be between it and the operation.
        trace: Any = core.trace_ctx.trace
        while trace is not None:
            if type(trace).__name__ == "BatchTrace":
                mapped.pop(trace.axis_data.name, None)
            trace = getattr(trace, "parent_trace", None)
    except (ImportError, AttributeError):
        return
    if any(size != 1 for size in mapped.values()):
        raise NotImplementedError(
            "a program that runs on several devices of this rank (jax.pmap, shard_map) would submit the operation once "
            "for each of them; start one rank for each device, and use jax.jit."
        )


def in_set(name: str, process_set: ProcessSet) -> str:
    """Another name in each process set: XLA may run a program's operations at once, those of several sets too."""
    return f"{name}@{process_set.process_set_id}" if process_set.process_set_id else name


def traced(operation: str, process_set: ProcessSet) -> str:
    """The name of the next operation of this kind in the program that is being traced; outside of one, as in a vmap by
    itself, operations are counted as all others are, from 0 again after join."""
    traces = functions()
    if not traces:
        number = _session.current().number(f"jax.traced.{operation}", process_set.process_set_id or 0)
        return f"{operation}.jit.{number}"
    counters = _counters.setdefault(traces[0], defaultdict(itertools.count))
    name = in_set(f"{operation}.{_function(traces[0])}.{next(counters[in_set(operation, process_set)])}", process_set)
    # Two functions of one line, or one for arrays of two shapes, which was traced for each.
    return _free(name, itertools.count(), traces)


def distinct(name: str) -> str:
    """A name that the program has given, numbered where the innermost function, or what it calls, has used it before.
    Not where a function around it has: JAX keeps what it traced, and on another rank maybe for another caller."""
    traces = functions()[:1]
    counters = _counters.setdefault(traces[0], defaultdict(itertools.count)) if traces else defaultdict(itertools.count)
    return _free(name, counters[name], traces)


def _free(name: str, uses: Iterator[int], traces: list[Any]) -> str:
    taken = [_names_so_far(trace) for trace in traces]
    numbered = (f"{name}#{use + 1}" if use else name for use in uses)
    return next(one for one in numbered if not any(one in names for names in taken))
