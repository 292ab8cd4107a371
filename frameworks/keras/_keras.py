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

# The classes of optimizers that hold other optimizers. MultiOptimizer is in Keras 3.15 and newer.
MULTI: Any = () if LEGACY else getattr(keras.optimizers, "MultiOptimizer", ())
SCALING: Any = keras.mixed_precision.LossScaleOptimizer if LEGACY else keras.optimizers.LossScaleOptimizer
# Legacy Keras has a second kind of optimizers, with other methods: those of keras.optimizers.legacy.
OLDER: Any = keras.optimizers.legacy.Optimizer if LEGACY else ()
OPTIMIZER: Any = (keras.optimizers.Optimizer, OLDER)
