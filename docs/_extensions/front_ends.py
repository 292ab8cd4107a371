"""Makes the front ends importable while their pages are built, without distrun's build and without the frameworks.

The front ends only need the frameworks' names at import, so mocks of Sphinx stand for the frameworks.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.domains.python import PythonDomain
from sphinx.ext.autodoc.mock import MockFinder, _MockObject

FRAMEWORKS = ["jax", "jaxlib", "keras", "ml_dtypes", "mxnet", "numpy", "tensorflow", "tf_keras", "torch"]
# How a default value is written in a signature.
DEFAULTS = {
    "ProcessSet(process_set_id=None, ranks=None, mpi_comm=None)": "global_process_set",
    "<class 'distrun._compression.NoneCompressor'>": "Compression.none",
    "<ReduceOp.AVERAGE: 0>": "Average",
    "<ReduceOp.SUM: 1>": "Sum",
}


class Names(PythonDomain):
    """Knows each class by the modules that offer it, and not also by the private one that defines it."""

    def note_object(self, name: str, objtype: str, node_id: str, aliased: bool = False, location: Any = None) -> None:
        if not aliased:
            super().note_object(name, objtype, node_id, aliased, location)

    def find_obj(self, *arguments: Any, **options: Any) -> Any:
        """Of several modules that offer the name, chooses the one with the shortest name: the core."""
        found = super().find_obj(*arguments, **options)
        return [min(found, key=lambda match: len(match[0]))] if found else []


def first(one: Any, other: Any) -> Any:
    """Returns one side of `torch.nn.Module | None`, which nothing reads."""
    return one


def mock_frameworks() -> None:
    sys.meta_path.insert(0, MockFinder(FRAMEWORKS))
    _MockObject.__or__ = _MockObject.__ror__ = first  # type: ignore[attr-defined]
    torch = importlib.import_module("torch")
    torch.__version__ = "2.13.0"  # type: ignore[attr-defined]
    torch.dtype = type("dtype", (), {})  # type: ignore[attr-defined]  # for isinstance()


def link_package(root: Path, folder: Path) -> None:
    """Lays out the package as the wheel does: the front ends are folders of it."""
    package = folder / "distrun"
    package.mkdir(parents=True, exist_ok=True)
    for old in package.iterdir():
        old.unlink()
    sources = [*(root / "bindings/python/distrun").iterdir(), *(root / "frameworks").iterdir()]
    for source in sources:
        if source.name != "__pycache__" and (source.is_dir() or source.suffix == ".py"):
            (package / source.name).symlink_to(source)


def shorten(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, result: str | None
) -> Any:
    """Shortens the default values in a signature."""
    for long, short in DEFAULTS.items():
        signature = signature and signature.replace(long, short)
    return signature, result


def setup(app: Sphinx) -> dict[str, bool]:
    root = Path(app.srcdir).parent
    folder = root / "build/docs/python"
    link_package(root, folder)
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(folder))
    mock_frameworks()
    app.add_domain(Names, override=True)
    app.connect("autodoc-process-signature", shorten)
    return {"parallel_read_safe": True}
