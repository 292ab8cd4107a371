"""Horovod's other name of distrun.keras and of its callbacks: `import distrun.tensorflow.keras as hvd`."""

from __future__ import annotations

import sys

import distrun.keras
import distrun.keras.callbacks

sys.modules[__name__] = distrun.keras
sys.modules[f"{__name__}.callbacks"] = distrun.keras.callbacks
