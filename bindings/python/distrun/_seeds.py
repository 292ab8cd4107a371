"""Random seeds that are variables: those of Keras 3's SeedGenerator and of TensorFlow's Generator.

With equal seeds, all ranks would drop the same units in row i of their batches, in every step. So when variables are
broadcast, each rank's seed becomes a function of the root's seed and of the rank. The root keeps its own seed. The
count of drawn numbers is part of the state and is the root's on every rank, so a restored run continues like the
original one.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from typing import Any

# The element that differs among ranks, if the generator itself is not found: gc does not list frozen objects.
_KEYS_BY_NAME = {"seed_generator_state": 0, "StateVar": -1}


def places(variables: Sequence[Any]) -> dict[int, int]:
    """Returns {index of a seed in `variables`: index of its key element}.

    The key is the first element in Keras ([key, count]), and the last in TensorFlow ([count, ..., key]). Seeds of
    optimizers are left out: their numbers change the weights, which must be equal on all ranks.
    """
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
    """Returns the value that the root's key is XORed with: different on each rank, and 0 on the root.

    It has 31 bits, because some Keras backends have signed seeds.
    """
    return ((rank - root_rank) * 0x9E3779B1) & 0x7FFFFFFF  # an odd factor: the product differs for every rank


def _may_be_seed(variable: Any) -> bool:
    shape = tuple(getattr(variable, "shape", ()) or ())
    dtype = getattr(variable, "dtype", "")
    return len(shape) == 1 and shape[0] in (2, 3) and "int" in str(getattr(dtype, "name", dtype))


def _states() -> tuple[dict[int, int], set[int]]:
    """Returns the key's index for the id() of each generator's state, and the ids of the states of optimizers."""
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
    """Yields the id of a generator's state, and the id of the framework's variable in it."""
    state = getattr(generator, "state", None)
    for one in (state, getattr(state, "_value", None)):
        if one is not None:
            yield id(one)
