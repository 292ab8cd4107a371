"""The reduction has no kernel for TensorFlow's XLA, which Keras 3 chooses by itself where it sees a GPU."""

from __future__ import annotations

import functools
from typing import Any

from distrun import _session

from ._keras import LEGACY, keras
from .optimizer import distributed_optimizers, distributed_part


def _reduces(model: Any) -> bool:
    return any(distributed_part(one).distrun_reduction.travels() for one in distributed_optimizers(model).values())


def _may_reduce(model: Any) -> bool:
    """What a train_step of the program's does is known only when TensorFlow has traced it, for XLA or not: it may have
    a DistributedGradientTape."""
    several = _session.is_open() and _session.world().size > 1
    return _reduces(model) or (several and type(model).train_step is not keras.Model.train_step)


def _refuse(model: Any, asked: Any) -> None:
    if asked and _reduces(model):
        raise ValueError(
            "a model with a DistributedOptimizer cannot be compiled with XLA on TensorFlow, for whose XLA the "
            "reduction has no kernel: pass jit_compile=False to compile()."
        )


def _without_xla(chosen: Any) -> property:
    """In the place of a model's `jit_compile`. One from a file, or one that got its optimizer later, was compiled
    without ours."""

    def choose(model: Any, value: Any) -> None:
        _refuse(model, value)
        chosen.fset(model, value)

    return property(lambda model: chosen.fget(model) and not _reduces(model), choose, doc=chosen.__doc__)


def amend_trainer() -> None:
    """Models that reduce gradients in their steps are not compiled with XLA on TensorFlow, unless they train alone."""
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
    """Legacy Keras uses XLA where it is asked to, and its compile() notes that past the property."""
    compile_ = keras.Model.compile

    @functools.wraps(compile_)
    def compile_with_ours(model: Any, *arguments: Any, **options: Any) -> None:
        compile_(model, *arguments, **options)
        _refuse(model, model._jit_compile)

    keras.Model.compile = compile_with_ours
    keras.Model.jit_compile = _without_xla(keras.Model.jit_compile)
