"""Keras 3 on TensorFlow chooses XLA by itself where it sees a GPU, and the reduction has no kernel there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._keras import keras


def amend_trainer(is_distributed: Callable[[object], bool]) -> None:
    """Models with a distributed optimizer are not compiled with XLA on TensorFlow, unless they train alone."""
    if keras.backend.backend() != "tensorflow":
        return
    trainer = next((kind for kind in keras.Model.__mro__ if "_resolve_auto_jit_compile" in vars(kind)), None)
    if trainer is None or hasattr(trainer, "distrun_amended"):
        return
    resolve, chosen = trainer._resolve_auto_jit_compile, trainer.jit_compile

    def reduces(model: Any) -> bool:
        optimizer: Any = getattr(model, "optimizer", None)
        return is_distributed(optimizer) and bool(optimizer.distrun_reduction.travels())

    def set_chosen(model: Any, value: Any) -> None:
        if value and reduces(model):
            raise ValueError(
                "a model with a DistributedOptimizer cannot be compiled with XLA on TensorFlow, for whose XLA the "
                "reduction has no kernel: pass jit_compile=False to compile()."
            )
        chosen.fset(model, value)

    # A model from a file, or one that got its optimizer later, was compiled without ours.
    trainer.jit_compile = property(lambda model: chosen.fget(model) and not reduces(model), set_chosen)
    trainer._resolve_auto_jit_compile = lambda model: resolve(model) and not reduces(model)
    trainer.distrun_amended = True
