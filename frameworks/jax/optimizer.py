"""optax optimizers that use the gradients of all ranks."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from distrun import _arguments, _compression
from distrun._abi import ReduceOp
from distrun._collectives import reduce_op
from distrun.process_sets import ProcessSet, checked, global_process_set

from . import _extras
from ._extras import Known, Parts
from .compression import Compression, Compressor
from .ops import allreduce

_Reduce = Callable[[Parts], Parts]


def _optax() -> Any:
    try:
        return importlib.import_module("optax")
    except ImportError:
        raise ImportError(
            "this needs the package optax: pip install optax. Without it, call hvd.allreduce(gradients) before the "
            "optimizer's update."
        ) from None


def distribute_gradients(
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    gradient_predivide_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    name: str | None = None,
    replicated: Iterable[str] = (),
) -> Any:
    """Returns an optax.GradientTransformation that reduces the gradients over the ranks (default: the average).

    Use it as a link of optax.chain, in front of links that read gradients (clipping, for instance). `replicated` names
    the extra arguments of `update` that are the same on all ranks. The other links get extra arguments unreduced, so
    all others raise TypeError.

    gradient_predivide_factor f: divide by f before the sum, and by size / f after it; only with op=Average.
    """
    optax = _optax()
    known = _extras.declared(replicated, ())
    checked(process_set)
    _arguments.name(name)
    _compression.check(compression)
    reduction = reduce_op(op)
    gradient_predivide_factor = _arguments.predivide(gradient_predivide_factor)
    before = after = 1.0
    if gradient_predivide_factor != 1.0:
        if reduction != ReduceOp.AVERAGE:
            raise ValueError("gradient_predivide_factor needs op=Average.")
        before, after = 1.0 / gradient_predivide_factor, gradient_predivide_factor

    def update(updates: Any, state: Any, params: Any = None, **more: Any) -> tuple[Any, Any]:
        del params
        _refuse_beside_link(more, known, process_set)
        reduced = allreduce(
            updates,
            name=name,
            compression=compression,
            op=reduction,
            prescale_factor=before,
            postscale_factor=after,
            process_set=process_set,
        )
        return reduced, state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


def DistributedOptimizer(  # Horovod's name
    optimizer: Any,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: int | None = None,
    gradient_predivide_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    replicated: Iterable[str] = (),
    averaged: Iterable[str] = (),
) -> Any:
    """Returns an optax optimizer like `optimizer` that computes its update from the gradients of all ranks.

    Start with the same parameters on all ranks: `params = hvd.broadcast_parameters(params)`.

    backward_passes_per_step: each rank averages the updates of this many passes, then the ranks reduce them and take
    one step. Earlier passes do not wait for other ranks. The state is that of optax.MultiSteps.

    Extra arguments of `update`: value, loss and grad, and the results of value_fn, grad_fn and obj_fn, are reduced like
    the gradients. replicated: names of further ones that are the same on all ranks. averaged: names of further ones to
    average over the ranks. All others raise TypeError.
    """
    passes = _arguments.count("backward_passes_per_step", backward_passes_per_step, 1)
    if not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        raise TypeError(f"optimizer must be one of optax, such as optax.adam(1e-3), not {optimizer!r}.")
    optax = _optax()
    known = _extras.declared(replicated, averaged)
    optimizer = optax.with_extra_args_support(optimizer)
    small = distribute_gradients(compression, op, gradient_predivide_factor, process_set)
    exact = distribute_gradients(Compression.none, op, gradient_predivide_factor, process_set)
    mean = distribute_gradients(process_set=process_set)
    links = {"gradients": small, "losses": exact, "averaged": mean}

    def by(link: Any) -> Callable[[Any], Any]:
        return lambda tree: link.update(tree, optax.EmptyState())[0]

    def reduced(parts: Parts) -> Parts:
        updates, gradients = by(small)((parts.updates, parts.gradients))
        return Parts(updates, gradients, by(exact)(parts.losses), by(mean)(parts.averaged))

    def step(updates: Any, state: Any, params: Any, more: Mapping[str, Any], reduce: _Reduce) -> tuple[Any, Any]:
        given = dict(more)
        if (process_set.size() or 1) > 1:
            _extras.refuse_unknown(more, known)
            # An optimizer may choose its step by these values, so they must be the same on all ranks too.
            values, functions = _extras.sort(more, known)
            _refuse_functions(functions, passes, reduce_op(op))
            for name, function in functions.items():
                given[name] = _extras.reduced_function(function, by(links[known.part_of(name) or ""]))
        else:
            values = _extras.sort({}, known)[0]
        parts = reduce(Parts(updates, **values))
        updates, inner = optimizer.update(parts.updates, state[1], params, **{**given, **parts.arguments()})
        return updates, (state[0], inner)

    def update(updates: Any, state: Any, params: Any = None, **more: Any) -> tuple[Any, Any]:
        return step(updates, state, params, more, reduced)

    whole = optax.GradientTransformationExtraArgs(optax.chain(small, optimizer).init, update)
    return whole if passes == 1 else _accumulated(whole, step, reduced, passes)


def _accumulated(whole: Any, step: Callable[..., tuple[Any, Any]], reduced: _Reduce, passes: int) -> Any:
    """Like optax.MultiSteps, which would reduce in each pass, and drop the results of all passes but the last."""

    def update(updates: Any, state: Any, params: Any = None, **more: Any) -> tuple[Any, Any]:
        last = state.mini_step == passes - 1
        mean = jax.tree.map(
            lambda new, kept: (kept + (new - kept) / (state.mini_step + 1)).astype(kept.dtype), updates, state.acc_grads
        )
        own = jax.tree.map(lambda value, like: value.astype(jnp.asarray(like).dtype), mean, updates)
        made, inner = step(own, state.inner_opt_state, params, more, lambda parts: _only_if(last, reduced, parts))

        def if_last(then: Any, otherwise: Any) -> Any:
            return jnp.where(last, then, otherwise).astype(jnp.asarray(otherwise).dtype)

        steps = jax.tree.map(lambda step: if_last(step, jnp.zeros_like(step)), made)
        return steps, state._replace(
            mini_step=(state.mini_step + 1) % passes,
            gradient_step=state.gradient_step + last,
            inner_opt_state=jax.tree.map(if_last, inner, state.inner_opt_state),
            acc_grads=jax.tree.map(lambda sum: if_last(jnp.zeros_like(sum), sum), mean),
        )

    optax = _optax()
    return optax.GradientTransformationExtraArgs(optax.MultiSteps(whole, passes).init, update)


def _only_if(condition: Any, change: _Reduce, parts: Parts) -> Parts:
    if isinstance(condition, jax.core.Tracer):
        return jax.lax.cond(condition, change, lambda same: same, parts)  # type: ignore[no-any-return]
    return change(parts) if condition else parts


def _refuse_functions(functions: Mapping[str, Any], passes: int, reduction: ReduceOp) -> None:
    for name in functions:
        if passes > 1:
            raise NotImplementedError(
                f"DistributedOptimizer's update got {name}= with backward_passes_per_step={passes}, but the function "
                "would see the batch of one pass only. Leave out backward_passes_per_step, and make one step of the "
                "whole batch."
            )
        if name == "value_fn" and reduction != ReduceOp.AVERAGE:
            raise NotImplementedError(
                "DistributedOptimizer's update got value_fn= (a line search), which needs op=Average. The search "
                "keeps the reduced gradient for its next step, and another op would reduce it again."
            )


def _refuse_beside_link(more: Mapping[str, Any], known: Known, process_set: ProcessSet) -> None:
    for name, value in more.items():
        if value is not None and name not in known.replicated and (process_set.size() or 1) > 1:
            raise TypeError(
                f"optax.chain with distribute_gradients got {name}=, which the other links of the chain do not "
                "reduce, so the ranks would make different steps. Put DistributedOptimizer(...) around the whole "
                f"chain instead. If {name}= is the same on all ranks, pass "
                f'distribute_gradients(replicated=("{name}",)).'
            )
