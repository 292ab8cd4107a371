"""Runs a program as `python train.py ...` or `python -m module ...` would, and patches one module of a framework.

The patch is applied right after the program has imported the module. This file must not import the framework itself:
that would happen before the program sets its options for the framework.
"""

from __future__ import annotations

import importlib.util
import runpy
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

Amend = Callable[[ModuleType], object]


class _Amending(Loader):
    """Loads a module with another loader, then patches it."""

    def __init__(self, loader: Loader, amend: Amend) -> None:
        self._loader = loader
        self._amend = amend

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Leaves this to the other loader."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Executes the module, then patches it."""
        self._loader.exec_module(module)
        self._amend(module)


class _Finder(MetaPathFinder):
    """Finds the module once, the way Python would without this finder."""

    def __init__(self, module: str, amend: Amend) -> None:
        self._module = module
        self._amend = amend

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the module's spec with the patching loader; None for every other module."""
        if fullname != self._module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Amending(spec.loader, self._amend)
        return spec


def patch_when_imported(module: str, amend: Amend) -> None:
    """Calls `amend(module)` right after the program has imported `module`."""
    sys.meta_path.insert(0, _Finder(module, amend))


def run_program(module: str, amend: Amend) -> None:
    """Runs the program in sys.argv, and calls `amend` as in patch_when_imported()."""
    patch_when_imported(module, amend)
    run()


def run() -> None:
    """Runs the program in sys.argv: a script and its arguments, or -m, a module and its arguments."""
    if sys.argv[1] == "-m":
        del sys.argv[:2]
        _look_first_in(str(Path.cwd()))
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        return
    del sys.argv[0]
    script = Path(sys.argv[0])
    _look_first_in(str(script.resolve().parent))
    # Python has made __file__ absolute since 3.9, so it stays right after a change of directory. This makes argv[0]
    # absolute as well.
    runpy.run_path(str(script.absolute()), run_name="__main__")


def _look_first_in(directory: str) -> None:
    """Puts `directory` first on the import path of the program. Python had set the first entry for distrun's module."""
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        sys.path[0] = directory
