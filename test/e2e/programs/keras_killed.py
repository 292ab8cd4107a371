"""Rank 1 is killed in the middle of fit(), on the backend that KERAS_BACKEND names."""

from __future__ import annotations

import os
import signal
import time

import keras
import numpy as np

import distrun.keras as hvd

hvd.init()
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
killed_at = 0.0


def strike(batch: int, logs: object) -> None:
    """Both ranks read the clock in the same batch. Rank 1 does not reach the next batch."""
    global killed_at
    if batch == 5:
        killed_at = time.monotonic()
        if hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)


try:
    model.fit(
        np.ones((100, 4), np.float32),
        np.ones((100, 1), np.float32),
        batch_size=1,
        verbose=0,
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            keras.callbacks.LambdaCallback(on_train_batch_end=strike),
        ],
    )
except Exception as failure:
    waited = time.monotonic() - killed_at
    error = hvd.error_of(failure)
    assert error is not None and not error.usable, failure
    print(f"told after {waited:.2f} s: {type(error).__name__} ranks={error.ranks} {error}", flush=True)
    raise SystemExit(3) from None
