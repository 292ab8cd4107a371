"""Broadcast of the initial state."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

import mxnet as mx
from distrun import _arguments
from distrun._abi import Kind
from distrun._collectives import batch_call
from distrun.process_sets import global_process_set
from mxnet.ndarray import NDArray

from ._adapter import Array, collective

_Deferred = mx.gluon.parameter.DeferredInitializationError


def _broadcast(pairs: list[tuple[str, Array]], root_rank: int) -> None:
    what = batch_call(Kind.BROADCAST, [f"parameter.{name}" for name, _ in pairs], global_process_set)
    collective.same_size([array for _, array in pairs], what._replace(root=root_rank), in_place=True).wait()


def _broadcast_when_made(parameter: Any, name: str, root_rank: int) -> None:
    """Broadcasts a parameter at its initialization, when the first batch has set its shape, on all ranks alike."""
    make = parameter._init_impl

    def made(self: Any, *arguments: Any) -> None:
        make(*arguments)
        self._init_impl = make
        _broadcast([(name, array) for array in self.list_data()], root_rank)

    parameter._init_impl = types.MethodType(made, parameter)


def broadcast_parameters(params: Mapping[str, Any], root_rank: int = 0, prefix: str | None = None) -> None:
    """Overwrites arrays, or a block's parameters (`net.collect_params()`), with those of rank `root_rank`. Collective.

    A gluon Parameter without a shape is broadcast when it is initialized. prefix: a text before the names, for two
    models with parameters of the same names. ValueError or TypeError for other values.
    """
    if not isinstance(params, Mapping) and not hasattr(params, "items"):
        raise ValueError(
            f"parameters must be a dict of arrays, or the result of collect_params(), not {type(params).__name__}."
        )
    root_rank, prefix = _arguments.root_rank(root_rank), _arguments.name(prefix, "prefix")
    named = sorted(((f"{prefix or ''}{key}", value) for key, value in params.items()), key=lambda item: item[0])
    for name, value in named:  # check all before any is broadcast
        _arguments.name(name, "the name of a parameter")
        if not isinstance(value, mx.gluon.Parameter | NDArray):
            raise TypeError(
                f"parameter {name!r:.60} is of type {type(value).__name__}, not an array of MXNet or a Parameter of "
                "gluon. Send other values with broadcast_object."
            )
    pairs = []
    for name, value in named:
        if isinstance(value, mx.gluon.Parameter):
            try:
                pairs += [(name, array) for array in value.list_data()]
            except _Deferred:
                _broadcast_when_made(value, name, root_rank)
        else:
            pairs.append((name, value))
    _broadcast(pairs, root_rank)
