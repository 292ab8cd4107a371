"""Copies and pickles of models whose optimizer is distributed: the copy's optimizer is distributed too."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from ._backends import Reduction
from ._copies import State, resume, state_of
from ._keras import LEGACY, OLDER, keras
from .functions import replace_optimizer
from .optimizer import distribute_like, distributed_part, is_distributed


class _Kept(NamedTuple):
    """What Keras's copy of a model lacks."""

    reduction: Reduction
    passes: tuple[int, bool]  # of legacy Keras; Keras 3 has them in the configuration
    local: list[int]  # the places of local variables in model.variables
    state: State | None  # of keras.optimizers.legacy, whose state Keras's copy begins anew


def _kept(model: Any) -> _Kept | None:
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or not is_distributed(optimizer):
        return None
    part = distributed_part(optimizer)
    reduction = part.distrun_reduction
    local = [place for place, one in enumerate(model.variables) if id(one) in reduction.local]
    if len(local) < len(reduction.local):
        reduction.copied()  # raises for variables that are not the model's
    passes = getattr(part, "distrun_passes", None)
    options = passes.options() if passes is not None else (1, False)
    state = state_of(part) if isinstance(part, OLDER) else None
    return _Kept(reduction.without_local(), options, local, state)


def _distribute(model: Any, kept: _Kept) -> Any:
    """Distributes the optimizer of a model that Keras has made."""
    if getattr(model, "optimizer", None) is not None:
        variables = model.variables
        for place in kept.local:
            kept.reduction.keep_local(variables[place])
        replace_optimizer(model, model.optimizer, lambda one: distribute_like(one, kept.reduction, *kept.passes))
        if kept.state is not None:
            resume(distributed_part(model.optimizer), kept.state)
    return model


def _unpickled(make: Callable[..., Any], arguments: Any, kept: _Kept) -> Any:
    """Pickles have the name of this function."""
    return _distribute(make(*arguments), kept)


def amend_models() -> None:
    """Patches Keras: copy.deepcopy and pickle of a model keep its optimizer distributed."""
    reduce = keras.Model.__reduce__

    @functools.wraps(reduce)
    def reduced(model: Any) -> Any:
        plain, kept = reduce(model), _kept(model)
        # Legacy Keras pickles a model without weights as a plain object, with its optimizer.
        return plain if kept is None or len(plain) > 2 else (_unpickled, (*plain, kept))

    keras.Model.__reduce__ = reduced
    if not LEGACY:
        return
    deepcopy = keras.Model.__deepcopy__

    @functools.wraps(deepcopy)
    def copied(model: Any, memo: Any) -> Any:
        made, kept = deepcopy(model, memo), _kept(model)
        return made if kept is None or is_distributed(made.optimizer) else _distribute(made, kept)

    keras.Model.__deepcopy__ = copied
