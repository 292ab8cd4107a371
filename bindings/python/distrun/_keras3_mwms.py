"""`python -m distrun._keras3_mwms train.py ...`: what ranks run under distrun --tf-keras3-mwms.

The program runs as `python train.py ...` or `python -m module ...` would run it, but as soon as it has imported
Keras 3's TensorFlow trainer, patch_keras_mwms() mends it. Not earlier, because importing TensorFlow here would come
before what the program sets for it.
"""

from __future__ import annotations

import importlib
import importlib.util
import runpy
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

_TRAINER = "keras.src.backend.tensorflow.trainer"


class _Mending(Loader):
    """Another loader, and then the patch."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the other loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """The module, mended."""
        self._loader.exec_module(module)
        importlib.import_module("distrun.tensorflow").patch_keras_mwms()


class _Finder(MetaPathFinder):
    """Finds the trainer once, as Python would without it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The trainer's spec with our loader; nothing for all other modules."""
        if fullname != _TRAINER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Mending(spec.loader)
        return spec


def main() -> None:
    """Runs the program that the arguments name."""
    sys.meta_path.insert(0, _Finder())
    if sys.argv[1] == "-m":
        del sys.argv[:2]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        return
    del sys.argv[0]
    script = Path(sys.argv[0])
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        sys.path[0] = str(script.resolve().parent)
    # As Python does since 3.9, so that __file__ is right after a change of directory; here argv[0] is that path too.
    runpy.run_path(str(script.absolute()), run_name="__main__")


if __name__ == "__main__":
    main()
