"""`python -m distrun._keras3_mwms train.py ...`: ranks run this under distrun --tf-keras3-mwms.

It calls patch_keras_mwms() as soon as the program has imported Keras 3's TensorFlow trainer.
"""

from __future__ import annotations

import importlib

from distrun._amend import run_program

if __name__ == "__main__":
    run_program(
        "keras.src.backend.tensorflow.trainer",
        lambda _: importlib.import_module("distrun.tensorflow").patch_keras_mwms(),
    )
