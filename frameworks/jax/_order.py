"""Runs the operations of a compiled function in the program's order.

XLA chooses an order by the shapes, and small programs run strictly in that order. Ranks with batches of different sizes
would then wait for each other in different operations. So each call takes an element of the previous call's result as
an unused argument. (jax.lax.optimization_barrier does not help: XLA for CPUs drops it before it chooses the order.)
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import jax

from . import _names

# For each function being traced: a weak reference to a result of its last operation. A strong one would keep the
# function alive. The result itself lives as long as the trace, through the equation of its element.
_last: weakref.WeakKeyDictionary[Any, weakref.ref[Any]] = weakref.WeakKeyDictionary()


@jax.custom_batching.custom_vmap
def _element(array: jax.Array) -> jax.Array:
    return jax.lax.slice(array, (0,) * array.ndim, (1,) * array.ndim).reshape(())


@_element.def_vmap
def _element_of_batch(size: int, batched: list[bool], array: jax.Array) -> tuple[jax.Array, bool]:
    """Takes one element for the whole batch, so that an operation on unbatched arrays stays a single operation."""
    del size, batched
    return _element(array), False


def turn() -> jax.Array | None:
    """Returns the extra argument for the innermost function's next operation. None for its first, and outside
    traces."""
    for trace in _names.functions()[:1]:
        last = _last.get(trace, lambda: None)()
        return None if last is None else _taken(last)
    return None


def done(results: Sequence[jax.Array]) -> None:
    """Records the results of an operation that has been traced."""
    for trace in _names.functions()[:1]:
        # Not a result without elements, because XLA drops it.
        found = next((one for one in (_of(trace, result) for result in results) if one is not None and one.size), None)
        if found is not None:
            _taken(found)
            _last[trace] = weakref.ref(found)


def _taken(array: Any) -> jax.Array:
    return _element(jax.lax.stop_gradient(array))  # type: ignore[no-any-return]


def _of(trace: Any, value: Any) -> Any:
    """Unwraps what jax.grad and jax.vmap made of the function's own value. They end before the function does."""
    while value is not None and getattr(value, "_trace", None) is not trace:
        value = getattr(value, "primal", getattr(value, "val", None))
    return value
