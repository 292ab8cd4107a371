"""Parameters as programs give them: to broadcast_parameters in every front end, and as the layers of Keras."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def named(params: Mapping[str, T] | Iterable[tuple[str, T]] | Iterable[T], tensor_type: type[T]) -> list[tuple[str, T]]:
    """Names and tensors, of a dict, pairs of both or tensors, in an order that is the same on all ranks: dicts by key,
    everything else as it comes."""
    if isinstance(params, Mapping):
        pairs: Sequence[object] = sorted(params.items())
    elif isinstance(params, Iterable) and not isinstance(params, str | bytes | tensor_type):
        pairs = list(params)
    else:
        raise ValueError(
            f"parameters are a dict, or an iterable of (name, tensor) or of tensors, not {type(params).__name__}."
        )
    result: list[tuple[str, T]] = []
    for index, item in enumerate(pairs):
        name, tensor = item if isinstance(item, tuple) and len(item) == 2 else (f"parameter.{index}", item)
        if not isinstance(tensor, tensor_type) or not isinstance(name, str):
            raise ValueError(
                f"parameter {name!r:.60} is a {type(tensor).__name__}, not a {tensor_type.__name__}; send other "
                "values with broadcast_object."
            )
        result.append((name, tensor))
    return result


def local_variables(layer: Any) -> Sequence[Any]:
    """Of a layer whose gradients are not reduced. One that is not built yet has none, and the others would be."""
    if not getattr(layer, "built", True):
        raise ValueError(
            f"the local layer {layer.name!r} has no variables yet, so its gradients would be reduced: build it, or "
            "call the model on a batch, before it is passed as one of local_layers."
        )
    variables: Sequence[Any] = layer.trainable_variables
    return variables
