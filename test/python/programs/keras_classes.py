"""Optimizers with a program's own classes and schedules in distrun.keras. keras_fit.py has Keras's own."""

from __future__ import annotations

import functools
import tempfile
import warnings
from pathlib import Path
from typing import Any

import h5py
from checks import raises, run
from keras_fit import BATCH, alone, data, distributed, fit, model, same

import distrun.keras as hvd
from distrun.keras._keras import LEGACY, keras


class Falling(keras.optimizers.schedules.LearningRateSchedule):
    """As in tutorials: it is not registered with Keras and has no get_config()."""

    def __call__(self, step: Any) -> Any:
        return 0.1 / (1.0 + (keras.ops.cast(step, "float32") if not LEGACY else keras.backend.cast(step, "float32")))


class Kept(Falling):
    """A schedule that can be serialized."""

    def __init__(self, steps: int = 0) -> None:
        self.steps = steps

    def get_config(self) -> dict[str, Any]:
        return {"steps": self.steps}


class Own(keras.optimizers.SGD):
    """A class of the program."""


@keras.saving.register_keras_serializable("own")
class Registered(keras.optimizers.SGD):
    """A class that Keras finds by its registered name."""


class Named(keras.optimizers.SGD):
    """A class that Keras finds by a name that the program gave it, without a package."""


class FromPeak(keras.optimizers.SGD):
    """Makes its schedule itself. Its configuration has the value from which it makes the schedule."""

    def __init__(self, peak: float, **options: Any) -> None:
        super().__init__(learning_rate=Kept(), **options)
        self.peak = peak

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["learning_rate"]
        return {**config, "peak": self.peak}


class NamedRate(keras.optimizers.SGD):
    """The same, but the value has the name that Keras uses for the schedule."""

    def __init__(self, learning_rate: float, **options: Any) -> None:
        super().__init__(learning_rate=Kept(), **options)
        self.peak = learning_rate

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "learning_rate": self.peak}


class Looking(keras.optimizers.SGD):
    """Reads a value of its configuration from its schedule."""

    def __init__(self, learning_rate: Any = None, steps: int = 0, **options: Any) -> None:
        super().__init__(learning_rate=learning_rate or Kept(steps), **options)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["learning_rate"]
        return {**config, "steps": self._learning_rate.steps}


class Lookahead(keras.optimizers.Optimizer):
    """Wraps another optimizer, and saves it under another name than its attribute's."""

    def __init__(self, optimizer: Any, name: str = "lookahead", **options: Any) -> None:
        super().__init__(learning_rate=0.1, name=name)
        self.inner_optimizer = optimizer

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name, "optimizer": keras.optimizers.serialize(self.inner_optimizer)}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        return cls(keras.optimizers.deserialize(config.pop("optimizer")), **config)


def check_learning_rates_and_classes_that_keras_does_not_find() -> None:
    rates = [Falling(), Kept(), *([] if LEGACY else [lambda: 0.05, functools.partial(float, 0.05)])]
    for make in (lambda rate: keras.optimizers.SGD(rate), Own):
        for rate in rates:
            given = make(rate)
            assert hvd.DistributedOptimizer(given)._learning_rate is given._learning_rate is rate
    same(distributed(Own(Falling())), alone(Own(Falling())))
    made = model(0)
    made.compile(optimizer=Own(Kept()), loss="mse")
    fit(made, *data(), BATCH)
    with tempfile.TemporaryDirectory() as folder:
        made.save(Path(folder) / "model.keras")
        found = hvd.load_model(Path(folder) / "model.keras", [Own], {"Kept": Kept}).optimizer
    assert isinstance(found, Own) and isinstance(found._learning_rate, Kept)
    assert int(found.iterations) == int(made.optimizer.iterations) > 0


def check_classes_that_keras_finds() -> None:
    """Also in files that are loaded without distrun."""
    keras.saving.get_custom_objects()["Named"] = Named
    for kind in (Registered, Named):
        made = distributed(kind(0.05, momentum=0.5))
        with tempfile.TemporaryDirectory() as folder:
            made.save(Path(folder) / "model.keras")
            plain = keras.saving.load_model(Path(folder) / "model.keras").optimizer
            again = hvd.load_model(Path(folder) / "model.keras").optimizer
        assert type(plain) is kind and isinstance(again, kind)
        assert int(plain.iterations) == int(again.iterations) == int(made.optimizer.iterations) > 0


def check_h5_files_without_the_optimizers_state() -> None:
    """For a model that was never trained, and for a trained one whose stored state does not fit this Keras."""
    made = model(0)
    adam = keras.optimizers.Adam(0.01)
    made.compile(optimizer=hvd.DistributedOptimizer(adam), loss=keras.losses.MeanSquaredError())
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        file = Path(folder) / "model.h5"
        made.save(file)
        again = hvd.load_model(file)
        fit(again, *data(), BATCH)
        same(again, alone(keras.optimizers.Adam(0.01)))
        assert not any("starts with new momenta" in str(one.message) for one in warned)
        again.save(file)
        with h5py.File(file, "a") as opened:
            attributes = opened["optimizer_weights"].attrs
            attributes["weight_names"] = attributes["weight_names"][:-1]
        if LEGACY:  # in this case legacy Keras leaves out the number of steps too
            return
        later = hvd.load_model(file).optimizer
        assert int(later.iterations) == int(again.optimizer.iterations) > 0
        assert not any(keras.ops.convert_to_numpy(one).any() for one in later._momentums)
        assert [str(file) in str(one.message) for one in warned if "starts with new momenta" in str(one.message)] == [
            True
        ]


def check_saved_models_of_legacy_keras() -> None:
    """Keras itself stores only the configuration of the optimizer."""
    if not LEGACY:
        return
    made = distributed(keras.optimizers.Adam(0.25))
    with tempfile.TemporaryDirectory() as folder:
        made.save(Path(folder) / "model")
        again = hvd.load_model(str(Path(folder) / "model"))
    same(again, made)
    assert hasattr(again.optimizer, "distrun_reduction") and float(again.optimizer.learning_rate) == 0.25
    assert len(again.optimizer.variables) == len(made.optimizer.variables)
    fit(again, *data(), BATCH, epochs=1)
    assert int(again.optimizer.iterations) == 4


def check_a_class_decides_what_makes_one_like_it() -> None:
    for kind in (FromPeak, NamedRate):
        made = hvd.DistributedOptimizer(kind(0.25, momentum=0.5))
        assert made.peak == 0.25 and made.momentum == 0.5 and isinstance(made._learning_rate, Kept)
    assert hvd.DistributedOptimizer(Looking(steps=7))._learning_rate.steps == 7
    same(distributed(FromPeak(0.25)), alone(FromPeak(0.25)))
    if not LEGACY:
        around = hvd.DistributedOptimizer(Lookahead(keras.optimizers.SGD(0.25, momentum=0.5)))
        assert isinstance(around, Lookahead) and around.inner_optimizer.momentum == 0.5


def check_what_is_inside_a_scaled_loss_is_handed_on() -> None:
    kind = keras.mixed_precision.LossScaleOptimizer if LEGACY else keras.optimizers.LossScaleOptimizer
    for rate in (Falling(), Kept()):
        given = Own(rate, momentum=0.5)
        scaled = kind(given, initial_scale=8.0)
        made = hvd.DistributedOptimizer(scaled)
        inner = made.inner_optimizer
        assert isinstance(inner, Own) and inner._learning_rate is rate and made.initial_scale == 8.0
        assert inner is not given and scaled.inner_optimizer is given and inner.momentum == 0.5


def is_first(variable: Any) -> bool:
    # the first layer of keras_fit's model, whose paths contain the number of models in this process
    return bool(variable.shape[-1] == 8)


def decaying(excluded: bool = True) -> Any:
    optimizer = keras.optimizers.AdamW(0.05, weight_decay=0.9)
    if excluded:
        optimizer.exclude_from_weight_decay(var_names=["bias"])
    return optimizer


def by_paths(excluded: bool = True) -> Any:
    shared = decaying(excluded)
    chosen = keras.optimizers.OptimizerMap(keras.optimizers.SGD(Falling()), {".*kernel": shared, ".*bias": shared})
    return keras.optimizers.MultiOptimizer(chosen)


def by_function() -> Any:
    one, other = decaying(), keras.optimizers.SGD(0.05, momentum=0.9)
    return keras.optimizers.MultiOptimizer(lambda variable: one if is_first(variable) else other)


def check_several_optimizers_in_one() -> None:
    """Chosen by paths, where distrun makes each optimizer again from its configuration, or chosen by a function."""
    if LEGACY or not hasattr(keras.optimizers, "MultiOptimizer"):
        return
    given = by_paths()
    made = hvd.DistributedOptimizer(given)
    assert len(made.optimizers) == 2 and all(one not in given.optimizers for one in made.optimizers)
    for make in (by_paths, by_function):
        single = alone(make())
        same(distributed(make()), single)
        again = hvd.DistributedOptimizer(single.optimizer)
        assert int(again.iterations) == int(single.optimizer.iterations) > 0
        for one, its in zip(again.variables, single.optimizer.variables, strict=True):
            assert (keras.ops.convert_to_numpy(one) == keras.ops.convert_to_numpy(its)).all()
    with raises(AssertionError, "Not equal"):
        same(alone(by_paths(excluded=False)), alone(by_paths()))
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        for given in (by_function(), keras.optimizers.LossScaleOptimizer(by_paths())):
            made = hvd.DistributedOptimizer(given)
            assert isinstance(made.inner_optimizer, keras.optimizers.MultiOptimizer)
    finally:
        keras.config.set_dtype_policy(before)
    with raises(ValueError, "gradient_accumulation_steps=2"):
        hvd.DistributedOptimizer(by_paths(), backward_passes_per_step=2)


if __name__ == "__main__":
    hvd.init()
    run(globals())
