"""Checks of arguments that ctypes, str() and float() would accept silently, or refuse without naming the argument."""

from __future__ import annotations

import ctypes
import itertools
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any


def _shown(value: object) -> str:
    """The value in one line, because reports quote the last line of an error."""
    try:
        return " ".join(repr(value).split())[:60]
    except Exception:  # Python does not print an int of more than 4300 digits
        return f"one of type {type(value).__name__} that cannot be shown"


def number(argument: str, value: object) -> float:
    """Returns a number of Python, NumPy or a framework as a float.

    TypeError if `value` is no single number, ValueError if it does not fit float64.
    """
    if type(value) is float:
        return value
    try:
        # float() would parse texts, and would drop the imaginary part of NumPy's complex numbers.
        return ctypes.c_double(value.item() if hasattr(value, "item") else value).value  # type: ignore[arg-type]
    except OverflowError:
        raise ValueError(f"{argument} must be a number that fits into float64, not {_shown(value)}.") from None
    except (TypeError, ValueError, RuntimeError):  # arrays of several elements raise all three
        raise TypeError(f"{argument} must be one number, not {_shown(value)}.") from None


def seconds(argument: str, given: object) -> float | None:
    """Returns a time limit in seconds; None means no limit.

    ValueError for nan: no time is later than nan, so a wait would loop forever.
    """
    limit = None if given is None else number(argument, given)
    if limit is not None and math.isnan(limit):
        raise ValueError(f"{argument} must be a number of seconds, or None for no limit, not nan.")
    return limit


def name(given: object, argument: str = "name") -> str | None:
    """Returns an operation's name as the caller gave it. None: the operation gets a name from a counter.

    TypeError if it is no str: a count or a root in this place would silently become the name.
    """
    if given is None:
        return None
    if not isinstance(given, str):
        raise TypeError(
            f"{argument} must be a str (the same on all ranks) or None, not {_shown(given)}. Pass str(...) of it."
        )
    if "\0" in given:  # C reads a string up to the first NUL
        raise ValueError(f"{argument} must not contain a NUL character: {_shown(given)}.")
    if "\n" in given or "\r" in given:  # reports put names in the middle of a line
        raise ValueError(f"{argument} must be one line of text: {_shown(given)}.")
    if not given.isascii():
        try:
            given.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{argument} must be text that UTF-8 can encode: {_shown(given)}.") from None
    return given


def root_rank(given: object) -> int:
    """Returns a root rank as an int. The engine checks later that all ranks agree on it.

    int() would parse texts and cut fractions, and C would keep only the lowest 32 bits.
    """
    try:
        rank = operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"root_rank must be the number of a rank, not {_shown(given)}.") from None
    if not -1 << 31 <= rank < 1 << 31:
        raise ValueError(f"root_rank must be a rank of the job, from 0 to its size - 1, not {_shown(given)}.")
    return rank


def count(argument: str, given: object, least: int = 0) -> int:
    """Returns a whole number of Python or NumPy. ValueError if it is below `least`."""
    try:
        found = operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{argument} must be a whole number, not {_shown(given)}.") from None
    if found < least:
        raise ValueError(f"{argument} must be at least {least}, not {_shown(given)}.")
    return found


def whole(given: Any) -> Any:
    """Returns a whole number of NumPy as a Python int. Any other value is returned unchanged."""
    try:
        return operator.index(given)
    except TypeError:
        return given


def predivide(given: object) -> float:
    """Returns an optimizer's gradient_predivide_factor. ValueError for 0, nan and infinity."""
    factor = number("gradient_predivide_factor", given)
    if factor == 0.0 or not math.isfinite(factor):
        raise ValueError(f"gradient_predivide_factor must be a finite number other than 0, not {factor:g}.")
    return factor


def settings(given: object) -> list[bytes]:
    """Converts init's `settings` to name=value texts for distrun_init. docs/reference/settings.md lists the names."""
    if given is None:
        return []
    if not isinstance(given, Mapping):
        raise TypeError(
            'settings must be a dict of names and values, such as {"fusion_threshold": "64MiB"}, not '
            f"{_shown(given)}."
        )
    texts = []
    for key, value in given.items():
        if not isinstance(key, str):
            raise TypeError(f"settings: a name must be a str (`distrun help` lists the settings), not {_shown(key)}.")
        if value is None or isinstance(value, bytes | bytearray | list | tuple | set | frozenset | Mapping):
            cure = f"`distrun help {key}` shows what it can be"
            if value is None:
                cure = "leave the setting out to get its default"
            raise TypeError(
                f"settings: the value of {key!r} must be a str, a number or a bool, not {_shown(value)}; {cure}."
            )
        text = f"{key}={str(value).lower() if isinstance(value, bool) else value}"
        if "\0" in text:  # C reads a string up to the first NUL
            raise ValueError(
                f"settings: a name or a value must not contain a NUL character: {_shown(key)}: {_shown(value)}."
            )
        texts.append(text.encode())
    return texts


# Up to this number of elements their places are compared one by one. Only unusual strides need that.
_MOST_COMPARED = 1 << 16


def elements_overlap(shape: Sequence[int], strides: Sequence[int], size: int = 1) -> bool:
    """True if two elements share memory, as in an expanded tensor or in overlapping windows.

    size: of one element. Strides that are unusual, and too many elements to compare, give False.
    """
    if 0 in shape:
        return False
    dims = sorted((abs(stride), length) for stride, length in zip(strides, shape, strict=True) if length > 1)
    end, count, nested = size, 1, True  # `end`: the bytes from the first element's start to the last one's end
    for stride, length in dims:
        nested = nested and stride >= end
        end += stride * (length - 1)
        count *= length
    if nested:
        return False
    if end < count * size:
        return True
    if count > _MOST_COMPARED:
        return False
    places = sorted(map(sum, itertools.product(*(range(0, stride * length, stride) for stride, length in dims))))
    return any(after - before < size for before, after in itertools.pairwise(places))
