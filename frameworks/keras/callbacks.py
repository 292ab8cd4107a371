"""Callbacks for fit(): the same start on all ranks, metrics of all ranks, learning rates, files from rank 0 only.

Give them on every rank, in the same order.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import distrun.numpy as arrays
from distrun import _arguments, basics
from distrun._abi import Kind, ReduceOp
from distrun._collectives import batch_call
from distrun._objects import allgather_object
from distrun.numpy._adapter import collective
from distrun.process_sets import global_process_set

from ._backends import checked_variable, checked_variables
from ._keras import keras
from .functions import as_array, broadcast_model, has_its_variables
from .optimizer import SCALING, distributed_optimizers


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Weights and optimizer's state of rank `root_rank` on all ranks, before the first batch.

    After it for a model that gets its variables there: on TensorFlow, one without an input shape that was not built.
    As in Horovod on_batch_end() makes it, and nothing before, where the program has put its own in the place of that.
    local_variables: what this rank has for itself, and keeps; none can be added once fit() has begun. `device` is
    Horovod's and has no effect.
    """

    def __init__(self, root_rank: int = 0, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank, self.device = _arguments.root_rank(root_rank), device
        local = [] if local_variables is None else checked_variables("local_variables", local_variables)
        self._local = {id(one): one for one in local}  # an id is theirs while they are held
        self.broadcast_done = False

    def register_local_var(self, variable: Any) -> None:
        """Leaves `variable` alone."""
        self._local[id(variable)] = checked_variable("register_local_var", variable)

    @property
    def async_safe(self) -> bool:
        """For Keras 3, which else waits for the end of each batch: there is nothing to do where fit() finds the
        variables made."""
        as_here = type(self) is BroadcastGlobalVariablesCallback and self._broadcasts_itself()
        return as_here and keras.backend.backend() != "tensorflow"

    def on_train_begin(self, logs: Any = None) -> None:
        """Once, in the first fit()."""
        if not self.broadcast_done:
            _warn_of_undistributed(self.model)
        if self.broadcast_done or not self._broadcasts_itself():
            return
        # One rank may have built its model to load weights, and the others not: all broadcast at one time.
        own = np.array([has_its_variables(self.model)], np.uint8)
        if arrays.allreduce(own, name="BroadcastGlobalVariablesCallback", op=ReduceOp.MIN)[0]:
            self._broadcast()

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        """Once, if it was not done before."""
        if not self.broadcast_done:
            self._broadcast()

    def _broadcasts_itself(self) -> bool:
        return getattr(self.on_batch_end, "__func__", None) is BroadcastGlobalVariablesCallback.on_batch_end

    def _broadcast(self) -> None:
        broadcast_model(self.model, self.root_rank, self._local)
        self.broadcast_done = True


def _warn_of_undistributed(model: Any) -> None:
    """Whose ranks begin alike and then train alone, without a word: as of a copy of a model. What a train_step of the
    program's own does nobody can tell."""
    optimizer = getattr(model, "optimizer", None)
    own_step = getattr(type(model), "train_step", None) is not keras.Model.train_step
    # Keras's wrapper around one of TensorFlow 1, which distrun.tensorflow distributes.
    older = hasattr(getattr(optimizer, "optimizer", None), "register_local_var")
    some = older or bool(distributed_optimizers(model))
    if basics.size() > 1 and optimizer is not None and not own_step and not some:
        name = getattr(optimizer, "name", type(optimizer).__name__)  # legacy Keras's LossScaleOptimizer has none
        warnings.warn(
            f"the model's optimizer {name} is not distributed, so each rank trains alone: compile the model "
            "with hvd.DistributedOptimizer(optimizer). Keras's copies of models and optimizers (clone_model, deepcopy, "
            "keras.saving.load_model) have an optimizer without it.",
            stacklevel=3,
        )


class MetricAverageCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """The metrics of an epoch are the averages over all ranks, of vectors (F1Score) each value's. Put it in front of
    callbacks that look at metrics. What is no number, and vectors whose lengths differ among ranks, it leaves alone."""

    def __init__(self, device: str = "") -> None:
        super().__init__()
        del device

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Changes `logs`, and so the history and what later callbacks see."""
        if not logs:
            logs = {}
        values = {name: _numbers(logs[name]) for name in sorted(logs)}
        shapes = {name: None if value is None else list(value.shape) for name, value in values.items()}
        # Not by ranks that have joined. Under one name for every epoch: ranks in different ones meet, and are told.
        told = allgather_object((basics.rank(), epoch, shapes), "MetricAverageCallback")
        _refuse_other_epochs({rank: its for rank, its, _ in told})
        averaged = _averaged({rank: its for rank, _, its in told})
        what = batch_call(Kind.ALLREDUCE, [f"MetricAverageCallback.{name}" for name in averaged], global_process_set)
        sums = collective.same_size([values[name] for name in averaged], what, in_place=False).wait()
        for name, one in zip(averaged, sums, strict=True):
            logs[name] = one / len(told) if one.ndim else float(one) / len(told)


def _refuse_other_epochs(everybodys: dict[int, Any]) -> None:
    """Ranks that begin with other epochs have other learning rates, and end at other times."""
    rank = basics.rank()
    if odd := [other for other, epoch in everybodys.items() if epoch != everybodys[rank]]:
        raise ValueError(
            f"rank {rank} is at the end of epoch {everybodys[rank]}, rank {odd[0]} at that of epoch "
            f"{everybodys[odd[0]]} (the first is 0). Give fit() the same initial_epoch on all ranks; what rank 0 alone "
            "finds out, as by a checkpoint, it tells the others: initial_epoch = int(hvd.broadcast(initial_epoch, 0))."
        )


def _numbers(value: Any) -> Any:
    """In float64; None for what holds anything but real numbers, as callbacks in front may put there."""
    try:
        found = as_array(value)
        return found.astype(np.float64, casting="same_kind") if found.ndim else np.array(float(found))
    except Exception:  # which each backend raises for what it does not convert
        return None


def _averaged(everybodys: dict[int, dict[str, list[int] | None]]) -> list[str]:
    """Of the shapes of all ranks' metrics the names of those to average, which all ranks find alike."""
    own = everybodys[basics.rank()]
    scalars = {rank: {name: shape == [] for name, shape in its.items()} for rank, its in everybodys.items()}
    if odd := [rank for rank, its in scalars.items() if its != scalars[basics.rank()]]:
        raise ValueError(
            f"the ranks have different metrics: rank {basics.rank()} has {_text(own)}, rank {odd[0]} has "
            f"{_text(everybodys[odd[0]])}. Give all ranks the same metrics and validation data."
        )
    unlike = [name for name, shape in own.items() if any(its[name] != shape for its in everybodys.values())]
    if unlike:
        warnings.warn(
            f"metrics whose shapes differ among ranks are not averaged: {', '.join(unlike)}. Each rank keeps its own.",
            stacklevel=3,
        )
    return [name for name, shape in own.items() if shape is not None and name not in unlike]


def _text(shapes: dict[str, list[int] | None]) -> list[str]:
    return [f"{name} (no numbers)" if shape is None else f"{name}{shape or ''}" for name, shape in shapes.items()]


class LearningRateScheduleCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Sets the learning rate to initial_lr times `multiplier`, a number or a function of the epoch.

    A number is the factor in every epoch from start_epoch on, whatever staircase is; late releases of Horovod took it
    for the factor from one epoch to the next, which is lambda epoch: multiplier ** (epoch - start_epoch).
    From start_epoch on, before end_epoch. With staircase it changes with the epoch only; else with every batch, the
    epoch being a fraction: `steps_per_epoch` is then needed where Keras does not know it. momentum_correction is
    Horovod's: the momentum is part of Keras's compiled step, so nothing is corrected.
    """

    def __init__(
        self,
        initial_lr: float | None = None,
        multiplier: float | Callable[[float], float] | None = None,
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        del momentum_correction
        if initial_lr is None:
            raise ValueError(
                f"Parameter `initial_lr` is required: give {type(self).__name__} the learning rate for all ranks "
                "together, which the optimizer has too, as initial_lr=0.01 * hvd.size(). Older releases of Horovod "
                "took the optimizer's by themselves."
            )
        if multiplier is None:
            raise ValueError(f"{type(self).__name__} needs multiplier=, a number or a function of the epoch.")
        _check_multiplier(multiplier)
        given = {"start_epoch": start_epoch, "end_epoch": end_epoch, "steps_per_epoch": steps_per_epoch}
        for argument, value in given.items():
            if value is not None:
                _arguments.number(argument, value)
        self.initial_lr = initial_lr
        self.start_epoch, self.end_epoch = start_epoch, end_epoch
        self.staircase = staircase if callable(multiplier) else True
        self.steps_per_epoch = steps_per_epoch
        self.multiplier: Callable[[float], float] = multiplier if callable(multiplier) else lambda epoch: multiplier
        self.current_epoch = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Looks for what would fail in the middle of training."""
        adjust = getattr(self._adjust_learning_rate, "__func__", None)
        if adjust is LearningRateScheduleCallback._adjust_learning_rate:
            self._refuse_schedule()
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = (self.params or {}).get("steps")
            if not self.steps_per_epoch:
                raise ValueError(
                    f"{type(self).__name__} needs steps_per_epoch: Keras does not know how many batches an epoch has."
                )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """The epoch that batches belong to."""
        self.current_epoch = epoch

    def on_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Sets the rate for the batch."""
        epoch = self.current_epoch
        if epoch < self.start_epoch or (self.end_epoch is not None and epoch >= self.end_epoch):
            return
        if self.staircase:
            if batch == 0:
                self._adjust_learning_rate(epoch)
        else:
            self._adjust_learning_rate(epoch + batch / (self.steps_per_epoch or 1))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Adds "lr" to the metrics."""
        if logs is not None:
            logs["lr"] = float(self.model.optimizer.learning_rate)

    def _adjust_learning_rate(self, epoch: float) -> None:
        # Horovod's name, which programs override.
        self._refuse_schedule()
        factor = _arguments.number(f"what multiplier gives for epoch {epoch:g}", self.multiplier(epoch))
        self.model.optimizer.learning_rate = _arguments.number("initial_lr", self.initial_lr) * factor

    def _refuse_schedule(self) -> None:
        optimizer = self.model.optimizer
        inner = optimizer.inner_optimizer if isinstance(optimizer, SCALING) else optimizer
        rate = getattr(inner, "_learning_rate", None)
        if callable(rate):
            raise TypeError(
                f"{type(self).__name__} needs an optimizer with a number as learning rate, not a schedule or function, "
                f"which {rate!r:.60} is: give it the number that initial_lr is, or leave out the callback."
            )


def _check_multiplier(multiplier: Any) -> None:
    """What is no number of Python's, and cannot be called with an epoch, would be told in the first batch."""
    if not callable(multiplier):
        _arguments.number("multiplier", multiplier)
        return
    try:  # by what is called, not by what a decorator has around: that may pass more than it is given
        signature = inspect.signature(multiplier, follow_wrapped=False)
    except (TypeError, ValueError):  # of C code, which does not tell
        return
    try:
        signature.bind(0.0)
    except TypeError as error:
        raise TypeError(
            f"multiplier is a number or a function of the epoch, not {multiplier!r:.60}, which cannot be called with "
            f"one argument: {error}."
        ) from None


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """From initial_lr / size to initial_lr in warmup_epochs epochs: `initial_lr` is the rate for all ranks together."""

    def __init__(
        self,
        initial_lr: float | None = None,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        epochs = _arguments.number("warmup_epochs", warmup_epochs)
        if not math.isfinite(epochs) or epochs < 0:
            raise ValueError(f"warmup_epochs is a number of epochs, 0 for none, not {epochs:g}.")

        def multiplier(epoch: float) -> float:
            # At the end of an epoch's last batch the epoch is full. A part of an epoch ends before the epoch does.
            epoch = min(epoch + 1.0 / (self.steps_per_epoch or 1), warmup_epochs)
            return 1.0 / basics.size() * (epoch * (basics.size() - 1) / warmup_epochs + 1)

        super().__init__(
            initial_lr,
            multiplier,
            start_epoch=0,
            end_epoch=int(np.ceil(warmup_epochs)),
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Says where the rate is at the end of the warm-up."""
        super().on_epoch_end(epoch, logs)
        if epoch + 1 == self.end_epoch and self.verbose > 0 and basics.rank() == 0:
            rate = float(self.model.optimizer.learning_rate)
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.", flush=True)


class ModelCheckpoint(keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """keras.callbacks.ModelCheckpoint that writes on rank 0 only."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Rank 0 writes, if save_freq says so."""
        if basics.rank() == 0:
            super().on_train_batch_end(batch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Rank 0 writes, if save_freq says so."""
        if basics.rank() == 0:
            super().on_epoch_end(epoch, logs)


class BestModelCheckpoint(ModelCheckpoint):
    """The best model so far, by `monitor`, written on rank 0 only. Put MetricAverageCallback in front of it."""

    def __init__(
        self,
        filepath: Any,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: str | int = "epoch",
    ) -> None:
        super().__init__(
            str(filepath),  # legacy Keras takes no Path
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )
