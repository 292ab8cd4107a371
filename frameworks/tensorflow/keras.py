"""Horovod's second name for distrun.keras and its callbacks: `import distrun.tensorflow.keras as hvd`."""

from __future__ import annotations

import sys
from importlib import import_module

# Imported by name. Where distrun is not installed, mypy would use the result of the package's __getattr__ instead.
for name in ("", ".callbacks"):
    sys.modules[f"{__name__}{name}"] = import_module(f"distrun.keras{name}")
