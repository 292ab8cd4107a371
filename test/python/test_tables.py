"""The numbers and names in distrun._abi equal those of the runtime's tables."""

from __future__ import annotations

import enum
import re
from pathlib import Path

import pytest

from distrun._abi import DType, Kind

TABLES = Path(__file__).parents[2] / "runtime/base"


@pytest.mark.parametrize(("table", "column", "python"), [("dtypes.def", 3, DType), ("operations.def", 2, Kind)])
def test_python_has_the_tables_rows(table: str, column: int, python: type[enum.IntEnum]) -> None:
    rows = re.findall(r"^DISTRUN_\w+\((.*)\)$", (TABLES / table).read_text(), re.MULTILINE)
    expected = {int(row.split(", ")[1]): row.split(", ")[column] for row in rows}
    assert {int(one): one.name.rstrip("_") for one in python} == expected
    assert rows
