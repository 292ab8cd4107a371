"""Horovod's other name of distrun.keras and of its callbacks: `import distrun.tensorflow.keras as hvd`."""

from __future__ import annotations

import sys
from importlib import import_module

# By name: where distrun is not installed, mypy takes the module for what the package's __getattr__ gives.
for name in ("", ".callbacks"):
    sys.modules[f"{__name__}{name}"] = import_module(f"distrun.keras{name}")
