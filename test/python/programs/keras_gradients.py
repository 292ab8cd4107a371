"""What distrun.keras does with gradients that are not like the others: those of layers of a rank's own."""

from __future__ import annotations

from typing import Any

import numpy as np
from checks import run
from keras_fit import BATCH, data, fit, mine

import distrun.keras as hvd
from distrun.keras._keras import keras


def one_step(made: Any, rows: tuple[Any, Any], optimizer: Any) -> None:
    made.compile(optimizer=optimizer, loss="mse")
    fit(made, *rows, len(rows[0]), epochs=1)


def check_ranks_with_other_numbers_of_local_layers() -> None:
    """In front of those that all have, and of their shape."""

    def common() -> list[Any]:
        drawn = [keras.initializers.GlorotUniform(seed=seed) for seed in (1, 2)]
        return [keras.layers.Dense(size, kernel_initializer=one) for size, one in zip((6, 1), drawn, strict=True)]

    def after_one_step(own: list[Any], rows: tuple[Any, Any], optimizer: Any) -> list[Any]:
        shared = common()
        one_step(keras.Sequential([keras.Input((6,)), *own, *shared]), rows, optimizer)
        return [weight for layer in shared for weight in layer.get_weights()]

    single = after_one_step([], tuple(part[:BATCH] for part in data()), keras.optimizers.SGD(0.05))
    share = tuple(part[: BATCH // hvd.size()] for part in mine())
    for registered in (False, True):
        local = [keras.layers.Dense(6, kernel_initializer="identity") for _ in range(hvd.rank() + 1)]
        for layer in local:
            layer.build((None, 6))
        sgd = keras.optimizers.SGD(0.05)
        optimizer = hvd.PartialDistributedOptimizer(sgd, local_layers=[] if registered else local)
        for variable in [one for layer in local for one in layer.trainable_variables] if registered else []:
            optimizer.register_local_var(variable)
        for found, wanted in zip(after_one_step(local, share, optimizer), single, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
        assert all(np.abs(layer.get_weights()[0] - np.eye(6)).max() > 1e-6 for layer in local)


if __name__ == "__main__":
    hvd.init()
    run(globals())
