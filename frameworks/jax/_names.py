"""Names for operations inside compiled programs.

They are fixed when a function is traced, must be equal on all ranks and different from each other. A rank may trace a
function again (a last batch of another size) while the others do not, so the operations are counted within the program
that is being traced, and the program's name is part of theirs: "allreduce.train_step.0".
"""

from __future__ import annotations

import itertools
import weakref
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import jax
from distrun import _session
from distrun.process_sets import ProcessSet

_counters: weakref.WeakKeyDictionary[Any, defaultdict[str, Iterator[int]]] = weakref.WeakKeyDictionary()


def _outermost_trace() -> Any:
    """The trace of the program that will be compiled; None where JAX does not show it (it is not public)."""
    try:
        from jax._src import core

        trace, found = core.trace_ctx.trace, None
        while trace is not None:
            if type(trace).__name__ == "DynamicJaxprTrace":
                found = trace
            trace = getattr(trace, "parent_trace", None)
        return found
    except (ImportError, AttributeError):
        return None


def _program(trace: Any) -> str:
    for owner in (trace.frame, trace):
        place = getattr(getattr(owner, "debug_info", None), "func_src_info", None)
        if isinstance(place, str):  # "train_step at train.py:12"
            return place.partition(" at ")[0]
    return "jit"


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


def traced(operation: str, process_set: ProcessSet) -> str:
    """The name of the next operation of this kind in the program that is being traced; outside of one, as in a vmap by
    itself, operations are counted as all others are, from 0 again after join."""
    trace = _outermost_trace()
    if trace is None:
        number = _session.current().number(f"jax.traced.{operation}", process_set.process_set_id or 0)
        return f"{operation}.jit.{number}"
    counters = _counters.setdefault(trace, defaultdict(itertools.count))
    return f"{operation}.{_program(trace)}.{next(counters[operation])}"
