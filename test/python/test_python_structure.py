"""scripts/lib/python_structure.py finds import cycles and copied lines in a fake package."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from . import conftest

COPY = ["first = 1", "second = 2", "third = [", "    3,", "]", "fourth = 4"]


@pytest.fixture(scope="module")
def structure() -> ModuleType:
    path = conftest.ROOT / "scripts/lib/python_structure.py"
    spec = importlib.util.spec_from_file_location("python_structure", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in {"bindings/python/distrun/__init__.py": "", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_modules_have_the_names_that_users_import(structure: ModuleType, tmp_path: Path) -> None:
    write(tmp_path, {"frameworks/torch/__init__.py": "", "frameworks/torch/c10d/_group.py": "", "frameworks/a.py": ""})
    assert set(structure.modules(tmp_path)) == {"distrun", "distrun.torch", "distrun.torch.c10d._group"}


def test_no_circle(structure: ModuleType, tmp_path: Path) -> None:
    files = {
        "bindings/python/distrun/high.py": "import os\nfrom distrun import middle, low\n",
        "bindings/python/distrun/middle.py": "from distrun.low import name\n",
        "bindings/python/distrun/low.py": "import distrun.elsewhere\n",
    }
    write(tmp_path, files)
    assert structure.circles(tmp_path) == []


@pytest.mark.parametrize(
    "imported",
    [
        "from distrun import high",
        "import distrun.high as other",
        "def late():\n    from distrun.high import name",
        "if TYPE_CHECKING:\n    from .high import name",
        "def late():\n    importlib.import_module('distrun.high')",
    ],
)
def test_an_import_at_any_place_closes_a_circle(structure: ModuleType, tmp_path: Path, imported: str) -> None:
    files = {
        "bindings/python/distrun/high.py": "from . import middle\n",
        "bindings/python/distrun/middle.py": "from distrun.low import name\n",
        "bindings/python/distrun/low.py": imported + "\n",
        "bindings/python/distrun/user.py": "from distrun import high, low\n",
    }
    write(tmp_path, files)
    assert structure.circles(tmp_path) == [["distrun.high", "distrun.low", "distrun.middle"]]


def test_a_package_is_a_module_of_circles(structure: ModuleType, tmp_path: Path) -> None:
    files = {
        "frameworks/torch/__init__.py": "from .c10d import name\n",
        "frameworks/torch/c10d/__init__.py": "from ._group import name\n",
        "frameworks/torch/c10d/_group.py": "from .. import name\n",
    }
    write(tmp_path, files)
    assert structure.circles(tmp_path) == [["distrun.torch", "distrun.torch.c10d", "distrun.torch.c10d._group"]]


def test_copied_lines(structure: ModuleType, tmp_path: Path) -> None:
    noise = [
        "# a comment",
        "",
        '"""A docstring."""',
        "import os",
        COPY[0],
        "",
        *(f"{line}  # why" for line in COPY[1:]),
    ]
    files = {
        "bindings/python/distrun/one.py": "\n".join([*COPY, "last = 5"]) + "\n",
        "frameworks/torch/__init__.py": "\n".join([*noise, "other = 6"]) + "\n",
        "frameworks/jax/__init__.py": "\n".join(COPY[1:]) + "\n",  # shorter than a window
    }
    write(tmp_path, files)
    share, places = structure.copied_share(tmp_path)
    assert share == pytest.approx(12 / 19)
    assert places == [
        *(f"bindings/python/distrun/one.py:{number}" for number in range(1, 7)),
        *(f"frameworks/torch/__init__.py:{number}" for number in (5, 7, 8, 9, 10, 11)),
    ]


def test_lines_that_repeat_in_one_file_are_copies(structure: ModuleType, tmp_path: Path) -> None:
    write(tmp_path, {"bindings/python/distrun/one.py": "\n".join([*COPY, "between = 0", *COPY]) + "\n"})
    share, places = structure.copied_share(tmp_path)
    assert (share, len(places)) == (pytest.approx(12 / 13), 12)


def test_nothing_is_no_copy(structure: ModuleType, tmp_path: Path) -> None:
    write(tmp_path, {})
    assert structure.copied_share(tmp_path) == (0.0, [])
