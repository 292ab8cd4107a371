"""Selects the Keras of this package: Keras 3, or legacy Keras if TF_USE_LEGACY_KERAS makes it TensorFlow's."""

from __future__ import annotations

import importlib
import os
from typing import Any

keras: Any = importlib.import_module(
    "tf_keras" if os.environ.get("TF_USE_LEGACY_KERAS") in ("1", "true", "True") else "keras"
)
# tf_keras, or Keras 2 of TensorFlow 2.15.
LEGACY = keras.__version__.startswith("2.")
