"""Rank 1 has more than rank 0: a variable of the model, a batch, or the callback that averages."""

from __future__ import annotations

import sys
import time

import keras
import numpy as np

import distrun.keras as hvd

hvd.init()
layers = [keras.Input((4,)), keras.layers.Dense(1, use_bias=False)]
if hvd.rank() == 1 and sys.argv[1] == "variable":
    layers.append(keras.layers.Dense(1, use_bias=False, name="odd"))
model = keras.Sequential(layers)
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
rows = 2 if sys.argv[1] == "batch" and hvd.rank() == 1 else 1
try:
    averages = [hvd.callbacks.MetricAverageCallback()] if sys.argv[1] == "callback" and hvd.rank() == 1 else []
    ones = np.ones((rows, 4), np.float32)
    model.fit(ones, ones[:, :1], batch_size=1, verbose=0, callbacks=averages)
except Exception as failure:
    error = hvd.error_of(failure)
    assert error is not None, failure
    print(f"told {time.time()} {type(error).__name__} ranks={error.ranks} {error}", flush=True)
    raise SystemExit(3) from None
print(f"leaves {time.time()}", flush=True)
