"""distrun.keras's callbacks as programs for Horovod use them: with their own hooks and in their own loops."""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import types
import warnings
from typing import Any

import numpy as np
from checks import raises, run

import distrun.keras as hvd
from distrun.keras._keras import LEGACY, keras

Start = hvd.callbacks.BroadcastGlobalVariablesCallback


def model() -> Any:
    """Every rank draws its own weights and keeps them, because the learning rate is 0."""
    keras.utils.set_random_seed(hvd.rank())
    made = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    made.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)), loss="mse")
    return made


def fit(made: Any, *callbacks: Any, epochs: int = 1) -> Any:
    inputs = np.ones((8, 6), np.float32)
    return made.fit(inputs, inputs[:, :1], batch_size=4, epochs=epochs, verbose=0, callbacks=list(callbacks)).history


def of_rank_0(made: Any) -> list[bool]:
    """For each kernel, whether it equals rank 0's."""
    kernels = [one for one in made.get_weights() if one.ndim == 2]
    return [bool(np.array_equal(hvd.broadcast(one, 0), one)) for one in kernels]


def first_kernel(callback: Any, batch: int, logs: Any = None) -> None:
    """Replaces on_batch_end. The other weights stay different on each rank."""
    if not callback.broadcast_done:
        assert all(of_rank_0(callback.model)) == (hvd.rank() == 0)
        hvd.broadcast_variables(callback.model.trainable_variables[:1], callback.root_rank)
        callback.broadcast_done = True


class FirstKernel(Start):
    """Horovod broadcasts in on_batch_end, which programs override."""

    on_batch_end = first_kernel


class Later(Start):
    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        assert all(of_rank_0(self.model)) == (hvd.rank() == 0 or batch > 0)
        super().on_batch_end(batch, logs)


def check_what_the_program_does_at_the_end_of_a_batch_is_all_there_is() -> None:
    bound = Start(0)
    bound.on_batch_end = types.MethodType(first_kernel, bound)
    for own in (FirstKernel(0), bound):
        made = model()
        fit(made, own)
        assert own.broadcast_done and of_rank_0(made) == [True, hvd.rank() == 0]
    made = model()
    fit(made, Later(0))
    assert all(of_rank_0(made))


def check_any_rank_may_be_the_root() -> None:
    made, root = model(), hvd.size() - 1
    wanted = [hvd.broadcast(one, root) for one in made.get_weights()]
    fit(made, Start(root))
    assert all(map(np.array_equal, made.get_weights(), wanted))


def check_loops_of_the_programs() -> None:
    """Such loops call the methods of Horovod's callbacks."""
    made, start = model(), Start(0)
    rates = hvd.callbacks.LearningRateScheduleCallback(0.5, lambda epoch: 0.1)
    keras.callbacks.CallbackList([start, rates], model=made).on_batch_begin(0)
    assert np.isclose(float(made.optimizer.learning_rate), 0.05)
    start.on_batch_end(0)
    assert start.broadcast_done and all(of_rank_0(made))


def check_keras_does_not_wait_for_the_end_of_each_batch() -> None:
    if LEGACY or keras.backend.backend() == "tensorflow":
        return  # there callbacks never run beside the steps
    for callback, beside in ((Start(0), True), (FirstKernel(0), False)):
        assert keras.callbacks.CallbackList([callback], model=model())._async_train is beside


def check_a_number_is_the_factor_in_every_epoch() -> None:
    for staircase in (True, False):
        later = hvd.callbacks.LearningRateScheduleCallback(0.5, 0.1, start_epoch=2, staircase=staircase)
        rates = fit(model(), Start(0), later, epochs=4)["lr"]
        assert np.allclose(rates, [0.0, 0.0, 0.05, 0.05]), rates


class OwnRates(hvd.callbacks.LearningRateScheduleCallback):
    """Horovod's hook for programs that set learning rates themselves."""

    def _adjust_learning_rate(self, epoch: float) -> None:
        assert self.current_epoch <= epoch < self.current_epoch + 1
        self.model.optimizer.learning_rate = self.initial_lr["all"] * self.multiplier(epoch)


def check_programs_set_rates_in_their_own_way() -> None:
    for staircase, wanted in ((True, [0.0, 0.5, 1.0]), (False, [0.25, 0.75, 1.25])):
        made = model()
        rates = fit(made, Start(0), OwnRates({"all": 0.5}, lambda epoch: epoch, staircase=staircase), epochs=3)["lr"]
        assert np.allclose(rates, wanted), rates


def check_the_rate_for_all_ranks_has_to_be_given() -> None:
    """Older programs leave this argument out."""
    schedule, warmup = hvd.callbacks.LearningRateScheduleCallback, hvd.callbacks.LearningRateWarmupCallback
    for make in (lambda: warmup(warmup_epochs=5, verbose=1), lambda: schedule(multiplier=0.1, start_epoch=30)):
        with raises(ValueError, "initial_lr=0.01 * hvd.size()"):
            make()
    with raises(ValueError, "needs multiplier="):
        schedule(0.1)


def check_rank_0_alone_goes_on_from_a_file() -> None:
    """As in Horovod's examples. Keras 3 gives a loaded model's variables other paths. `late`: the other ranks have no
    variables before their first step."""
    for late in (False, True):
        made = model()
        made.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss="mse")
        fit(made, Start(0))
        with tempfile.TemporaryDirectory() as folder:
            made.save(f"{folder}/model.keras")
            if hvd.rank() == 0:
                made = hvd.load_model(f"{folder}/model.keras")
            else:
                made = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)]) if late else model()
                made.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss="mse")
        fit(made, Start(0))
        assert all(of_rank_0(made)) and int(made.optimizer.iterations) == 4


def check_ranks_that_begin_with_different_epochs_are_told() -> None:
    """This happens if only rank 0 finds a checkpoint. Each rank would then wait for the metrics of another epoch."""
    if hvd.size() == 1:
        return
    made, inputs = model(), np.ones((8, 6), np.float32)
    average = hvd.callbacks.MetricAverageCallback()
    with raises(ValueError, f"rank {hvd.rank()} is at the end of epoch", "epoch 1", "the same initial_epoch"):
        made.fit(inputs, inputs[:, :1], epochs=2, initial_epoch=int(hvd.rank() == 0), verbose=0, callbacks=[average])


def check_metrics_are_those_of_the_ranks_that_go_on() -> None:
    """Other ranks have joined, with any ranks among them."""
    for last in range(hvd.size()):
        logs = {"loss": 1.0 + hvd.rank()}
        if hvd.rank() == last:
            hvd.callbacks.MetricAverageCallback().on_epoch_end(0, logs)
        hvd.join()
        assert logs["loss"] == 1.0 + hvd.rank(), logs


def check_operations_say_which_callback_they_are_of() -> None:
    """The names tell it, also in the report for a rank without the callback. Here the other ranks submit different
    arrays with these names."""
    if hvd.size() == 1:
        return
    made, first = model(), hvd.rank() == 0
    start, average = Start(0), hvd.callbacks.MetricAverageCallback()
    start.set_model(made)
    with raises(hvd.Mismatch, "'allreduce.BroadcastGlobalVariablesCallback'"):
        if first:
            start.on_train_begin()
        else:
            hvd.allreduce(np.ones(2, np.uint8), "BroadcastGlobalVariablesCallback", op=hvd.Min)
    with raises(hvd.Mismatch, "'allreduce.MetricAverageCallback.loss'"):
        if first:
            average.on_epoch_end(0, {"loss": 1.0})
        else:
            hvd.allgather_object((hvd.rank(), 0, {"loss": []}), "MetricAverageCallback")
            hvd.allreduce(np.ones(2), "MetricAverageCallback.loss", op=hvd.Sum)


def check_rank_0_says_that_the_rate_is_reached() -> None:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        fit(model(), Start(0), hvd.callbacks.LearningRateWarmupCallback(0.5, warmup_epochs=1, verbose=1))
    assert ("finished gradual learning rate warmup to 0.5" in said.getvalue()) == (hvd.rank() == 0), said.getvalue()


def check_older_optimizers_of_legacy_keras_begin_alike() -> None:
    """These optimizers have no build(). The weights are broadcast, and the state that exists."""
    if not LEGACY or hvd.size() == 1:
        return
    import tensorflow as tf

    import distrun.tensorflow

    for optimizer in (keras.optimizers.legacy.SGD(0.0, momentum=0.9), tf.compat.v1.train.MomentumOptimizer(0.0, 0.9)):
        made = model()
        made.compile(optimizer=optimizer, loss="mse")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*is not distributed")
            fit(made, Start(0))
            assert all(of_rank_0(made))
            fit(made)
            made.set_weights([one + hvd.rank() for one in made.get_weights()])
            fit(made, Start(0))
        assert all(of_rank_0(made))
    distributed = model()
    distributed.compile(
        optimizer=distrun.tensorflow.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.0)), loss="mse"
    )
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        fit(distributed, Start(0))
    assert all(of_rank_0(distributed))
    assert not [one for one in heard if "is not distributed, so each rank" in str(one.message)]


if __name__ == "__main__":
    print(keras.backend.backend(), file=sys.stderr)
    hvd.init()
    run(globals())
