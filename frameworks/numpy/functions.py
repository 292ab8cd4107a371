"""Initial state from one rank."""

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
    """Overwrites the arrays with those of rank `root_rank`; `params` is a dict, or (name, array) pairs, or arrays."""
    pairs = _parameters.named(params, np.ndarray)
    what = batch_call(Kind.BROADCAST, [f"parameter.{name}" for name, _ in pairs], global_process_set)
    collective.same_size([array for _, array in pairs], what._replace(root=root_rank), in_place=True).wait()
