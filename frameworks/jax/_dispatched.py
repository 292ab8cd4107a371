"""Waits for programs that JAX has queued but not started. It queues up to 32, and they will still submit operations."""

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
        """Waits until the programs of all threads are complete, or have failed.

        JAX runs the programs of one thread in order, as a GPU does. So one more program of this thread completes after
        all others of it, even those whose results were dropped or donated. Programs of other threads are known by their
        live results. RuntimeError inside a callback of a program, which would wait for itself.
        """
        if _in_callback():
            raise RuntimeError(
                "shutdown, join and remove_process_set cannot be called in a callback of a JAX program "
                "(jax.debug.callback, io_callback): they would wait for that program forever. Call them outside."
            )
        with contextlib.suppress(Exception):  # JAX may have ended before
            _last().block_until_ready()
            for array in jax.live_arrays():
                with contextlib.suppress(Exception):  # deleted, or failed: its user gets that error
                    array.block_until_ready()


# Named operations of compiled programs. The same name may be used outside of programs too.
_named: set[tuple[Kind, str, ProcessSet]] = set()


def note_name(kind: Kind, name: str, process_set: ProcessSet) -> None:
    """Records that an operation with this name is traced."""
    _named.add((kind, name, process_set))


def wait_for_name(kind: Kind, name: str, process_set: ProcessSet) -> None:
    """Waits for this thread's programs before an operation outside of programs that has the name of one inside.

    So the operations of programs come first, on all ranks.
    """
    if (kind, name, process_set) in _named and not _in_callback():
        _last().block_until_ready()


def _in_callback() -> bool:
    """True inside a callback of a program. Looks at the callers, because the callback's thread may be JAX's, the one
    that completed an operation, or the program's own."""
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
    """Registers the extension, at the first operation in a program."""
    _session.extend(_Dispatched())
