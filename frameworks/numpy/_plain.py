"""Accepts only arrays that are plain numbers. Every operation of every front end uses this check.

Operations compute with the raw values, and their results have no unit, mask, index or label. So a value that has one
is refused, with the name of its type. A class that only adds methods is accepted, and results have that class.
"""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

# Methods that a class overrides if its arrays have more than numbers.
_HOOKS = ("__array_finalize__", "__array_ufunc__", "__array_function__", "__array_wrap__", "__array__")
# Packages whose arrays are plain numbers, or are read from a file as such.
_PLAIN_PACKAGES = (
    "numpy",
    "torch",
    "jax",
    "jaxlib",
    "tensorflow",
    "keras",
    "tf_keras",
    "mxnet",
    "h5py",
    "zarr",
    "PIL",
    "cupy",
)
_NUMBERS = (bool, int, float, complex)


def checked(value: Any) -> Any:
    """Returns the value; ValueError if it has more than its numbers."""
    kind = type(value)
    if kind is np.ndarray or kind in _NUMBERS:
        return value
    if kind in (list, tuple):
        for one in value:
            checked(one)
    elif isinstance(value, np.ndarray):
        _check_array(value)
    elif isinstance(value, numbers.Number | np.generic):
        if getattr(value, "__dict__", None):
            raise _refusal(value, "float()")
    elif _is_wrapper(value):
        raise _refusal(value, "numpy.asarray()")
    return value


def in_class_of(like: Any, array: Any) -> Any:
    """Returns the array in the class of `like`, which has been checked. Results are no memmap and no recarray."""
    kind = type(like)
    return array if kind in (np.ndarray, np.memmap, np.recarray) else array.view(kind)


def _check_array(value: Any) -> None:
    kind = type(value)
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError("a masked array would lose its mask. Send array.filled() and numpy.ma.getmaskarray(array).")
    if kind in (np.matrix, np.memmap, np.recarray):
        return
    changed = any(getattr(kind, hook) is not getattr(np.ndarray, hook) for hook in _HOOKS)
    slots = any(getattr(one, "__slots__", ()) for one in kind.__mro__)
    if changed or slots or getattr(value, "__dict__", None):
        raise _refusal(value, "numpy.asarray()")


def _is_wrapper(value: Any) -> bool:
    """True for an object that converts itself to an array, like those of pandas, xarray and pint."""
    if type(value).__module__.partition(".")[0] in _PLAIN_PACKAGES:
        return False
    if not any(hasattr(value, name) for name in ("__array__", "__array_interface__", "__array_struct__")):
        return False
    try:
        memoryview(value)  # a plain buffer of bytes has no more than its numbers
    except TypeError:
        return True
    return False


def _refusal(value: Any, cure: str) -> ValueError:
    kind = type(value)
    return ValueError(
        f"a {kind.__module__}.{kind.__qualname__} may have more than its numbers (a unit, an index, labels), which "
        f"would be lost. Pass {cure} of it, and convert the result back."
    )
