"""Runs a program as `python train.py ...` or `python -m module ...` would, and amends one module of a framework as soon
as the program has imported it. Not earlier: importing a framework here would come before what the program sets for it.
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
    """Another loader, and then the change."""

    def __init__(self, loader: Loader, amend: Amend) -> None:
        self._loader = loader
        self._amend = amend

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the other loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """The module, amended."""
        self._loader.exec_module(module)
        self._amend(module)


class _Finder(MetaPathFinder):
    """Finds the module once, as Python would without it."""

    def __init__(self, module: str, amend: Amend) -> None:
        self._module = module
        self._amend = amend

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's spec with our loader; nothing for all other modules."""
        if fullname != self._module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Amending(spec.loader, self._amend)
        return spec


def amend_when_imported(module: str, amend: Amend) -> None:
    """`amend` gets `module` when the program has imported it."""
    sys.meta_path.insert(0, _Finder(module, amend))


def run_program(module: str, amend: Amend) -> None:
    """Runs the program that the arguments name; `amend` gets `module` when the program has imported it."""
    amend_when_imported(module, amend)
    run()


def run() -> None:
    """Runs the program that the arguments name."""
    if sys.argv[1] == "-m":
        del sys.argv[:2]
        _look_first_in(str(Path.cwd()))
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        return
    del sys.argv[0]
    script = Path(sys.argv[0])
    _look_first_in(str(script.resolve().parent))
    # As Python does since 3.9, so that __file__ is right after a change of directory; here argv[0] is that path too.
    runpy.run_path(str(script.absolute()), run_name="__main__")


def _look_first_in(directory: str) -> None:
    """Where Python looks for the program's own modules first: it was started with none for ours."""
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        sys.path[0] = directory
