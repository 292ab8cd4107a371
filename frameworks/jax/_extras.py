"""What a program hands to an optimizer's update beside the gradients: optax's extra arguments.

They belong to this rank's batch, so an optimizer that decides by them would make another step on each rank. Known
values are reduced, and the results of known functions. Unknown ones are refused, unless the program names them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Reduce = Callable[[Any], Any]  # of a pytree

LIKE_GRADIENTS = ("grad", "grad_fn")  # compressed as the gradients are
LIKE_LOSSES = ("value", "loss", "value_fn", "obj_fn")  # reduced as the gradients are, never compressed


class Parts(NamedTuple):
    """The pytrees of an update that are reduced, by how."""

    updates: Any
    gradients: dict[str, Any]
    losses: dict[str, Any]
    averaged: dict[str, Any]

    def arguments(self) -> dict[str, Any]:
        """Those that the optimizer gets by name."""
        return {**self.gradients, **self.losses, **self.averaged}


class Known(NamedTuple):
    """The names that the program has given."""

    replicated: Collection[str]  # the same on all ranks: passed on
    averaged: Collection[str]

    def part_of(self, name: str) -> str | None:
        """The field of Parts for an argument; None: it is not reduced."""
        if name in self.replicated:
            return None
        if name in self.averaged:
            return "averaged"
        if name in LIKE_GRADIENTS:
            return "gradients"
        return "losses" if name in LIKE_LOSSES else None


def declared(replicated: Iterable[str], averaged: Iterable[str]) -> Known:
    """Of the arguments `replicated` and `averaged` of DistributedOptimizer."""
    known = Known(_names("replicated", replicated), _names("averaged", averaged))
    both = sorted(set(known.replicated) & set(known.averaged))
    if both:
        raise ValueError(f"{both[0]!r} is in replicated and in averaged: it can be one of them.")
    return known


def _names(argument: str, given: object) -> frozenset[str]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f'{argument} is a tuple of names, as in {argument}=("{given}",), not {given!r:.60}.')
    names = tuple(given)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{argument}: a name is a str, not {name!r:.60}.")
    return frozenset(names)


def sort(more: Mapping[str, Any], known: Known) -> tuple[dict[str, dict[str, Any]], dict[str, Callable[..., Any]]]:
    """The arguments that are reduced now, by the field of Parts, and the functions that reduce what they return."""
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
    """TypeError for arguments that are not known. Those that a known function takes are passed on to it."""
    taken = {name for one, value in more.items() if known.part_of(one) and callable(value) for name in _takes(value)}
    for name, value in more.items():
        if value is None or name in known.replicated or name in taken or known.part_of(name):
            continue
        raise TypeError(
            f"DistributedOptimizer's update got {name}=, and does not know whether it is the same on all ranks. The "
            "ranks would make different steps where it is not. Where it is, say "
            f'DistributedOptimizer(..., replicated=("{name}",)). Where it belongs to the batch of this rank, say '
            f'averaged=("{name}",): numbers and arrays are averaged over the ranks, and what a function returns.'
        )


def _takes(function: Callable[..., Any]) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # of some that are written in C
        return []


def reduced_function(function: Callable[..., Any], reduce: Reduce) -> Callable[..., Any]:
    """Like a loss or a gradient of this rank's batch, but of all ranks' batches.

    Its first argument, the parameters, is the same on all ranks. With regard to that it is differentiable where it
    returns one number: value and gradient travel together, so all ranks have one order of operations.
    """

    @functools.wraps(function, updated=())
    def of_all(*arguments: Any, **more: Any) -> Any:
        if not arguments:
            return reduce(function(**more))

        def here(params: Any) -> Any:
            return function(params, *arguments[1:], **more)

        # custom_jvp, as line searches linearize, and estimates of curvature differentiate the gradient once more.
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
    """The reduction, which is linear, with a forward derivative too."""

    @jax.custom_jvp
    def reduction(tree: Any) -> Any:
        return reduce(tree)

    @reduction.defjvp
    def _(trees: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
        return _linear(reduce, trees[0]), _linear(reduce, tangents[0])

    return reduction(tree)
