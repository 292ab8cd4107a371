"""Keras 3 on TensorFlow chooses XLA by itself where it sees a GPU, and the reduction has no kernel there."""

from __future__ import annotations

from typing import Any

from distrun import _session

from ._keras import LEGACY, keras
from .optimizer import distributed_optimizers


def _reduces(model: Any) -> bool:
    return any(one.distrun_reduction.travels() for one in distributed_optimizers(model).values())


def _may_reduce(model: Any) -> bool:
    """What a train_step of the program's does is known only when TensorFlow has traced it, for XLA or not: it may have
    a DistributedGradientTape."""
    several = _session.is_open() and _session.world().size > 1
    return _reduces(model) or (several and type(model).train_step is not keras.Model.train_step)


def amend_trainer() -> None:
    """Models that reduce gradients in their steps are not compiled with XLA on TensorFlow, unless they train alone."""
    if LEGACY or keras.backend.backend() != "tensorflow":
        return
    trainer = next((kind for kind in keras.Model.__mro__ if "_resolve_auto_jit_compile" in vars(kind)), None)
    if trainer is None:
        return
    resolve, chosen = trainer._resolve_auto_jit_compile, trainer.jit_compile

    def set_chosen(model: Any, value: Any) -> None:
        if value and _reduces(model):
            raise ValueError(
                "a model with a DistributedOptimizer cannot be compiled with XLA on TensorFlow, for whose XLA the "
                "reduction has no kernel: pass jit_compile=False to compile()."
            )
        chosen.fset(model, value)

    # A model from a file, or one that got its optimizer later, was compiled without ours.
    trainer.jit_compile = property(lambda model: chosen.fget(model) and not _reduces(model), set_chosen)
    trainer._resolve_auto_jit_compile = lambda model: resolve(model) and not _may_reduce(model)
