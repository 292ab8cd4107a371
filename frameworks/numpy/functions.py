"""Broadcast of the initial state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from distrun import _parameters
from distrun._abi import Kind
from distrun._collectives import batch_call
from distrun.process_sets import global_process_set

from ._adapter import Array, collective


def broadcast_parameters(params: Mapping[str, Array] | Iterable[Any], root_rank: int) -> None:
    """Overwrites arrays with those of rank `root_rank`. Collective; blocks.

    params: a dict, (name, array) pairs, or arrays. The ranks have the same names, shapes and dtypes. ValueError for
    other values.
    """
    pairs = _parameters.named(params, np.ndarray)
    what = batch_call(Kind.BROADCAST, [f"parameter.{name}" for name, _ in pairs], global_process_set)
    collective.same_size([array for _, array in pairs], what._replace(root=root_rank), in_place=True).wait()
