"""Parameters as programs give them: to broadcast_parameters in every front end, and as the layers of Keras."""

from __future__ import annotations

import re
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
    """Of a layer whose gradients are not reduced. Those that it makes in build() later would be."""
    for one in layer._flatten_layers() if hasattr(layer, "_flatten_layers") else ():  # not public; with itself
        builds = not getattr(one.build, "_is_default", False)  # how Keras marks layers without a build() of their own
        if builds and not one.built and not one.trainable_variables:
            raise ValueError(
                f"the local layer {one.name!r} is not built, and gradients of the variables that it makes later would "
                "be reduced: build it, or call the model on a batch, before it is passed as one of local_layers."
            )
    variables: Sequence[Any] = layer.trainable_variables
    return variables


def without_numbers(name: str) -> str:
    """The name of a variable or layer without Keras's numbers of layers: another rank may have made more of them."""
    return re.sub(r"_\d+(?=[_/:]|$)", "", name)


def layer_path(path: str) -> str:
    """Of a Keras variable: the layer and what it is there ("lstm_cell/recurrent_kernel"). What other scopes Keras has
    around is not the same on a rank that has made its model and on one that has it from a file."""
    return "/".join(without_numbers(path).split("/")[-2:])


def slot_path(path: str) -> str:
    """The same of one that may be an optimizer's ("adam/momentum"), whose own name has such scopes in it
    ("adam/sequential_dense_kernel_momentum", "adam/dense_kernel_momentum")."""
    layer, _, own = layer_path(path).rpartition("/")
    return "/".join(part for part in (layer, own.rpartition("_")[2]) if part)
