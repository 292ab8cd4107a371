"""Copies and pickles in distrun.keras: of distributed optimizers, and of models that have them."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from checks import raises, run
from keras_fit import BATCH, alone, distributed, fit, mine, model, same, start

import distrun.keras as hvd
from distrun.keras._keras import LEGACY, SCALING, keras

KINDS = [keras.optimizers, keras.optimizers.legacy] if LEGACY else [keras.optimizers]


def pickled(what: Any) -> Any:
    return pickle.loads(pickle.dumps(what))


COPIES: list[Callable[[Any], Any]] = [copy.deepcopy, pickled]


def trained(make: Callable[[], Any], epochs: int, **options: Any) -> Any:
    """A model after some epochs on this rank's shares."""
    made = model(0)
    made.compile(optimizer=hvd.DistributedOptimizer(make(), **options), loss="mse")
    passes = options.get("backward_passes_per_step", 1)
    fit(made, *mine(), BATCH // hvd.size() // passes, epochs=epochs)
    return made


def go_on(made: Any, passes: int = 1) -> Any:
    return fit(made, *mine(), BATCH // hvd.size() // passes, epochs=1)


def falling() -> Any:
    return keras.optimizers.schedules.ExponentialDecay(0.05, 1, 0.8)


def check_copies_of_optimizers_continue() -> None:
    """With the momenta, the steps and the options; for the same variables, and for those of a copy of the model."""
    passes = {"backward_passes_per_step": 2, "average_aggregated_gradients": True}
    for kind in KINDS:
        for make, options in (
            (lambda kind=kind: kind.Adam(0.01), {"compression": "bf16", "op": hvd.Sum}),
            (lambda kind=kind: kind.SGD(falling(), momentum=0.9), passes),
        ):
            count = options.get("backward_passes_per_step", 1)
            for copied in COPIES:
                made, expected = trained(make, 2, **options), trained(make, 3, **options)
                other = keras.models.clone_model(made)
                other.set_weights(made.get_weights())
                for one in (made, other):
                    again = copied(made.optimizer)
                    if one is made:
                        assert int(again.iterations) == int(made.optimizer.iterations) > 0
                        assert again.get_config() == made.optimizer.get_config()
                        assert dataclasses.asdict(again.distrun_reduction) == dataclasses.asdict(
                            made.optimizer.distrun_reduction
                        )
                    one.compile(optimizer=again, loss="mse")
                for one in (made, other):
                    go_on(one, count)
                    same(one, expected)
                    assert int(one.optimizer.iterations) == int(expected.optimizer.iterations)


def check_copies_of_new_optimizers() -> None:
    for kind in KINDS:
        for copied in COPIES:
            holder = copied({"optimizer": hvd.DistributedOptimizer(kind.SGD(0.05, momentum=0.9))})
            made = model(hvd.rank())
            made.compile(optimizer=holder["optimizer"], loss="mse")
            fit(made, *mine(), BATCH // hvd.size(), [start()])
            same(made, alone(kind.SGD(0.05, momentum=0.9)))


def check_a_copy_for_other_variables_begins_anew() -> None:
    for kind in KINDS:
        again = copy.deepcopy(trained(lambda kind=kind: kind.Adam(0.01), 1).optimizer)
        other = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1, kernel_initializer="zeros")])
        other.compile(optimizer=again, loss="mse")
        go_on(other)
        assert int(again.iterations) == 4
        weights = np.concatenate([one.ravel() for one in other.get_weights()])
        assert np.array_equal(hvd.broadcast(weights, 0), weights)


def check_copies_of_models_continue() -> None:
    for kind in KINDS:
        for copied in COPIES:
            made = trained(lambda kind=kind: kind.Adam(0.01), 2, op=hvd.Sum)
            expected = trained(lambda kind=kind: kind.Adam(0.01), 3, op=hvd.Sum)
            again, plain = copied(made), copied(alone(kind.Adam(0.01)))
            assert not hasattr(plain.optimizer, "distrun_reduction")
            assert again is not made and int(again.optimizer.iterations) == int(made.optimizer.iterations)
            for one in (again, made):
                go_on(one)
                same(one, expected)


def check_copies_of_models_with_passes() -> None:
    for average in (False, True):
        options = {"backward_passes_per_step": 2, "average_aggregated_gradients": average}
        for copied in COPIES:
            again = copied(trained(lambda: keras.optimizers.SGD(0.02), 1, **options))
            go_on(again, 2)
            same(again, trained(lambda: keras.optimizers.SGD(0.02), 2, **options))


def check_copies_with_local_layers() -> None:
    """The copy of a model knows them. An optimizer by itself does not, so its copy is refused."""
    for kind in KINDS:
        made = model(0)
        optimizer = hvd.PartialDistributedOptimizer(kind.SGD(0.05), local_layers=made.layers[-1])
        made.compile(optimizer=optimizer, loss="mse")
        for copied in COPIES:
            with raises(TypeError, "cannot be copied or pickled by itself", "hvd.PartialDistributedOptimizer("):
                copied(optimizer)
            again = copied(made)
            go_on(again)
            kernels = [again.layers[0].get_weights()[0], again.layers[-1].get_weights()[0]]
            equal = [np.array_equal(hvd.broadcast(one, 0), one) for one in kernels]
            assert equal == [True, hvd.rank() == 0], equal


def check_what_weight_decay_leaves_out_of_a_copy() -> None:
    variables = model(0).trainable_variables
    by_name, by_variable = (keras.optimizers.AdamW(0.05, weight_decay=0.9) for _ in range(2))
    by_name.exclude_from_weight_decay(var_names=[variables[0].name])
    by_variable.exclude_from_weight_decay(var_list=variables[:1])
    for copied in COPIES:
        assert not copied(hvd.DistributedOptimizer(by_name))._use_weight_decay(variables[0])
        with raises(TypeError, "cannot be copied or pickled", "exclude_from_weight_decay(var_names="):
            copied(hvd.DistributedOptimizer(by_variable))


def check_copies_of_a_scaled_loss() -> None:
    """In mixed_float16: of DistributedOptimizer's own, and of the program's."""
    before = keras.mixed_precision.global_policy() if LEGACY else keras.config.dtype_policy()
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        for given in (keras.optimizers.SGD(0.01), SCALING(keras.optimizers.SGD(0.01), initial_scale=8.0)):
            made = model(0)
            made.compile(optimizer=hvd.DistributedOptimizer(given), loss="mse")
            go_on(made)
            for copied in COPIES:
                again = copied(made)
                assert isinstance(again.optimizer, SCALING)
                if not LEGACY:  # there, Keras's own LossScaleOptimizer is around the distributed one
                    assert copied(made.optimizer).distrun_scales == made.optimizer.distrun_scales
                go_on(again)
                weights = np.concatenate([one.ravel() for one in again.get_weights()])
                assert np.array_equal(hvd.broadcast(weights, 0), weights)
    finally:
        keras.mixed_precision.set_global_policy(before)


def check_several_optimizers_in_one_are_not_copied() -> None:
    if LEGACY or not hasattr(keras.optimizers, "MultiOptimizer"):
        return
    several = keras.optimizers.MultiOptimizer(keras.optimizers.OptimizerMap(keras.optimizers.SGD()))
    for copied in COPIES:
        with raises(TypeError, "a MultiOptimizer cannot be copied", "create it again: hvd.DistributedOptimizer("):
            copied(hvd.DistributedOptimizer(several))


def check_what_keras_makes_of_a_configuration() -> None:
    """The class of a distributed optimizer makes distributed ones. Keras's own functions make Keras's."""
    for kind in KINDS:
        optimizer = hvd.DistributedOptimizer(kind.Adam(0.25), op=hvd.Sum)
        again = type(optimizer).from_config(optimizer.get_config())
        assert again.distrun_reduction.op == hvd.Sum and abs(float(again.learning_rate) - 0.25) < 1e-6
        plain = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
        assert type(plain) is type(kind.Adam())  # on PyTorch, Keras has classes of its own


def check_a_clone_is_compiled_again() -> None:
    """clone_model copies no optimizer. The callback warns of one that is not distributed."""
    made = trained(lambda: keras.optimizers.SGD(0.05), 1)
    clone = keras.models.clone_model(made)
    clone.compile(optimizer=keras.optimizers.SGD(0.0), loss="mse")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        fit(clone, *mine(), BATCH // hvd.size(), [start()], epochs=1)
    texts = [str(one.message) for one in warned if "is not distributed" in str(one.message)]
    assert len(texts) == (hvd.size() > 1) and all("clone_model or keras.saving.load_model" in one for one in texts)


def check_optimizers_that_are_kept_or_dropped() -> None:
    """The next training of the model does not depend on them, nor on the garbage collector of one rank."""
    for kind in KINDS:
        kept, weights = [], model(0).get_weights()
        gc.disable()
        for fold in range(4):
            made = model(0)
            optimizer = hvd.DistributedOptimizer(kind.SGD(0.05, momentum=0.9))
            made.compile(optimizer=optimizer, loss="mse")
            unused = hvd.DistributedOptimizer(kind.Adam(0.05))
            if fold % 2:
                go_on(made)
                kept += [optimizer, unused]
            elif fold:
                made.other_optimizer = unused
            if hvd.rank() == 0:
                gc.collect()
            made.set_weights(weights)
            made.compile(optimizer=hvd.DistributedOptimizer(kind.SGD(0.05, momentum=0.9)), loss="mse")
            fit(made, *mine(), BATCH // hvd.size(), [start()])
            same(made, alone(kind.SGD(0.05, momentum=0.9)))
        gc.enable()
    same(distributed(keras.optimizers.SGD(0.05)), alone(keras.optimizers.SGD(0.05)))


if __name__ == "__main__":
    hvd.init()
    run(globals())
