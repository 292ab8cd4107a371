"""Initial state from one rank."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

import mxnet as mx
from distrun._abi import Kind
from distrun._collectives import batch_call
from distrun.process_sets import global_process_set

from ._adapter import Array, collective

_Deferred = mx.gluon.parameter.DeferredInitializationError


def _broadcast(pairs: list[tuple[str, Array]], root_rank: int) -> None:
    what = batch_call(Kind.BROADCAST, [f"parameter.{name}" for name, _ in pairs], global_process_set)
    collective.same_size([array for _, array in pairs], what._replace(root=root_rank), in_place=True).wait()


def _broadcast_when_made(parameter: Any, name: str, root_rank: int) -> None:
    """A parameter whose shape the first batch decides gets its values then, on all ranks at the same place."""
    make = parameter._init_impl

    def made(self: Any, *arguments: Any) -> None:
        make(*arguments)
        self._init_impl = make
        _broadcast([(name, array) for array in self.list_data()], root_rank)

    parameter._init_impl = types.MethodType(made, parameter)


def broadcast_parameters(params: Mapping[str, Any], root_rank: int = 0, prefix: str | None = None) -> None:
    """Overwrites arrays, or a block's parameters (`net.collect_params()`), with those of rank `root_rank`.

    prefix: put before the names, where two models have parameters of the same names.
    """
    if not isinstance(params, Mapping) and not hasattr(params, "items"):
        raise ValueError(
            f"parameters are a dict of arrays or what collect_params() gives, not {type(params).__name__}."
        )
    pairs = []
    for key, value in sorted(params.items()):
        name = f"{prefix or ''}{key}"
        if isinstance(value, mx.gluon.Parameter):
            try:
                pairs += [(name, array) for array in value.list_data()]
            except _Deferred:
                _broadcast_when_made(value, name, root_rank)
        else:
            pairs.append((name, value))
    _broadcast(pairs, root_rank)
