"""Random numbers of layers after the ranks have begun with equal models. Each rank has its own, also in a restored
run."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
from checks import run

import distrun.keras as hvd
from distrun.keras._keras import keras


class Noisy(keras.layers.Layer):  # type: ignore[misc]
    """Holds a generator, and a layer that has one."""

    def __init__(self) -> None:
        super().__init__()
        self.noise = keras.random.SeedGenerator(3)
        self.inside = keras.layers.Dropout(0.5)

    def call(self, inputs: Any, training: bool = False) -> Any:
        return self.inside(inputs, training=training)


def model() -> Any:
    """The same model on all ranks, as in programs that set one seed."""
    keras.utils.set_random_seed(1)
    inner = keras.Sequential([keras.layers.Dense(4), keras.layers.Dropout(0.5), Noisy()])
    made = keras.Sequential([keras.Input((6,)), inner, keras.layers.GaussianNoise(0.1), keras.layers.Dense(1)])
    made.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    return made


def fit(made: Any, epochs: int = 1) -> None:
    inputs = np.ones((8, 6), np.float32)
    start = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    made.fit(inputs, inputs[:, :1], batch_size=4, epochs=epochs, verbose=0, callbacks=[start])


def seeds(made: Any) -> list[list[int]]:
    weights = {id(one) for one in made.weights}
    ours = [one for one in made.variables if id(one) not in weights and "seed" in one.path]
    return [keras.ops.convert_to_numpy(one).tolist() for one in ours]


def check_each_rank_has_its_own_and_the_root_keeps_its_own() -> None:
    root = hvd.size() - 1
    for send in (
        lambda made: hvd.broadcast_model(made, root),
        lambda made: hvd.broadcast_variables(made.variables, root),
    ):
        made = model()
        before = seeds(made)
        assert len(before) == 4
        send(made)
        after = seeds(made)
        assert (after == before) == (hvd.rank() == root), (before, after)
        assert [count for _, count in after] == [count for _, count in before]
        everybodys = hvd.allgather_object(after)
        for layer in range(4):
            assert len({its[layer][0] for its in everybodys}) == hvd.size(), everybodys
        send(made)  # again: the result depends on the root's seed, not on this rank's
        assert seeds(made) == after


def check_a_restored_run_goes_on_as_the_first() -> None:
    made = model()
    fit(made, epochs=1)
    stored = [keras.ops.convert_to_numpy(one).copy() for one in made.variables]
    expected = seeds(made)
    everybodys = hvd.allgather_object(expected)
    assert expected[-1][1] > 0  # GaussianNoise: on torch, Dropout draws from torch's own generator
    assert len({str(its) for its in everybodys}) == hvd.size(), everybodys
    restored = model()
    if hvd.rank() == 0:  # only rank 0 reads the file
        for variable, value in zip(restored.variables, stored, strict=True):
            variable.assign(value)
    hvd.broadcast_model(restored, 0)
    assert seeds(restored) == expected


def check_what_keeps_its_seeds() -> None:
    """Generators of optimizers are equal on all ranks, because their numbers change the weights. Local variables
    stay."""
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.noise = keras.random.SeedGenerator(5 + hvd.rank())
    hvd.broadcast_variables([optimizer.noise.state], 0)
    assert keras.ops.convert_to_numpy(optimizer.noise.state).tolist() == [5, 0]
    made = model()
    own = next(one for one in made.variables if "seed" in one.path)
    own.assign(np.array([hvd.rank() + 7, 1]))
    start = hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=[own])
    start.set_model(made)
    start.on_batch_end(0)
    assert keras.ops.convert_to_numpy(own).tolist() == [hvd.rank() + 7, 1]
    everybodys = hvd.allgather_object(seeds(made))
    assert len({its[1][0] for its in everybodys}) == hvd.size()


def check_numbers_that_look_like_seeds_travel() -> None:
    counts = keras.Variable(np.array([hvd.rank(), 5]), dtype="int32", trainable=False, name="counts")
    hvd.broadcast_variables([counts], hvd.size() - 1)
    assert keras.ops.convert_to_numpy(counts).tolist() == [hvd.size() - 1, 5]
    gc.freeze()  # as before a fork: afterwards the garbage collector does not show the generators
    generator = keras.random.SeedGenerator(9)
    gc.freeze()
    hvd.broadcast_variables([generator.state], 0)
    assert (keras.ops.convert_to_numpy(generator.state).tolist() == [9, 0]) == (hvd.rank() == 0)
    gc.unfreeze()


if __name__ == "__main__":
    run(globals())
