"""Mistakes of programs with distrun.keras. Each error points to the program's line, with argument, value and allowed
values."""

from __future__ import annotations

import functools
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from checks import raises, run
from keras_callbacks import fit, model

import distrun.keras as hvd
from distrun.keras._keras import LEGACY, keras

Schedule = hvd.callbacks.LearningRateScheduleCallback
Warmup = hvd.callbacks.LearningRateWarmupCallback
sgd = keras.optimizers.SGD


def refuses(make: Callable[[], Any], kind: type[Exception], *texts: str) -> BaseException:
    with raises(kind, *texts) as caught:
        make()
    return caught[0]


def measured(epoch: float) -> int:
    """A multiplier that raises an error itself."""
    return len(epoch)  # type: ignore[arg-type]


def check_an_error_of_the_multiplier_is_its_own() -> None:
    error = refuses(lambda: fit(model(), Schedule(0.5, measured)), TypeError, "has no len()")
    assert any(frame.name == "measured" for frame in traceback.extract_tb(error.__traceback__))
    refuses(
        lambda: fit(model(), Schedule(0.5, lambda epoch: None)), TypeError, "multiplier gives for epoch 0", "not None"
    )
    refuses(
        lambda: fit(model(), Schedule("0.5", lambda epoch: 1.0)), TypeError, "initial_lr must be one number, not '0.5'"
    )


def with_an_argument_more(function: Callable[[float, float], float]) -> Callable[..., float]:
    """A decorator of the program that supplies one argument."""

    @functools.wraps(function)
    def inner(*arguments: float) -> float:
        return function(*arguments, 0.1)

    return inner


def check_a_multiplier_is_called_with_the_epoch() -> None:
    for wrong in (lambda: 1.0, lambda epoch, rate: rate, (5).bit_length):
        refuses(lambda wrong=wrong: Schedule(0.5, wrong), TypeError, "function of the epoch", "with one argument")
    refuses(lambda: Schedule(0.5, "x"), TypeError, "multiplier must be one number, not 'x'")
    for right in (with_an_argument_more(lambda epoch, rate: rate), functools.partial(pow, 1), np.float32(0.1), abs):
        fit(model(), Schedule(0.5, right))


def check_an_optimizer_that_has_a_schedule() -> None:
    """Refused before the first step, even if the callback begins later or the optimizer scales the loss."""
    falling = keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5)
    scaling = (keras.mixed_precision if LEGACY else keras.optimizers).LossScaleOptimizer
    for rate in (falling, *(() if LEGACY else (lambda: 0.1,))):
        for optimizer in (sgd(rate), scaling(sgd(rate))):
            made = model()
            made.compile(optimizer=hvd.DistributedOptimizer(optimizer), loss="mse")
            for callback in (Schedule(0.5, 1.0, start_epoch=3), Warmup(0.5, steps_per_epoch=2)):
                refuses(
                    lambda made=made, callback=callback: fit(made, callback),
                    TypeError,
                    "an optimizer whose learning rate is a number",
                )
            assert int(made.optimizer.iterations) == 0


def check_numbers_of_the_callbacks() -> None:
    for value in ("5", 1j):
        refuses(
            lambda value=value: Warmup(0.5, warmup_epochs=value),
            TypeError,
            "warmup_epochs must be one number",
            repr(value),
        )
        for argument in ("start_epoch", "end_epoch", "steps_per_epoch"):
            given = {argument: value}
            refuses(
                lambda given=given: Schedule(0.5, 1.0, **given),
                TypeError,
                f"{argument} must be one number",
                repr(value),
            )
    for value in (float("nan"), float("inf"), -1):
        refuses(
            lambda value=value: Warmup(0.5, warmup_epochs=value), ValueError, "warmup_epochs must be", f"not {value:g}."
        )
    fit(model(), Warmup(0.5, warmup_epochs=np.float32(0.5), steps_per_epoch=2.0), Warmup(0.5, warmup_epochs=0))
    for epochs in (0.5, 1.5):
        made = model()
        fit(made, Warmup(0.25, warmup_epochs=epochs), epochs=3)
        assert abs(float(made.optimizer.learning_rate) - 0.25) < 1e-6, "it goes on after the warm-up"


def check_options_of_the_optimizer() -> None:
    for kind, text, options in (
        (TypeError, "gradient_predivide_factor must be one number, not '2'", {"gradient_predivide_factor": "2"}),
        (ValueError, "gradient_predivide_factor must be a finite number", {"gradient_predivide_factor": 0}),
        (ValueError, "not nan", {"gradient_predivide_factor": float("nan")}),
        (TypeError, "backward_passes_per_step must be a whole number, not '2'", {"backward_passes_per_step": "2"}),
        (ValueError, "backward_passes_per_step must be at least 1, not 0", {"backward_passes_per_step": 0}),
        (TypeError, "name must be a str", {"name": 5}),
        (ValueError, r"name must not contain a NUL character: 'a\x00b'", {"name": "a\0b"}),
        (ValueError, r"name must be one line of text: 'a\nb'", {"name": "a\nb"}),
        (TypeError, "process_set must be a ProcessSet", {"process_set": [0]}),
        (TypeError, "process_set must be a ProcessSet", {"process_set": None}),
        (TypeError, "list of lists of Keras variables, not 'abc'", {"groups": "abc"}),
        (ValueError, "groups must be at least 0, not -1", {"groups": -1}),
        (TypeError, "groups[0] must be a list of Keras variables", {"groups": [model().weights[0]]}),
        (TypeError, "groups[0] must have Keras variables", {"groups": [[1]]}),
        (TypeError, "num_groups must be a whole number", {"num_groups": "abc"}),
        (ValueError, "compression must be Compression.none, fp16 or bf16, not 'zip'", {"compression": "zip"}),
    ):
        refuses(lambda options=options: hvd.DistributedOptimizer(sgd(), **options), kind, text)
    if not LEGACY:
        scaled = keras.optimizers.LossScaleOptimizer(sgd())
        refuses(
            lambda: hvd.DistributedOptimizer(scaled, backward_passes_per_step=2),
            ValueError,
            "a LossScaleOptimizer does not accumulate gradients itself. Leave out backward_passes_per_step",
            "create the optimizer in it with gradient_accumulation_steps=2",
        )
    made = hvd.DistributedOptimizer(
        *(sgd(), "own", "/cpu:0"),
        groups=[model().weights],
        num_groups=np.int64(2),
        gradient_predivide_factor=np.ones(()),
    )
    assert "own" in made.name
    hvd.DistributedOptimizer(sgd(), num_groups=None)
    refuses(
        lambda: made.register_local_var(model()),
        TypeError,
        "register_local_var must have Keras variables",
        "Sequential",
    )


def check_what_is_no_optimizer() -> None:
    refuses(
        lambda: hvd.DistributedOptimizer("sgd"), ValueError, "'sgd' is not an optimizer", "keras.optimizers.get(name)"
    )
    refuses(lambda: hvd.DistributedOptimizer(sgd), ValueError, "is not an optimizer", "create it first: SGD()")


def check_arrays_that_are_more_than_numbers() -> None:
    for call in (hvd.allreduce, hvd.allgather, hvd.reducescatter, lambda value: hvd.broadcast(value, 0)):
        refuses(lambda call=call: call(np.ma.ones(2 * hvd.size())), ValueError, "a masked array")


def check_roots() -> None:
    ones, made = np.ones(2), model()
    for wrong, kind in (("0", TypeError), (0.0, TypeError), (None, TypeError), (1 << 40, ValueError)):
        for attempt in (
            lambda wrong=wrong: hvd.broadcast(ones, wrong),
            lambda wrong=wrong: hvd.broadcast_object(1, wrong),
            lambda wrong=wrong: hvd.broadcast_variables(made.weights, wrong),
            lambda wrong=wrong: hvd.broadcast_model(made, wrong),
            lambda wrong=wrong: hvd.callbacks.BroadcastGlobalVariablesCallback(wrong),
        ):
            refuses(attempt, kind, "must be", f"not {wrong!r}")
    hvd.broadcast_model(made, np.int64(hvd.size() - 1))


def check_what_is_no_variable_or_model() -> None:
    made = model()
    refuses(lambda: hvd.broadcast_variables(made), TypeError, "broadcast_variables must be a list", "Sequential")
    refuses(lambda: hvd.broadcast_variables(made.weights[0]), TypeError, "must be a list of Keras variables")
    refuses(lambda: hvd.broadcast_variables(made.get_weights()), TypeError, "must have Keras variables", "ndarray")
    refuses(lambda: hvd.broadcast_model(made.weights), TypeError, "takes a Keras model, not one of type list")
    start = hvd.callbacks.BroadcastGlobalVariablesCallback
    refuses(
        lambda: start(0, local_variables=made.weights[0]),
        TypeError,
        "local_variables must be a list of Keras variables",
    )
    refuses(
        lambda: start(0, local_variables=made.layers), TypeError, "local_variables must have Keras variables", "Dense"
    )
    refuses(lambda: start(0).register_local_var(made.layers[0]), TypeError, "register_local_var must have", "Dense")
    start(0, local_variables=iter(made.weights)).register_local_var(made.weights[0])


def check_values_and_names() -> None:
    ones = np.ones((hvd.size(), 1))
    for name, text in (("a\0b", "not contain a NUL"), ("a\nb", "be one line"), ("a\rb", "be one line")):
        for call in (hvd.allreduce, hvd.allgather, hvd.reducescatter, hvd.allgather_object):
            refuses(
                lambda call=call, name=name: call(ones, name=name),
                ValueError,
                f"name must {text}",
            )
        refuses(lambda name=name: hvd.broadcast(ones, 0, name), ValueError, text)
    for argument in ("prescale_factor", "postscale_factor"):
        given = {argument: "2"}
        refuses(lambda given=given: hvd.allreduce(ones, **given), TypeError, f"{argument} must be one number, not '2'")
    for call in (hvd.allreduce, hvd.allgather, hvd.reducescatter):
        refuses(lambda call=call: call(ones, process_set=[0]), TypeError, "from add_process_set")


def check_files() -> None:
    """A model that was never compiled has no optimizer to distribute. It is loaded as in plain Keras."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("model.keras", "model.h5"):
            file = Path(folder) / name
            plain = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4), keras.layers.Dense(1)])
            plain.save(file)
            again = hvd.load_model(file)
            assert getattr(again, "optimizer", None) is None
            assert all(map(np.array_equal, again.get_weights(), plain.get_weights()))
            again.compile(optimizer=hvd.DistributedOptimizer(sgd(0.0)), loss="mse")
            fit(again)
        refuses(lambda: hvd.load_model(file, compression="zip"), ValueError, "compression must be Compression.none")
        refuses(lambda: hvd.load_model(file, sgd), TypeError, "custom_optimizers must be a list of optimizer classes")
        refuses(
            lambda: hvd.load_model(file, [sgd()]), TypeError, "custom_optimizers must be a list of optimizer classes"
        )
        refuses(lambda: hvd.load_model(file, None, [sgd]), TypeError, "custom_objects must be a dict")
        for passes, kind, text in ((0, ValueError, "at least 1"), ("2", TypeError, "a whole number")):
            refuses(lambda passes=passes: hvd.load_model(file, backward_passes_per_step=passes), kind, text)
        if not LEGACY:
            text = "files of Keras 3 have the number of passes"
            refuses(lambda: hvd.load_model(file, backward_passes_per_step=2), ValueError, text)


def check_local_variables_where_all_gradients_are_judged_together() -> None:
    """Each rank would decide with its own local gradients, and the ranks would diverge."""
    scaling = (keras.mixed_precision if LEGACY else keras.optimizers).LossScaleOptimizer
    several = getattr(keras.optimizers, "MultiOptimizer", None)
    clipped = [sgd(global_clipnorm=1.0)]
    if several is not None and not LEGACY:
        clipped.append(several(keras.optimizers.OptimizerMap(sgd(global_clipnorm=1.0))))
    layer = model().layers[-1]
    for optimizer in clipped:
        refuses(
            lambda optimizer=optimizer: hvd.PartialDistributedOptimizer(optimizer, local_layers=layer),
            ValueError,
            "variables of one rank only (local_layers, register_local_var) cannot be used with global_clipnorm",
            "Use clipnorm, which clips each variable by itself",
        )
    hvd.PartialDistributedOptimizer(sgd(clipnorm=1.0), local_layers=layer)
    refused = (ValueError, "cannot be used with loss scaling", "mixed_bfloat16")
    if not LEGACY:
        refuses(lambda: hvd.PartialDistributedOptimizer(scaling(sgd()), local_layers=layer), *refused)
        return
    for outside in (False, True):  # legacy Keras knows it at the first step
        made = model()
        optimizer = sgd(0.1) if outside else scaling(sgd(0.1))
        optimizer = hvd.PartialDistributedOptimizer(optimizer, local_layers=made.layers[-1])
        made.compile(optimizer=scaling(optimizer) if outside else optimizer, loss="mse")
        refuses(lambda made=made: fit(made), *refused)


def check_files_do_not_tell_the_sum_of_passes_from_their_average() -> None:
    if LEGACY:
        return
    with tempfile.TemporaryDirectory() as folder:
        for average in (False, True):
            made, file = model(), Path(folder) / "model.keras"
            options = {"backward_passes_per_step": 2, "average_aggregated_gradients": average}
            made.compile(optimizer=hvd.DistributedOptimizer(sgd(0.05), **options), loss="mse")
            fit(made)
            made.save(file)
            refuses(
                lambda file=file: hvd.load_model(file),
                ValueError,
                "model.keras: its optimizer accumulates the gradients of 2 passes",
                "average_aggregated_gradients=False for the sum",
            )
            again = hvd.load_model(file, average_aggregated_gradients=average)
            before = made.get_weights()
            for one in (made, again):
                fit(one)
            moved = [np.abs(new - old).max() for new, old in zip(made.get_weights(), before, strict=True)]
            assert max(moved) > 1e-4, moved
            for mine, its in zip(made.get_weights(), again.get_weights(), strict=True):
                np.testing.assert_allclose(mine, its, rtol=1e-5, atol=1e-6)


def check_an_optimizer_that_is_not_distributed() -> None:
    """For example Keras's copy of a distributed optimizer."""
    made, plain = model(), model()
    plain.compile(optimizer=type(plain.optimizer).__mro__[1](0.0), loss="mse")
    scaled = model()
    scaling = keras.mixed_precision if LEGACY else keras.optimizers
    scaled.compile(optimizer=scaling.LossScaleOptimizer(sgd(0.0)), loss="mse")
    for one, wanted in ((made, False), (plain, hvd.size() > 1), (scaled, hvd.size() > 1)):
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            fit(one, hvd.callbacks.BroadcastGlobalVariablesCallback(0))
        texts = [
            str(each.message) for each in heard if "is not distributed, so each rank trains alone" in str(each.message)
        ]
        assert len(texts) == wanted, texts


def check_legacy_keras_is_not_compiled_with_xla() -> None:
    """Legacy Keras's step has no XLA kernel for the reduction. keras_fit.py has the check for Keras 3."""
    if not LEGACY or hvd.size() == 1:
        return
    for policy in ("float32", "mixed_float16"):
        keras.mixed_precision.set_global_policy(policy)
        try:
            refuses(
                lambda: model().compile(optimizer=hvd.DistributedOptimizer(sgd()), loss="mse", jit_compile=True),
                ValueError,
                "cannot be compiled with XLA on TensorFlow",
                "Pass jit_compile=False to compile()",
            )
        finally:
            keras.mixed_precision.set_global_policy("float32")
    later = model()
    later.compile(optimizer=sgd(), loss="mse", jit_compile=True)
    assert later.jit_compile
    later.optimizer = hvd.DistributedOptimizer(sgd(0.0))
    fit(later)
    with raises(ValueError, "Pass jit_compile=False"):
        later.jit_compile = True


if __name__ == "__main__":
    hvd.init()
    run(globals())
