"""The operations of a compiled function, one after the other as the program has them.

XLA chooses an order by the shapes, and runs small programs strictly in it: ranks with batches of different sizes would
wait for each other in different operations. So each call takes an element of the result of the one before, which it
does not look at. (XLA for CPUs drops what jax.lax.optimization_barrier says before it chooses.)
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import jax

from . import _names

# Of each function that is being traced, a result of its last operation. Not the result itself, which would keep the
# function alive; the equation of its element does, as long as the function is traced.
_last: weakref.WeakKeyDictionary[Any, weakref.ref[Any]] = weakref.WeakKeyDictionary()


@jax.custom_batching.custom_vmap
def _element(array: jax.Array) -> jax.Array:
    return jax.lax.slice(array, (0,) * array.ndim, (1,) * array.ndim).reshape(())


@_element.def_vmap
def _element_of_batch(size: int, batched: list[bool], array: jax.Array) -> tuple[jax.Array, bool]:
    """One for all examples: an operation of what is no batch stays one."""
    del size, batched
    return _element(array), False


def turn() -> jax.Array | None:
    """What the next operation of the innermost function takes; None for its first, and where nothing is compiled."""
    for trace in _names.functions()[:1]:
        last = _last.get(trace, lambda: None)()
        return None if last is None else _taken(last)
    return None


def done(results: Sequence[jax.Array]) -> None:
    """The results of an operation that has been traced."""
    for trace in _names.functions()[:1]:
        # XLA drops what has no elements.
        found = next((one for one in (_of(trace, result) for result in results) if one is not None and one.size), None)
        if found is not None:
            _taken(found)
            _last[trace] = weakref.ref(found)


def _taken(array: Any) -> jax.Array:
    return _element(jax.lax.stop_gradient(array))  # type: ignore[no-any-return]


def _of(trace: Any, value: Any) -> Any:
    """The function's own value below what jax.grad and jax.vmap made of it, which end before the function does."""
    while value is not None and getattr(value, "_trace", None) is not trace:
        value = getattr(value, "primal", getattr(value, "val", None))
    return value
