"""Reads the parameters that programs pass: to broadcast_parameters in every front end, and the layers of Keras."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def named(params: Mapping[str, T] | Iterable[tuple[str, T]] | Iterable[T], tensor_type: type[T]) -> list[tuple[str, T]]:
    """Returns (name, tensor) pairs of a dict, of such pairs, or of tensors. The order is the same on all ranks.

    A dict is sorted by key; other iterables keep their order.
    """
    if isinstance(params, Mapping):
        pairs: Sequence[object] = sorted(params.items())
    elif isinstance(params, Iterable) and not isinstance(params, str | bytes | tensor_type):
        pairs = list(params)
    else:
        raise ValueError(
            f"parameters must be a dict, or an iterable of (name, tensor) or of tensors, not {type(params).__name__}."
        )
    result: list[tuple[str, T]] = []
    for index, item in enumerate(pairs):
        name, tensor = item if isinstance(item, tuple) and len(item) == 2 else (f"parameter.{index}", item)
        if not isinstance(tensor, tensor_type) or not isinstance(name, str):
            raise ValueError(
                f"parameter {name!r:.60} is a {type(tensor).__name__}, not a {tensor_type.__name__}. Send other "
                "values with broadcast_object."
            )
        result.append((name, tensor))
    return result


def local_variables(layer: Any) -> Sequence[Any]:
    """Returns the variables of a layer whose gradients are not reduced.

    ValueError if a part of the layer is not built yet: the gradients of its later variables would be reduced.
    """
    for one in layer._flatten_layers() if hasattr(layer, "_flatten_layers") else ():  # not public; includes itself
        builds = not getattr(one.build, "_is_default", False)  # Keras's mark of a layer without its own build()
        if builds and not one.built and not one.trainable_variables:
            raise ValueError(
                f"the local layer {one.name!r} is not built yet, so the gradients of its variables would be reduced. "
                "Build it, or call the model on a batch, before you pass it in local_layers."
            )
    variables: Sequence[Any] = layer.trainable_variables
    return variables


def without_numbers(name: str) -> str:
    """Removes Keras's counters of layers from a name. Another rank may have created more layers."""
    return re.sub(r"_\d+(?=[_/:]|$)", "", name)


def layer_path(path: str) -> str:
    """Returns a Keras variable's layer and its name in the layer ("lstm_cell/recurrent_kernel").

    The outer scopes are left out. They differ between a rank that has made its model and one that has loaded it.
    """
    return "/".join(without_numbers(path).split("/")[-2:])


def slot_path(path: str) -> str:
    """Like layer_path, for a variable that may be an optimizer's ("adam/momentum").

    An optimizer puts such scopes into the variable's own name ("adam/sequential_dense_kernel_momentum",
    "adam/dense_kernel_momentum"). One of keras.optimizers.legacy creates its counter and its learning rate in its scope
    or outside.
    """
    layer, _, own = layer_path(path).rpartition("/")
    if own in ("iter:0", "learning_rate:0"):
        layer = ""
    return "/".join(part for part in (layer, own.rpartition("_")[2]) if part)
