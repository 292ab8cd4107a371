"""Callbacks for fit(): equal initial state on all ranks, metrics of all ranks, learning rates, files from rank 0 only.

Pass them on every rank, in the same order.
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

from ._backends import as_array, checked_variable, checked_variables
from ._copies import rate_of
from ._keras import SCALING, keras
from .functions import broadcast_model, has_its_variables
from .optimizer import distributed_optimizers


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Broadcasts the weights and the optimizer's state of rank `root_rank` to all ranks, before the first batch.

    On TensorFlow, an unbuilt model without an input shape gets its variables in the first batch; the broadcast then
    follows that batch. If a subclass overrides on_batch_end(), nothing is broadcast before it, as in Horovod.

    local_variables: variables that each rank keeps; none can be added after fit() has begun. `device` exists for
    Horovod's programs and has no effect.
    """

    def __init__(self, root_rank: int = 0, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank, self.device = _arguments.root_rank(root_rank), device
        local = [] if local_variables is None else checked_variables("local_variables", local_variables)
        self._local = {id(one): one for one in local}  # holding them keeps their ids valid
        self.broadcast_done = False

    def register_local_var(self, variable: Any) -> None:
        """Excludes `variable` from the broadcast."""
        self._local[id(variable)] = checked_variable("register_local_var", variable)

    @property
    def async_safe(self) -> bool:
        """True if Keras 3 need not wait for the end of each batch: this callback does nothing there if fit() starts
        with built variables."""
        as_here = type(self) is BroadcastGlobalVariablesCallback and self._broadcasts_itself()
        return as_here and keras.backend.backend() != "tensorflow"

    def on_train_begin(self, logs: Any = None) -> None:
        """Broadcasts once, in the first fit()."""
        if not self.broadcast_done:
            _warn_of_undistributed(self.model)
        if self.broadcast_done or not self._broadcasts_itself():
            return
        # One rank may have built its model to load weights, while others have not. All must broadcast at the same time.
        own = np.array([has_its_variables(self.model)], np.uint8)
        if arrays.allreduce(own, name="BroadcastGlobalVariablesCallback", op=ReduceOp.MIN)[0]:
            self._broadcast()

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        """Broadcasts, if that has not happened yet."""
        if not self.broadcast_done:
            self._broadcast()

    def _broadcasts_itself(self) -> bool:
        return getattr(self.on_batch_end, "__func__", None) is BroadcastGlobalVariablesCallback.on_batch_end

    def _broadcast(self) -> None:
        broadcast_model(self.model, self.root_rank, self._local)
        self.broadcast_done = True


def _warn_of_undistributed(model: Any) -> None:
    """Warns of a model whose ranks start equal but then silently train alone, for instance a copy of a model.

    A program's own train_step cannot be checked, so it gives no warning.
    """
    optimizer = getattr(model, "optimizer", None)
    own_step = getattr(type(model), "train_step", None) is not keras.Model.train_step
    # Keras's wrapper around a TensorFlow 1 optimizer, which distrun.tensorflow distributes.
    older = hasattr(getattr(optimizer, "optimizer", None), "register_local_var")
    some = older or bool(distributed_optimizers(model))
    if basics.size() > 1 and optimizer is not None and not own_step and not some:
        name = getattr(optimizer, "name", type(optimizer).__name__)  # legacy Keras's LossScaleOptimizer has no name
        warnings.warn(
            f"the optimizer {name} of the model is not distributed, so each rank trains alone. Compile the model "
            "with hvd.DistributedOptimizer(optimizer), also after clone_model or keras.saving.load_model.",
            stacklevel=3,
        )


class MetricAverageCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Replaces the metrics of an epoch by their averages over all ranks. Put it before callbacks that read metrics.

    Vectors (F1Score) are averaged element by element. Metrics that are not numbers, and vectors whose lengths differ
    among the ranks, stay unchanged; the latter give a warning. ValueError if the ranks have different metrics, or are
    at the end of different epochs.
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()
        del device

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Changes `logs`, and so the history and the logs of later callbacks."""
        if not logs:
            logs = {}
        values = {name: _numbers(logs[name]) for name in sorted(logs)}
        shapes = {name: None if value is None else list(value.shape) for name, value in values.items()}
        # Ranks that have joined send nothing. The name is the same in all epochs, so that ranks in different epochs
        # exchange them here, and raise.
        received = allgather_object((basics.rank(), epoch, shapes), "MetricAverageCallback")
        _refuse_other_epochs({rank: its for rank, its, _ in received})
        averaged = _averaged({rank: its for rank, _, its in received})
        what = batch_call(Kind.ALLREDUCE, [f"MetricAverageCallback.{name}" for name in averaged], global_process_set)
        sums = collective.same_size([values[name] for name in averaged], what, in_place=False).wait()
        for name, one in zip(averaged, sums, strict=True):
            logs[name] = one / len(received) if one.ndim else float(one) / len(received)


def _refuse_other_epochs(by_rank: dict[int, Any]) -> None:
    """Raises ValueError if ranks are in different epochs. They would have other learning rates, and end at other
    times."""
    rank = basics.rank()
    if differing := [other for other, epoch in by_rank.items() if epoch != by_rank[rank]]:
        raise ValueError(
            f"rank {rank} is at the end of epoch {by_rank[rank]}, and rank {differing[0]} at the end of epoch "
            f"{by_rank[differing[0]]} (counted from 0). Give fit() the same initial_epoch on all ranks. If only rank 0 "
            "knows it, from a checkpoint, send it: initial_epoch = int(hvd.broadcast(initial_epoch, 0))."
        )


def _numbers(value: Any) -> Any:
    """Converts a metric to float64. None if it is not made of real numbers; a callback before this one may put it
    there."""
    try:
        found = as_array(value)
        return found.astype(np.float64, casting="same_kind") if found.ndim else np.array(float(found))
    except Exception:  # each backend raises its own type for values that it cannot convert
        return None


def _averaged(by_rank: dict[int, dict[str, list[int] | None]]) -> list[str]:
    """Returns the names of the metrics to average, from all ranks' shapes. All ranks get the same result."""
    own = by_rank[basics.rank()]
    scalars = {rank: {name: shape == [] for name, shape in its.items()} for rank, its in by_rank.items()}
    if differing := [rank for rank, its in scalars.items() if its != scalars[basics.rank()]]:
        raise ValueError(
            f"the ranks have different metrics: rank {basics.rank()} has {_text(own)}, rank {differing[0]} has "
            f"{_text(by_rank[differing[0]])}. Give all ranks the same metrics and validation data."
        )
    unlike = [name for name, shape in own.items() if any(its[name] != shape for its in by_rank.values())]
    if unlike:
        warnings.warn(
            f"metrics with different shapes on the ranks are not averaged: {', '.join(unlike)}. Each rank keeps its "
            "own.",
            stacklevel=3,
        )
    return [name for name, shape in own.items() if shape is not None and name not in unlike]


def _text(shapes: dict[str, list[int] | None]) -> list[str]:
    return [f"{name} (no numbers)" if shape is None else f"{name}{shape or ''}" for name, shape in shapes.items()]


class LearningRateScheduleCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Sets the learning rate to initial_lr times `multiplier`, in the epochs from start_epoch on and before end_epoch.

    multiplier: a number, or a function of the epoch. A number is the factor in every epoch, whatever staircase is.
    (Late releases of Horovod use it as the factor from one epoch to the next; write that as
    lambda epoch: multiplier ** (epoch - start_epoch).)

    staircase: the rate changes at the start of an epoch only. Without it the rate changes with every batch, and the
    epoch is a fraction; steps_per_epoch is then needed if Keras does not know it. momentum_correction is Horovod's and
    has no effect, since the momentum is part of Keras's compiled step.
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
                "together, such as initial_lr=0.01 * hvd.size(). The optimizer needs the same one."
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
        """Checks for errors that would otherwise come in the middle of training."""
        adjust = getattr(self._adjust_learning_rate, "__func__", None)
        if adjust is LearningRateScheduleCallback._adjust_learning_rate:
            self._refuse_schedule()
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = (self.params or {}).get("steps")
            if not self.steps_per_epoch:
                raise ValueError(
                    f"{type(self).__name__} needs steps_per_epoch, because Keras does not know how many batches an "
                    "epoch has."
                )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Stores the epoch of the following batches."""
        self.current_epoch = epoch

    def on_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Sets the learning rate for the batch."""
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
        # Horovod's name, because programs override it.
        self._refuse_schedule()
        factor = _arguments.number(f"what multiplier gives for epoch {epoch:g}", self.multiplier(epoch))
        self.model.optimizer.learning_rate = _arguments.number("initial_lr", self.initial_lr) * factor

    def _refuse_schedule(self) -> None:
        optimizer = self.model.optimizer
        inner = optimizer.inner_optimizer if isinstance(optimizer, SCALING) else optimizer
        rate = rate_of(inner)
        if callable(rate):
            raise TypeError(
                f"{type(self).__name__} needs an optimizer whose learning rate is a number, not a schedule or "
                f"function ({rate!r:.60}). Give it the number of initial_lr, or leave out the callback."
            )


def _check_multiplier(multiplier: Any) -> None:
    """Raises for a multiplier that is neither a number nor a function of one argument, before the first batch."""
    if not callable(multiplier):
        _arguments.number("multiplier", multiplier)
        return
    try:  # checks the function that is called: a decorator may pass more arguments than it gets
        signature = inspect.signature(multiplier, follow_wrapped=False)
    except (TypeError, ValueError):  # some C code has no signature
        return
    try:
        signature.bind(0.0)
    except TypeError as error:
        raise TypeError(
            f"multiplier must be a number or a function of the epoch, but {multiplier!r:.60} cannot be called with "
            f"one argument: {error}."
        ) from None


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the rate from initial_lr / size to initial_lr in warmup_epochs epochs.

    initial_lr: the rate for all ranks together. verbose: if positive, rank 0 prints the rate at the end of the warm-up.
    ValueError if warmup_epochs is negative or not finite.
    """

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
            raise ValueError(f"warmup_epochs must be a number of epochs (0: no warmup), not {epochs:g}.")

        def multiplier(epoch: float) -> float:
            # The rate of a batch is that of the batch's end: after the last batch, the whole epoch counts.
            # warmup_epochs may be a fraction.
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
        """Prints the rate at the end of the warm-up, if verbose."""
        super().on_epoch_end(epoch, logs)
        if epoch + 1 == self.end_epoch and self.verbose > 0 and basics.rank() == 0:
            rate = float(self.model.optimizer.learning_rate)
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.", flush=True)


class ModelCheckpoint(keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """A keras.callbacks.ModelCheckpoint that writes on rank 0 only."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Writes on rank 0, if save_freq says so."""
        if basics.rank() == 0:
            super().on_train_batch_end(batch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Writes on rank 0, if save_freq says so."""
        if basics.rank() == 0:
            super().on_epoch_end(epoch, logs)


class BestModelCheckpoint(ModelCheckpoint):
    """Saves the best model so far, by `monitor`, on rank 0 only. Put MetricAverageCallback before it."""

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
            str(filepath),  # legacy Keras does not accept a Path
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )
