"""DistributedOptimizer: a Keras optimizer whose steps use the gradients of all ranks."""

from __future__ import annotations

import enum
import functools
import importlib
from collections.abc import Iterable, Iterator
from typing import Any

from distrun import _arguments
from distrun._abi import ReduceOp
from distrun._collectives import reduce_op
from distrun._parameters import local_variables
from distrun.process_sets import ProcessSet, checked, global_process_set

from . import _legacy
from ._backends import Reduction, checked_variables, refuse_local_where_all_are_judged
from ._copies import (
    Recipe,
    State,
    config_of,
    copy_state,
    exclude_alike,
    made_from,
    make,
    named_as,
    recipe_of,
    restore,
    resume,
    state_of,
)
from ._keras import LEGACY, OPTIMIZER, SCALING, keras

# What DistributedOptimizer takes. Keras 2 is tf_keras, or the keras of TensorFlow 2.15.
OPTIMIZERS = f"{keras.__name__ if LEGACY else 'Keras 3'} ({keras.__name__}.optimizers)"
# The advice for a loss that is scaled outside of the reduction.
INSIDE = "leave out your LossScaleOptimizer, or put it inside: DistributedOptimizer(LossScaleOptimizer(opt))"


class Compression:
    """The choices for `compression`: send gradients unchanged, or as 16-bit floats."""

    none = "none"
    fp16 = "fp16"
    bf16 = "bf16"


def DistributedOptimizer(  # Horovod's name
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: str = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int | None = None,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Returns a Keras optimizer like `optimizer` that reduces the gradients over the ranks (default: the average).

    Its class is a subclass of the optimizer's class, and it is saved as that class. So a saved model loads without
    distrun. If the policy mixed_float16 was set before, the optimizer scales the loss too. An overflow on one rank then
    skips the step on all ranks. Your own loop must then take the gradients of its scale_loss(loss).

    backward_passes_per_step: as Keras's gradient_accumulation_steps, also for legacy Keras, which has none. The step
    uses the sum of the passes, or their average with average_aggregated_gradients. num_groups, groups: no effect,
    because all gradients are one operation. device_dense and device_sparse are Horovod's and have no effect.

    ValueError if `optimizer` is no Keras optimizer, is distributed already, or does not fit the other arguments.
    """
    del device_dense, device_sparse
    _refuse_sessions()
    _refuse_other_than_optimizers(optimizer)
    _check_groups(num_groups, groups)
    passes = _arguments.count("backward_passes_per_step", backward_passes_per_step, 1)
    reduction = _reduction(op, gradient_predivide_factor)
    reduction.compression = compression_name(compression)
    reduction.sparse_as_dense = sparse_as_dense
    reduction.process_set = checked(process_set)
    reduction.scale_local = scale_local_gradients
    config = config_of(optimizer)
    if _arguments.name(name) is not None:
        config["name"] = name
    if LEGACY:
        return _legacy.distribute(optimizer, config, reduction, passes, average_aggregated_gradients)
    if passes != 1:
        _accumulate(config, passes)
        if not average_aggregated_gradients:
            reduction.postscale *= passes
    if isinstance(optimizer, SCALING) or keras.config.dtype_policy().name != "mixed_float16":
        return _of_class(type(optimizer), config, reduction, optimizer)
    return _with_scaled_loss(optimizer, config, reduction)


def distribute_like(optimizer: Any, reduction: Reduction, passes: int, average: bool) -> Any:
    """Distributes an optimizer that Keras has loaded, as that of the saved model was. A scaled loss is in the file.

    passes, average: those of legacy Keras.
    """
    config = config_of(optimizer)
    if LEGACY:
        return _legacy.distribute(optimizer, config, reduction, passes, average)
    return _of_class(type(optimizer), config, reduction, optimizer)


def _refuse_other_than_optimizers(given: Any) -> None:
    if not isinstance(given, OPTIMIZER):
        module, what = type(given).__module__, f"{type(given).__module__}.{type(given).__name__}"
        cure = "for optimizers of TensorFlow use distrun.tensorflow"
        if isinstance(given, str | type):
            what, made = repr(given), "keras.optimizers.get(name)" if isinstance(given, str) else given.__name__ + "()"
            cure = f"create it first: {made}"
        elif not LEGACY and module.split(".")[0] == "tf_keras":
            cure = (
                "for optimizers of tf_keras set TF_USE_LEGACY_KERAS=1 before TensorFlow and distrun.keras are imported"
            )
        raise ValueError(f"{what} is not an optimizer of {OPTIMIZERS}; {cure}.")
    if is_distributed(given):
        raise ValueError("this optimizer is already distributed.")


def _check_groups(number: Any, groups: Any) -> None:
    """Checks the types of the group arguments. They have no effect, but a value meant for another argument is found."""
    if number is not None:  # programs pass on an option of their own that was never set
        _arguments.count("num_groups", number)
    if isinstance(groups, list | tuple):
        for index, group in enumerate(groups):
            checked_variables(f"groups[{index}]", group)
    elif groups is not None:
        try:
            _arguments.count("groups", groups)
        except TypeError:
            raise TypeError(
                f"groups must be a number of groups or a list of lists of Keras variables, not {groups!r:.60}."
            ) from None


def _refuse_sessions() -> None:
    """Raises ValueError under TensorFlow 1's graph mode, which legacy Keras can still train in."""
    if LEGACY and not importlib.import_module("tensorflow").compat.v1.executing_eagerly_outside_functions():
        raise ValueError(
            "distrun.keras needs TensorFlow's eager execution. Remove disable_eager_execution() and "
            "disable_v2_behavior() of tf.compat.v1: fit() compiles its step in any case. For your own session, use "
            "distrun.tensorflow with an optimizer of tf.compat.v1.train."
        )


def PartialDistributedOptimizer(  # Horovod's name
    optimizer: Any, *arguments: Any, local_layers: Any = None, **options: Any
) -> Any:
    """Returns a DistributedOptimizer that does not reduce the gradients of `local_layers`, a Keras layer or a list of
    them.

    The other arguments are those of DistributedOptimizer. ValueError for a layer that is not built yet.
    """
    made = DistributedOptimizer(optimizer, *arguments, **options)
    layers: Iterable[Any] = local_layers if isinstance(local_layers, list | tuple | set) else [local_layers]
    for layer in layers:
        if layer is None:
            continue
        if not isinstance(layer, keras.layers.Layer):
            raise ValueError(f"local_layers must be Keras layers, not {layer!r}.")
        for variable in local_variables(layer):
            distributed_part(made).register_local_var(variable)
    return made


def is_distributed(optimizer: object) -> bool:
    """True for an optimizer that DistributedOptimizer made."""
    return hasattr(distributed_part(optimizer), "distrun_reduction")


def distributed_optimizers(model: Any) -> dict[str, Any]:
    """Returns {path: optimizer} for the distributed optimizers in a model's attributes, and in lists and dicts there.

    Each appears once. The order is that of the names, which is the same on all ranks. In a dict an optimizer is named
    by its key if that is a string or number, since ranks may insert keys in another order; otherwise by its position.
    """
    found: dict[int, tuple[str, Any]] = {}
    # The program's names come first. Frameworks keep the same objects in their own attributes, which begin with an
    # underscore.
    for name, value in sorted(vars(model).items(), key=lambda item: (item[0].startswith("_"), item[0])):
        parts = {name: value}
        if isinstance(value, dict):
            parts = dict(sorted(_by_key_or_place(name, value)))
        elif isinstance(value, list | tuple):
            parts = {f"{name}[{index}]": one for index, one in enumerate(value)}
        for path, one in parts.items():
            if isinstance(one, OPTIMIZER) and is_distributed(one):
                found.setdefault(id(one), (path, one))
    return dict(found.values())


def _by_key_or_place(name: str, optimizers: dict[Any, Any]) -> Iterator[tuple[str, Any]]:
    for place, (key, one) in enumerate(optimizers.items()):
        yield f"{name}[{key!r}]" if _same_everywhere(key) else f"{name}.values()[{place}]", one


def _same_everywhere(key: Any) -> bool:
    """True if a key has the same repr on all ranks. Layers and other objects show numbers or addresses of their
    process."""
    if isinstance(key, tuple):
        return all(_same_everywhere(one) for one in key)
    return isinstance(key, str | int | float | bytes | enum.Enum)


def with_all_ranks(optimizer: Any) -> bool:
    """False if DistributedOptimizer was given a process set of some ranks only."""
    process_set: ProcessSet = distributed_part(optimizer).distrun_reduction.process_set
    return process_set.size() == global_process_set.size()


def distributed_part(optimizer: Any) -> Any:
    """Returns the optimizer that reduces. In legacy Keras it is inside LossScaleOptimizer, which lets it reduce before
    it checks for overflows."""
    return getattr(optimizer, "inner_optimizer", optimizer) if LEGACY else optimizer


def compression_name(given: Any) -> str:
    """Returns the name of a `compression` argument as Horovod's programs pass it; ValueError for others."""
    # In the other front ends, Compression.fp16 and so on are classes with these names.
    name = given if isinstance(given, str) else getattr(given, "__name__", "").removesuffix("Compressor").lower()
    if name not in ("none", "fp16", "bf16"):
        raise ValueError(f"compression must be Compression.none, fp16 or bf16, not {given!r}.")
    return name


def _reduction(op: int | None, predivide: float) -> Reduction:
    reduce, predivide = reduce_op(op), _arguments.predivide(predivide)
    if reduce not in (ReduceOp.AVERAGE, ReduceOp.SUM):
        raise ValueError("op must be hvd.Average or hvd.Sum for gradients.")
    if predivide != 1.0 and reduce != ReduceOp.AVERAGE:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    return Reduction(op=reduce, prescale=1.0 / predivide, postscale=predivide)


def _accumulate(config: dict[str, Any], passes: int) -> None:
    for key, around, inside in (
        ("optimizer_map", "MultiOptimizer", "each of its optimizers"),
        ("inner_optimizer", "LossScaleOptimizer", "the optimizer in it"),
    ):
        if key in config:
            raise ValueError(
                f"a {around} does not accumulate gradients itself. Leave out backward_passes_per_step, and create "
                f"{inside} with gradient_accumulation_steps={passes}."
            )
    if config.get("gradient_accumulation_steps"):
        raise ValueError("pass either backward_passes_per_step or the optimizer's gradient_accumulation_steps.")
    config["gradient_accumulation_steps"] = passes


def _of_class(base: Any, config: dict[str, Any], reduction: Reduction, old: Any) -> Any:
    made = make(_class(base, reduction), config)
    if old is not None:
        exclude_alike(old, made)
        if old.built:
            made.build(old._trainable_variables)
            copy_state(old, made)
    return made


def _with_scaled_loss(optimizer: Any, config: dict[str, Any], reduction: Reduction) -> Any:
    """Scales the loss inside the reduction. Keras would scale it outside, and skip the reduction on a rank with
    overflows.
    """
    kind = _scaling(_class(keras.optimizers.LossScaleOptimizer, reduction))
    made = kind(make(type(optimizer), config), name="loss_scale_optimizer")
    exclude_alike(optimizer, made)
    if optimizer.built:
        made.build(optimizer._trainable_variables)
        copy_state(optimizer, made.inner_optimizer)
    return made


def _patch_scaling() -> None:
    """Patches LossScaleOptimizer to refuse a distributed optimizer. In mixed_float16, compile() would wrap one.

    The wrapper would check only this rank's gradients, and skip steps that the other ranks make.
    """
    scaling = keras.optimizers.LossScaleOptimizer
    if hasattr(scaling, "distrun_amended"):
        return
    start = scaling.__init__

    @functools.wraps(start)
    def refuse(self: Any, inner_optimizer: Any, *arguments: Any, **options: Any) -> None:
        if is_distributed(inner_optimizer):
            raise ValueError(
                "the policy mixed_float16 was set after DistributedOptimizer was called, or a LossScaleOptimizer is "
                "around it. Then an overflow on one rank would leave the others waiting. Set the policy first "
                f'(keras.config.set_dtype_policy("mixed_float16")), and {INSIDE}.'
            )
        start(self, inner_optimizer, *arguments, **options)

    scaling.__init__ = refuse
    scaling.distrun_amended = True


def _class(base: Any, reduction: Reduction) -> Any:
    """Returns the distributed subclass of `base`.

    Keras's trainers call apply, and on JAX stateless_apply. That of a LossScaleOptimizer does not call its own apply.
    """
    _patch_scaling()

    class Distributed(base):  # type: ignore[misc]
        distrun_reduction, distrun_base = reduction, base
        distrun_scales = False

        def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
            variables = self._trainable_variables if trainable_variables is None else list(trainable_variables)
            return super().apply(reduction.reduce(list(grads), variables), trainable_variables)

        def register_local_var(self, variable: Any) -> None:
            """Excludes the gradient of `variable` from the reduction."""
            refuse_local_where_all_are_judged(self)
            reduction.keep_local(variable)

        def build(self, variables: Any) -> None:
            """Creates the momenta. A copy then continues with those of its original."""
            super().build(variables)
            restore(self)

        def __reduce_ex__(self, _: Any) -> Any:
            return _again, (recipe_of(self), reduction.copied(), self.distrun_scales, state_of(self))

    if issubclass(base, keras.optimizers.LossScaleOptimizer):

        def stateless_apply(self: Any, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
            reduced = reduction.reduce(list(grads), self._trainable_variables)
            return base.stateless_apply(self, optimizer_variables, reduced, trainable_variables)

        Distributed.stateless_apply = stateless_apply
    return named_as(base, Distributed)


def _scaling(base: Any) -> Any:
    """Adds a check that the loss was scaled. The user passed an optimizer without scaling, so a loop may not scale
    it."""

    class Scaling(base):  # type: ignore[misc]
        _distrun_scaled = False
        distrun_scales = True

        def scale_loss(self, loss: Any) -> Any:
            self._distrun_scaled = True
            return super().scale_loss(loss)

        def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
            grads = list(grads)
            self._refuse_unscaled(grads)
            return super().apply(grads, trainable_variables)

        def stateless_apply(self, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
            grads = list(grads)
            self._refuse_unscaled(grads)
            return super().stateless_apply(optimizer_variables, grads, trainable_variables)

        def _refuse_unscaled(self, grads: list[Any]) -> None:
            if not self._distrun_scaled and not _are_zeros(grads):
                raise ValueError(
                    "with the policy mixed_float16, DistributedOptimizer divides gradients by the scale of the loss, "
                    "but no loss was scaled. Take the gradients of optimizer.scale_loss(loss), as fit() does. If a "
                    f"LossScaleOptimizer around it has scaled the loss, {INSIDE}."
                )

    return named_as(base, Scaling)


def _again(recipe: Recipe, reduction: Reduction, scales: bool, state: State) -> Any:
    """Makes the copy of a distributed optimizer. Pickles have the name of this function."""
    kind = _class(recipe.kind, reduction)
    made = made_from(recipe._replace(kind=_scaling(kind) if scales else kind))
    resume(made, state)
    return made


def _are_zeros(grads: list[Any]) -> bool:
    """True for eager gradients that are all zero. A program may take a step with them, so that the optimizer creates
    its variables before a state is restored."""
    try:
        return not any(keras.ops.convert_to_numpy(one).any() for one in grads if one is not None)
    except Exception:  # in a traced step they have no values; each backend raises its own type
        return False
