"""optax's extra arguments: values that a program passes to an optimizer's update beside the gradients.

They belong to this rank's batch, so an optimizer that uses them would take a different step on each rank. Known values
are reduced, and so are the results of known functions. Unknown ones are refused, unless the program names them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Reduce = Callable[[Any], Any]  # reduces a pytree

LIKE_GRADIENTS = ("grad", "grad_fn")  # compressed like the gradients
LIKE_LOSSES = ("value", "loss", "value_fn", "obj_fn")  # reduced like the gradients, but never compressed


class Parts(NamedTuple):
    """The pytrees of an update that are reduced, one field for each way of reducing."""

    updates: Any
    gradients: dict[str, Any]
    losses: dict[str, Any]
    averaged: dict[str, Any]

    def arguments(self) -> dict[str, Any]:
        """Returns the extra arguments, which the optimizer gets by name."""
        return {**self.gradients, **self.losses, **self.averaged}


class Known(NamedTuple):
    """The names that the program passed to DistributedOptimizer."""

    replicated: Collection[str]  # the same on all ranks: passed on unchanged
    averaged: Collection[str]

    def part_of(self, name: str) -> str | None:
        """Returns the field of Parts for an argument; None if it is not reduced."""
        if name in self.replicated:
            return None
        if name in self.averaged:
            return "averaged"
        if name in LIKE_GRADIENTS:
            return "gradients"
        return "losses" if name in LIKE_LOSSES else None


def declared(replicated: Iterable[str], averaged: Iterable[str]) -> Known:
    """Checks the arguments `replicated` and `averaged` of DistributedOptimizer."""
    known = Known(_names("replicated", replicated), _names("averaged", averaged))
    both = sorted(set(known.replicated) & set(known.averaged))
    if both:
        raise ValueError(f"{both[0]!r} is in both replicated and averaged. Name it in one of them.")
    return known


def _names(argument: str, given: object) -> frozenset[str]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f'{argument} must be a tuple of names, such as {argument}=("{given}",), not {given!r:.60}.')
    names = tuple(given)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{argument}: a name must be a str, not {name!r:.60}.")
    return frozenset(names)


def sort(more: Mapping[str, Any], known: Known) -> tuple[dict[str, dict[str, Any]], dict[str, Callable[..., Any]]]:
    """Returns the values that are reduced now, by field of Parts, and the functions whose results are reduced."""
    values: dict[str, dict[str, Any]] = {"gradients": {}, "losses": {}, "averaged": {}}
    functions = {}
    for name, value in more.items():
        part = known.part_of(name)
        if part is None:
            continue
        if callable(value):
            functions[name] = value
        else:
            values[part][name] = value
    return values, functions


def refuse_unknown(more: Mapping[str, Any], known: Known) -> None:
    """Raises TypeError for unknown arguments. An argument that a known function takes is passed on to it."""
    taken = {name for one, value in more.items() if known.part_of(one) and callable(value) for name in _takes(value)}
    for name, value in more.items():
        if value is None or name in known.replicated or name in taken or known.part_of(name):
            continue
        raise TypeError(
            f"DistributedOptimizer's update got {name}=, and distrun cannot know whether it is the same on all "
            f'ranks. If it is, pass DistributedOptimizer(..., replicated=("{name}",)). If each rank has its own, '
            f'pass averaged=("{name}",): its numbers and arrays, or what it returns as a function, are averaged over '
            "the ranks."
        )


def _takes(function: Callable[..., Any]) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # some functions written in C
        return []


def reduced_function(function: Callable[..., Any], reduce: Reduce) -> Callable[..., Any]:
    """Wraps a loss or gradient function of this rank's batch into one of all ranks' batches.

    The first argument, the parameters, is the same on all ranks. If the function returns one number, it is
    differentiable with respect to the parameters. Value and gradient are sent together, so the order of the operations
    is the same on all ranks.
    """

    @functools.wraps(function, updated=())
    def of_all(*arguments: Any, **more: Any) -> Any:
        if not arguments:
            return reduce(function(**more))

        def here(params: Any) -> Any:
            return function(params, *arguments[1:], **more)

        # custom_jvp, because line searches linearize the function, and curvature estimates differentiate its gradient.
        @jax.custom_jvp
        def everywhere(params: Any) -> Any:
            return reduce(here(params))

        @everywhere.defjvp
        def _(params: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
            value, gradient = _linear(reduce, jax.value_and_grad(here)(*params))
            products = jax.tree.map(lambda slope, tangent: jnp.sum(slope * tangent), gradient, tangents[0])
            return value, sum(jax.tree.leaves(products), jnp.zeros_like(value)).astype(value.dtype)

        return everywhere(arguments[0])

    return of_all


def _linear(reduce: Reduce, tree: Any) -> Any:
    """Applies the reduction, which is linear, and gives it a forward derivative too."""

    @jax.custom_jvp
    def reduction(tree: Any) -> Any:
        return reduce(tree)

    @reduction.defjvp
    def _(trees: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
        return _linear(reduce, trees[0]), _linear(reduce, tangents[0])

    return reduction(tree)
