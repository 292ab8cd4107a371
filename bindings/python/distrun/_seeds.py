"""Seeds of random numbers that are variables: of SeedGenerator in Keras 3, and of TensorFlow's Generator.

Ranks with one seed would drop the same units in row i of their batches, in every step. So where variables are
broadcast, each rank's seed becomes a function of the root's seed and of the rank. The root keeps its own. How many
numbers were drawn is part of the state, and stays the root's: a restored run goes on as the first one would have.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from typing import Any

# By which element ranks differ, where the generator itself is not found: the collector does not show frozen objects.
_KEYS_BY_NAME = {"seed_generator_state": 0, "StateVar": -1}


def places(variables: Sequence[Any]) -> dict[int, int]:
    """The places of those that are seeds, and which of their elements is the key: [key, count] in Keras, [count, ...,
    key] in TensorFlow. Not those of an optimizer: what it draws changes the weights, on all ranks alike."""
    likely = [index for index, one in enumerate(variables) if _may_be_seed(one)]
    if not likely:
        return {}
    keys, of_optimizers = _states()
    found = {}
    for index in likely:
        one = variables[index]
        by_name = _KEYS_BY_NAME.get(str(getattr(one, "name", "")).partition(":")[0])
        key = keys.get(id(one), by_name)
        if key is not None and id(one) not in of_optimizers:
            found[index] = key
    return found


def mask(rank: int, root_rank: int) -> int:
    """What the key of the root is combined with, by exclusive or: another one for each rank, 0 on the root. 31 bits, as
    some backends of Keras have signed seeds."""
    return ((rank - root_rank) * 0x9E3779B1) & 0x7FFFFFFF  # an odd factor: no two ranks have the same


def _may_be_seed(variable: Any) -> bool:
    shape = tuple(getattr(variable, "shape", ()) or ())
    dtype = getattr(variable, "dtype", "")
    return len(shape) == 1 and shape[0] in (2, 3) and "int" in str(getattr(dtype, "name", dtype))


def _states() -> tuple[dict[int, int], set[int]]:
    """By id(): the key's element in each state that some generator has, and the states that optimizers use."""
    keras, tensorflow = sys.modules.get("keras"), sys.modules.get("tensorflow")
    of_keras = _kinds(keras, "random", "SeedGenerator")
    of_tensorflow = _kinds(tensorflow, "random", "Generator")
    optimizers = _kinds(keras, "optimizers", "Optimizer")
    keys: dict[int, int] = {}
    used: set[int] = set()
    for one in gc.get_objects():
        kind = type(one)
        if issubclass(kind, of_keras):
            keys.update((state, 0) for state in _ids(one))
        elif issubclass(kind, of_tensorflow):
            keys.update((state, -1) for state in _ids(one))
        elif issubclass(kind, optimizers):
            parts = [part for part in vars(one).values() if isinstance(part, of_keras + of_tensorflow)]
            used.update(state for part in parts for state in _ids(part))
    return keys, used


def _kinds(module: Any, part: str, name: str) -> tuple[type, ...]:
    kind = getattr(getattr(module, part, None), name, None)
    return (kind,) if isinstance(kind, type) else ()


def _ids(generator: Any) -> Iterator[int]:
    """Of its state, and of the framework's variable in it."""
    state = getattr(generator, "state", None)
    for one in (state, getattr(state, "_value", None)):
        if one is not None:
            yield id(one)
