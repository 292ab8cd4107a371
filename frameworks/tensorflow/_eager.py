"""Eager calls of the native ops, if possible without TensorFlow's generated functions.

For each loaded op TensorFlow generates a function that sorts keyword arguments and wraps results, which takes 2 us per
call. In every version from 2.15 to 2.21 it calls TFE_Py_FastPathExecute, and this module calls that directly. Without
it, or for inputs that it does not accept, this module calls the generated function.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from distrun._abi import Kind

try:
    from tensorflow.python import pywrap_tfe
    from tensorflow.python.eager import context, core
    from tensorflow.python.framework import ops as tf_ops

    _execute = pywrap_tfe.TFE_Py_FastPathExecute
    _context = context.context
    _Failed, _NotTaken = core._NotOkStatusException, core._FallbackException
    _raise = tf_ops.raise_from_not_ok_status
    _DIRECT = True
except (ImportError, AttributeError):
    _DIRECT = False

# inputs, then alternating names and values of attributes
EagerCall = Callable[[tuple[Any, ...], tuple[Any, ...]], Any]


def eager_call(ops: ModuleType, kind: Kind) -> EagerCall:
    """Returns the function that runs the op of `kind` in eager mode."""
    function = getattr(ops, f"distrun_{kind.name.lower()}")

    def slower(inputs: tuple[Any, ...], attributes: tuple[Any, ...]) -> Any:
        return function(*inputs, **dict(zip(attributes[::2], attributes[1::2], strict=True)))

    if not _DIRECT:
        return slower
    op = f"Distrun{kind.name.title()}"

    def direct(inputs: tuple[Any, ...], attributes: tuple[Any, ...]) -> Any:
        try:
            return _execute(_context(), op, None, *inputs, *attributes)
        except _Failed as failure:
            return _raise(failure, op)
        except _NotTaken:
            return slower(inputs, attributes)

    return direct
