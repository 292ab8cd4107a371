"""Which values are sent as their numbers, and which are refused because they carry more."""

from __future__ import annotations

import array
import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import distrun.numpy as hvd
from distrun.numpy._plain import checked


class InUnits(np.ndarray):
    """Its unit is an attribute that views and copies take over, as in astropy and unyt."""

    def __array_finalize__(self, other: Any) -> None:
        self.unit = getattr(other, "unit", "m")


class Labelled(np.ndarray):
    """It has more than the numbers, and NumPy does not know of this."""


class InSlots(np.ndarray):
    __slots__ = ("unit",)


class Units(np.ndarray):
    """Has no attribute: every unit is a class."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **more: Any) -> Any:
        return NotImplemented


class Quantity:
    """A box around an array, as in pint and xarray."""

    def __init__(self) -> None:
        self.magnitude, self.units = np.ones(2), "m"

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.magnitude


class ByInterface:
    def __init__(self) -> None:
        self.values = np.ones(2)
        self.__array_interface__ = self.values.__array_interface__


class Metres(float):
    def __init__(self, _: float) -> None:
        self.unit = "m"


def labelled() -> Any:
    made = np.ones(2).view(Labelled)
    made.label = "length"
    return made


def of_pandas(name: str) -> Any:
    return getattr(pytest.importorskip("pandas"), name)({"a": [1.0]} if name == "DataFrame" else [1.0])


MORE = {
    "a unit": lambda: np.ones(2).view(InUnits),
    "a number in a unit, 0-d": lambda: np.ones(()).view(InUnits),
    "an attribute": labelled,
    "a slot": lambda: np.ones(2).view(InSlots),
    "a class": lambda: np.ones(2).view(Units),
    "a box": Quantity,
    "a box by its interface": ByInterface,
    "a float": lambda: Metres(2.0),
    "pandas.Series": lambda: of_pandas("Series"),
    "pandas.DataFrame": lambda: of_pandas("DataFrame"),
    "pandas.Index": lambda: of_pandas("Index"),
    "a mask": lambda: np.ma.array([1.0], mask=[True]),
}


@pytest.mark.parametrize("name", MORE)
def test_what_carries_more_is_refused_by_name(name: str) -> None:
    value = MORE[name]()
    kind = "masked array" if name == "a mask" else type(value).__qualname__
    for given in (value, [value], [[1.0], (value,)]):
        with pytest.raises(ValueError, match=kind) as refused:
            checked(given)
        assert "asarray()" in str(refused.value) or "filled()" in str(refused.value) or "float()" in str(refused.value)


def test_what_is_numbers_alone_travels(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "numbers", np.float64, "w+", shape=(2,))
    plain: list[Any] = [
        1,
        True,
        2.0,
        np.float32(1),
        np.ones(2),
        [1, [2.0]],
        (np.ones(2), 1),
        mapped,
        array.array("d", [1]),
    ]
    for value in [
        *plain,
        torch.ones(2),
        torch.nn.Parameter(torch.ones(2)),
        memoryview(b"12"),
        decimal.Decimal(1),
        None,
    ]:
        assert checked(value) is value
    hvd.init()
    try:
        for value in (mapped, np.ones(2).view(Labelled), np.matrix([[1.0]]), torch.ones(2)):
            result = hvd.allreduce(value)
            expected = type(value) if type(value) in (Labelled, np.matrix) else np.ndarray
            assert type(result) is expected, (type(result), expected)
        for form in (hvd.allreduce_, hvd.allreduce_async_, lambda one: hvd.broadcast_(one, 0)):
            with pytest.raises(ValueError, match="InUnits"):
                form(np.ones(2).view(InUnits))
        with pytest.raises(ValueError, match="InUnits"):
            hvd.broadcast_parameters({"a": np.ones(2).view(InUnits)}, 0)
        for send in (hvd.broadcast_object, hvd.allgather_object):
            with pytest.raises(TypeError, match="InUnits"):
                send([np.ones(2).view(InUnits)])
    finally:
        hvd.shutdown()
