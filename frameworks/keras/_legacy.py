"""Distributed optimizers of legacy Keras: those of keras.optimizers, and the older kind of keras.optimizers.legacy."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Sequence
from typing import Any

from ._backends import SCALED, Reduction, local_with, refuse_local_where_all_are_judged
from ._copies import (
    Recipe,
    State,
    config_of,
    exclude_alike,
    made_from,
    named_as,
    recipe_of,
    restore,
    resume,
    state_of,
)
from ._keras import LEGACY, OLDER

tf: Any = importlib.import_module("tensorflow") if LEGACY else None

Pairs = list[tuple[Any, Any]]  # gradients and their variables


class _Sums:
    """The sums of the gradients of a list of variables over several passes. Holding the variables keeps their ids
    valid.
    """

    def __init__(self, variables: Sequence[Any]) -> None:
        self._of = list(variables)
        self._given: set[int] = set()  # the places of variables that have had a gradient
        with tf.init_scope():  # a tf.function that is being traced does not own them
            self.passes = tf.Variable(0, trainable=False, dtype=tf.int64)
            self._sums = [tf.Variable(tf.zeros(one.shape, one.dtype), trainable=False) for one in variables]

    def add(self, gradients: Sequence[Any]) -> None:
        """Adds the gradients of a pass."""
        for place, gradient in enumerate(gradients):
            if isinstance(gradient, tf.IndexedSlices):
                self._sums[place].scatter_add(gradient)
            elif gradient is not None:
                self._sums[place].assign_add(gradient)
            if gradient is not None:
                self._given.add(place)
        self.passes.assign_add(1)

    def pairs(self, factor: float) -> Pairs:
        """Returns the sums, times `factor`. Variables that never had a gradient have None."""
        return [
            (total.read_value() * tf.cast(factor, total.dtype) if place in self._given else None, variable)
            for place, (total, variable) in enumerate(zip(self._sums, self._of, strict=True))
        ]

    def clear(self) -> None:
        """Starts the next step."""
        for one in self.variables():
            one.assign(tf.zeros_like(one))

    def variables(self) -> list[Any]:
        """Returns the variables with the sums and the number of passes."""
        return [self.passes, *self._sums]


class Passes:
    """Makes a step of every `count` passes, with the sum or the average of their gradients.

    Each list of variables is counted by itself, because an optimizer may train other variables after some time.
    """

    def __init__(self, count: int, average: bool) -> None:
        self._count, self._average = count, average
        self._factor = 1.0 / count if average else 1.0
        self._sums: dict[tuple[int, ...], _Sums] = {}

    def options(self) -> tuple[int, bool]:
        """Returns the arguments that made this object."""
        return self._count, self._average

    def sums(self, variables: Sequence[Any]) -> _Sums:
        """Returns the sums of these variables, which no file has."""
        key = tuple(id(one) for one in variables)
        if key not in self._sums:
            self._sums[key] = _Sums(variables)
        return self._sums[key]

    def step(self, pairs: Pairs, optimizer: Any, apply: Callable[[Pairs], Any]) -> Any:
        """Adds the gradients of a pass, and in the last one calls `apply` with the result. Returns the number of
        steps."""
        sums = self.sums([variable for _, variable in pairs])
        sums.add([gradient for gradient, _ in pairs])
        with tf.init_scope():
            steps = optimizer.iterations

        def last() -> Any:
            apply(sums.pairs(self._factor))
            sums.clear()
            return steps.read_value()

        return tf.cond(sums.passes >= self._count, last, steps.read_value)


def distribute(
    optimizer: Any, config: dict[str, Any], reduction: Reduction, passes: int = 1, average: bool = False
) -> Any:
    """Distributes a new optimizer. One that has made steps does not know which variables its state belongs to."""
    inner = getattr(optimizer, "inner_optimizer", None)
    if inner is not None:
        config["inner_optimizer"] = distribute(inner, config_of(inner), reduction, passes, average)
        return type(optimizer).from_config(config)
    if optimizer._iterations is not None and int(optimizer._iterations) > 0:
        raise ValueError("this optimizer has already made steps. Distribute a new one, or use hvd.load_model.")
    made = _class(type(optimizer), reduction, passes, average).from_config(config)
    exclude_alike(optimizer, made)
    return made


def _class(base: Any, reduction: Reduction, passes: int, average: bool) -> Any:
    """Returns the distributed subclass of `base`."""

    class Distributed(base):  # type: ignore[misc]
        distrun_reduction, distrun_base = reduction, base
        distrun_is_reduced = False  # what the next apply_gradients() gets was reduced by _compute_gradients()

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.distrun_passes = Passes(passes, average) if passes > 1 else None

        def _compute_gradients(self, loss: Any, var_list: Any, grad_loss: Any = None, tape: Any = None) -> Pairs:
            """Horovod's method: computes gradients and reduces them. apply_gradients() does not reduce them again."""
            pairs = _computed(self, base, loss, var_list, grad_loss, tape)
            self.distrun_is_reduced = True
            return _reduced(reduction, pairs)

        def apply_gradients(self, grads_and_vars: Any, *arguments: Any, **options: Any) -> Any:
            """Reduces the gradients and makes a step with them, or with those of several passes.

            Inside a LossScaleOptimizer, for instance that of compile(), it refuses local variables: before this call,
            that has checked the gradients of all variables together.
            """
            if reduction.local and getattr(self, "_is_wrapped_by_loss_scale_optimizer", False):
                raise local_with(SCALED)
            try:
                if self.distrun_passes is None:
                    return super().apply_gradients(grads_and_vars, *arguments, **options)
                return _pass(self, base, list(grads_and_vars), arguments, options)
            finally:
                self.distrun_is_reduced = False

        def register_local_var(self, variable: Any) -> None:
            """Excludes the gradient of `variable` from the reduction."""
            refuse_local_where_all_are_judged(self)
            reduction.keep_local(variable)

        def __reduce_ex__(self, _: Any) -> Any:
            return _again, (recipe_of(self), reduction.copied(), passes, average, state_of(self))

        def __deepcopy__(self, memo: Any) -> Any:
            again, arguments = self.__reduce_ex__(2)
            return again(*copy.deepcopy(arguments, memo))

    _add_hooks(Distributed, base, reduction)
    return named_as(base, Distributed)


def _add_hooks(kind: Any, base: Any, reduction: Reduction) -> None:
    """Overrides the methods that Keras calls inside apply_gradients(). The two kinds of optimizers have other names for
    them.
    """
    hook, builder = (
        ("_aggregate_gradients", "_create_all_weights") if _is_older(base) else ("aggregate_gradients", "build")
    )

    def aggregate(self: Any, grads_and_vars: Any) -> Pairs:
        """Reduces the gradients. Keras's hook for other strategies: it runs before clipping and loss scaling."""
        pairs = list(getattr(base, hook)(self, grads_and_vars))
        is_reduced, self.distrun_is_reduced = self.distrun_is_reduced, False
        return pairs if is_reduced else _reduced(reduction, pairs)

    def build(self: Any, var_list: Any) -> None:
        """Creates the momenta. A copy then continues with those of its original."""
        getattr(base, builder)(self, var_list)
        restore(self)

    setattr(kind, hook, aggregate)
    setattr(kind, builder, build)


def _is_older(kind: Any) -> bool:
    return issubclass(kind, OLDER)


def _again(recipe: Recipe, reduction: Reduction, passes: int, average: bool, state: State) -> Any:
    """Makes the copy of a distributed optimizer."""
    made = made_from(recipe._replace(kind=_class(recipe.kind, reduction, passes, average)))
    resume(made, state)
    return made


def _reduced(reduction: Reduction, pairs: Pairs) -> Pairs:
    variables = [variable for _, variable in pairs]
    return list(zip(reduction.reduce([gradient for gradient, _ in pairs], variables), variables, strict=True))


def _computed(optimizer: Any, base: Any, loss: Any, var_list: Any, grad_loss: Any, tape: Any) -> Pairs:
    """Returns this rank's gradients."""
    if _is_older(base):
        return list(base._compute_gradients(optimizer, loss, var_list, grad_loss, tape))
    if grad_loss is None:
        return list(optimizer.compute_gradients(loss, var_list, tape))
    return list(zip(tape.gradient(loss, var_list, grad_loss), var_list, strict=True))


def _pass(optimizer: Any, base: Any, pairs: Pairs, arguments: Sequence[Any], options: dict[str, Any]) -> Any:
    """Makes a pass of several. The gradients are reduced here, because `apply` is called for the last pass only."""
    options = dict(options)
    aggregates = options.pop("experimental_aggregate_gradients", True)
    if _is_older(base):
        off = {"experimental_aggregate_gradients": False}
        if aggregates and all(arguments[1:2]):
            pairs = optimizer._aggregate_gradients(optimizer._transform_unaggregated_gradients(pairs))
    else:
        off = {"skip_gradients_aggregation": True}
        if aggregates and not any(arguments[1:2]) and not options.pop("skip_gradients_aggregation", False):
            pairs = optimizer.aggregate_gradients(pairs)
    options |= off
    steps = optimizer.distrun_passes.step(
        pairs, optimizer, lambda sums: base.apply_gradients(optimizer, sums, *arguments[:1], **options)
    )
    # In a graph, an optimizer of keras.optimizers.legacy returns an operation; LossScaleOptimizer relies on it.
    return tf.group(steps) if _is_older(base) and not tf.executing_eagerly() else steps
