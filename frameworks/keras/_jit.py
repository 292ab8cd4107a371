"""Turns XLA off on TensorFlow: the reduction has no kernel for it, and Keras 3 chooses it by itself on a GPU."""

from __future__ import annotations

import functools
from typing import Any

from distrun import _session

from ._keras import LEGACY, keras
from .optimizer import distributed_optimizers, distributed_part


def _reduces(model: Any) -> bool:
    return any(distributed_part(one).distrun_reduction.travels() for one in distributed_optimizers(model).values())


def _may_reduce(model: Any) -> bool:
    """True if the model's step may reduce gradients.

    A program's own train_step may use a DistributedGradientTape. That is known only after TensorFlow has traced it,
    with or without XLA, so this assumes that it does.
    """
    several = _session.is_open() and _session.world().size > 1
    return _reduces(model) or (several and type(model).train_step is not keras.Model.train_step)


def _refuse(model: Any, asked: Any) -> None:
    if asked and _reduces(model):
        raise ValueError(
            "a model with a DistributedOptimizer cannot be compiled with XLA on TensorFlow. Pass jit_compile=False "
            "to compile()."
        )


def _without_xla(chosen: Any) -> property:
    """Returns a replacement for a model's `jit_compile`, which stays False for a model that reduces gradients.

    A model from a file, or one that got its optimizer later, was compiled without distrun's check.
    """

    def choose(model: Any, value: Any) -> None:
        _refuse(model, value)
        chosen.fset(model, value)

    return property(lambda model: chosen.fget(model) and not _reduces(model), choose, doc=chosen.__doc__)


def amend_trainer() -> None:
    """Patches Keras on TensorFlow: a model that reduces gradients in its step is not compiled with XLA."""
    if keras.backend.backend() != "tensorflow":
        return
    if LEGACY:
        _amend_legacy()
        return
    trainer = next((kind for kind in keras.Model.__mro__ if "_resolve_auto_jit_compile" in vars(kind)), None)
    if trainer is None:
        return
    resolve = trainer._resolve_auto_jit_compile
    trainer.jit_compile = _without_xla(trainer.jit_compile)
    trainer._resolve_auto_jit_compile = lambda model: resolve(model) and not _may_reduce(model)


def _amend_legacy() -> None:
    """Patches legacy Keras. It uses XLA only on request, and its compile() does not set the request by the property."""
    compile_ = keras.Model.compile

    @functools.wraps(compile_)
    def compile_with_ours(model: Any, *arguments: Any, **options: Any) -> None:
        compile_(model, *arguments, **options)
        _refuse(model, model._jit_compile)

    keras.Model.compile = compile_with_ours
    keras.Model.jit_compile = _without_xla(keras.Model.jit_compile)
