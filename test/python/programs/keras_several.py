"""distrun.keras for models that hold distributed optimizers in other attributes and have their own steps."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from typing import Any

import numpy as np
from checks import raises, run
from keras_fit import BATCH, StepsOfItsOwn, alone, fit, mine, model, same, start

import distrun.keras as hvd
from distrun.keras._keras import LEGACY, keras


def sgd() -> Any:
    return keras.optimizers.SGD(0.05, momentum=0.9)


class Several(StepsOfItsOwn):
    """Has an optimizer for each layer, as in a GAN. `optimizer` is Keras's default."""

    def __init__(self) -> None:
        super().__init__()
        self.first.build((None, 6))
        self.last.build((None, 8))
        self.d_optimizer = hvd.DistributedOptimizer(sgd())
        self.others = {"g": hvd.DistributedOptimizer(sgd())}

    def call(self, inputs: Any) -> Any:
        return self.last(self.first(inputs))

    def parts(self) -> list[tuple[Any, list[Any]]]:
        return [
            (self.d_optimizer, self.first.trainable_variables),
            (self.others["g"], self.last.trainable_variables),
        ]

    def train_step(self, batch: Any) -> dict[str, Any]:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(batch[0]) - batch[1]) ** 2)
        gradients = tape.gradient(loss, [variables for _, variables in self.parts()])
        for (optimizer, variables), its in zip(self.parts(), gradients, strict=True):
            optimizer.apply_gradients(zip(its, variables, strict=True))
        return {"loss": loss}


def state(made: Any) -> list[Any]:
    return [np.array(one) for optimizer, _ in made.parts() for one in optimizer.variables]


def check_the_state_of_other_optimizers_is_broadcast() -> None:
    made, root = Several(), hvd.size() - 1
    hvd.broadcast_model(made, root)  # none is built yet
    for optimizer, variables in made.parts():
        optimizer.build(variables)
        for one in optimizer.variables:
            one.assign(one + (hvd.rank() + 1))
    before = state(made)
    assert len(before) >= 6  # iterations and two momenta of each optimizer
    hvd.broadcast_model(made, root)
    for its, mine_ in zip(state(made), before, strict=True):
        np.testing.assert_allclose(its, mine_ + (root - hvd.rank()), rtol=1e-6)


def check_ranks_that_have_not_built_them_alike_are_told() -> None:
    """This happens if only rank 0 restores them. On the others, a restored optimizer then has no state to overwrite."""
    made = Several()
    if hvd.rank() == 0:
        made.d_optimizer.build(made.first.trainable_variables)
    if hvd.size() > 1:
        with raises(ValueError, "model.d_optimizer has", "on rank 0", "model.d_optimizer.build(variables)"):
            hvd.broadcast_model(made)
    if hvd.rank() != 0:
        made.d_optimizer.build(made.first.trainable_variables)
        made.others["more"] = hvd.DistributedOptimizer(sgd())
    if hvd.size() > 1:
        with raises(ValueError, "model.others['more'] has", "no variables on rank 0"):
            hvd.broadcast_model(made)
    made.others.pop("more", None)
    hvd.broadcast_model(made)


class Net(enum.Enum):
    GEN = 1
    DISC = 2


def check_optimizers_in_dicts_go_by_name_or_place() -> None:
    made, root = Several(), hvd.size() - 1
    if hvd.rank() == root:  # from now on Keras numbers the layers of this rank differently
        keras.layers.Dense(1)
    layers = [keras.layers.Dense(1), keras.layers.Dense(1)]
    names = sorted(["gen", "disc"], reverse=hvd.rank() == root)  # in different orders, as from a set
    nets = sorted(Net, key=lambda net: net.value, reverse=hvd.rank() == root)
    steps = {"gen": 1, "disc": 2, layers[0]: 3, layers[1]: 4, Net.GEN: 5, Net.DISC: 6}

    def one(key: Any) -> Any:
        optimizer = hvd.DistributedOptimizer(sgd())
        optimizer.iterations.assign(steps[key] + 10 * hvd.rank())
        return optimizer

    made.named = {key: one(key) for key in names}
    if not LEGACY:  # legacy Keras refuses such keys
        made.of_layers = {key: one(key) for key in layers}
        made.of_nets = {key: one(key) for key in nets}
    hvd.broadcast_model(made, root)
    of_others = {**getattr(made, "of_layers", {}), **getattr(made, "of_nets", {})}
    for key, optimizer in [*made.named.items(), *of_others.items()]:
        assert int(optimizer.iterations) == steps[key] + 10 * root


def check_optimizers_that_some_ranks_lack() -> None:
    if hvd.size() == 1:
        return
    made, first = model(), hvd.add_process_set([0])
    if hvd.rank() == 0:
        made.d_optimizer = hvd.DistributedOptimizer(sgd(), process_set=first)
    hvd.broadcast_model(made)
    if hvd.rank() == 0:
        made.d_optimizer = hvd.DistributedOptimizer(sgd())
    with raises(ValueError, "model.d_optimizer has", "no on rank 1", "process_set of these ranks"):
        hvd.broadcast_model(made)


@contextlib.contextmanager
def a_gpu_seen() -> Iterator[None]:
    """Keras chooses XLA by itself in this context."""
    import tensorflow as tf

    before = tf.config.list_physical_devices
    gpu = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")
    tf.config.list_physical_devices = lambda kind=None: before(kind) if kind else [*before(), gpu]
    try:
        yield
    finally:
        tf.config.list_physical_devices = before


class WithTape(keras.Model):
    """A model whose own step reduces the gradients."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def call(self, inputs: Any) -> Any:
        return self.inner(inputs)

    def train_step(self, batch: Any) -> dict[str, Any]:
        import tensorflow as tf

        from distrun.tensorflow import DistributedGradientTape

        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(batch[0]) - batch[1]) ** 2)
        gradients = DistributedGradientTape(tape).gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


def check_steps_of_ones_own_are_those_of_one_process_without_xla() -> None:
    if keras.backend.backend() != "tensorflow":
        return
    with contextlib.nullcontext() if LEGACY else a_gpu_seen():
        keras.utils.set_random_seed(hvd.rank())
        several = Several()
        several.compile()
        with_tape = WithTape(model(hvd.rank()))
        with_tape.compile(optimizer=sgd())
        of_keras = model(hvd.rank())
        of_keras.compile(optimizer=sgd(), loss="mse")
        if not LEGACY:
            assert bool(several.jit_compile) == bool(with_tape.jit_compile) == (hvd.size() == 1)
            assert of_keras.jit_compile
        fit(several, *mine(), BATCH // hvd.size(), [start()])
        fit(with_tape, *mine(), BATCH // hvd.size(), [start()])
    same(with_tape.inner, alone(sgd()))
    for weight in (*several.get_weights(), *state(several)):
        np.testing.assert_array_equal(hvd.broadcast(weight, 0), weight)


if __name__ == "__main__":
    run(globals())
