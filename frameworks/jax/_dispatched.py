"""Programs that JAX has taken and not begun: it dispatches up to 32 ahead, and their operations are still to come."""

from __future__ import annotations

import contextlib
import functools
import sys

import jax
import jax.numpy as jnp
from distrun import _session
from distrun._abi import Kind
from distrun.process_sets import ProcessSet


class _Dispatched(_session.Extension):
    packages = ("jax", "jaxlib")

    def drain(self) -> None:
        """JAX runs the programs of one thread in order, as a GPU does: one more of this thread's is complete when all
        are, also those whose results were dropped or donated. Other threads' are known by the results that they keep.
        """
        if _in_callback():
            raise RuntimeError(
                "shutdown, join and remove_process_set wait for the programs that JAX has in front of it, and were "
                "called in a callback of one of them (jax.debug.callback, io_callback), which would wait for itself; "
                "call them outside."
            )
        with contextlib.suppress(Exception):  # JAX may have ended before us
            _last().block_until_ready()
            for array in jax.live_arrays():
                with contextlib.suppress(Exception):  # deleted meanwhile; or failed, as who uses it is told
                    array.block_until_ready()


# Operations of compiled programs that have a given name, which their calls outside of programs have too.
_named: set[tuple[Kind, str, ProcessSet]] = set()


def note_name(kind: Kind, name: str, process_set: ProcessSet) -> None:
    """An operation of this name is traced."""
    _named.add((kind, name, process_set))


def wait_for_name(kind: Kind, name: str, process_set: ProcessSet) -> None:
    """Before one of this name that is no program's: this thread's programs come first, on all ranks."""
    if (kind, name, process_set) in _named and not _in_callback():
        _last().block_until_ready()


def _in_callback() -> bool:
    """By the callers, as it may be any thread: JAX's own, that of an operation that is complete, or the program's."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_name == "_wrapped_callback" and frame.f_globals.get("__name__", "").startswith("jax."):
            return True
    return False


@jax.jit
def _last() -> jax.Array:
    return jnp.zeros(())


@functools.cache
def watch() -> None:
    """From the first operation in a program on."""
    _session.extend(_Dispatched())
