"""DistributedOptimizer: a Keras optimizer whose steps use the gradients of all ranks."""

from __future__ import annotations

import enum
import functools
import importlib
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from distrun import _arguments
from distrun._abi import ReduceOp
from distrun._collectives import reduce_op
from distrun._parameters import local_variables
from distrun.process_sets import ProcessSet, checked, global_process_set

from ._backends import Reduction, checked_variables
from ._keras import LEGACY, keras

MULTI: Any = () if LEGACY else getattr(keras.optimizers, "MultiOptimizer", ())  # in Keras 3.15 and newer
SCALING = keras.mixed_precision.LossScaleOptimizer if LEGACY else keras.optimizers.LossScaleOptimizer
# What DistributedOptimizer takes. Keras 2 is tf_keras, or the keras of TensorFlow 2.15.
OPTIMIZERS = (
    f"{keras.__name__} ({keras.__name__}.optimizers without .legacy)" if LEGACY else "Keras 3 (keras.optimizers)"
)
# The advice for a loss that is scaled outside of the reduction.
INSIDE = "leave out your LossScaleOptimizer, or put it inside: DistributedOptimizer(LossScaleOptimizer(opt))"


SCALED = (
    "loss scaling (mixed_float16, LossScaleOptimizer): an overflow in one of their gradients would skip the step on "
    'this rank only. Use the policy "mixed_bfloat16", which needs no scaling'
)


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

    backward_passes_per_step: as Keras's gradient_accumulation_steps. The step uses the sum of the passes, or their
    average with average_aggregated_gradients. num_groups, groups: no effect, because all gradients are one operation.
    device_dense and device_sparse are Horovod's and have no effect.

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
    if passes != 1:
        _accumulate(config, passes)
        if not average_aggregated_gradients:
            reduction.postscale *= passes
    if LEGACY:
        return _legacy(optimizer, config, reduction)
    scales = isinstance(optimizer, SCALING)
    if scales or keras.config.dtype_policy().name != "mixed_float16":
        return _of_class(type(optimizer), config, reduction, optimizer)
    return _with_scaled_loss(optimizer, config, reduction)


def _refuse_other_than_optimizers(given: Any) -> None:
    if not isinstance(given, keras.optimizers.Optimizer):
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


def _refuse_local_where_all_are_judged(optimizer: Any) -> None:
    """Raises ValueError if one decision depends on the gradients of all variables: it would differ among the ranks."""
    if isinstance(optimizer, SCALING):
        raise _local_with(SCALED)
    several = optimizer._inner_optimizers if isinstance(optimizer, MULTI) else [optimizer]
    if any(getattr(one, "global_clipnorm", None) is not None for one in several):
        raise _local_with(
            "global_clipnorm: its norm would differ among the ranks, and so would the shared variables. Use "
            "clipnorm, which clips each variable by itself"
        )


def _local_with(what: str) -> ValueError:
    return ValueError(f"variables of one rank only (local_layers, register_local_var) cannot be used with {what}.")


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
            if isinstance(one, keras.optimizers.Optimizer) and is_distributed(one):
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


def config_of(optimizer: Any) -> dict[str, Any]:
    """Returns the configuration for an optimizer like `optimizer`.

    These parts stay live objects instead of Keras's serialized forms: a schedule or a function as learning rate, the
    inner optimizer of loss scaling, and the map of a MultiOptimizer. Keras may be unable to serialize them, or to find
    their classes again.
    """
    key, attribute = "learning_rate", "_learning_rate"
    stand_in = keras.optimizers.schedules.ExponentialDecay(0.0, 1, 0.0)
    if isinstance(optimizer, SCALING):
        key, attribute = "inner_optimizer", "_optimizer" if LEGACY else "inner_optimizer"
        stand_in = keras.optimizers.SGD()
    elif isinstance(optimizer, MULTI):
        key, attribute = "optimizer_map", "_optimizer_map"
        stand_in = keras.optimizers.OptimizerMap(keras.optimizers.SGD())
    live = vars(optimizer).get(attribute)
    if key == "learning_rate" and not callable(live):
        return dict(optimizer.get_config())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras warns of functions that are not safe to load
        try:  # while it works, call a program's get_config() only with the program's own object
            config, written = dict(optimizer.get_config()), _written(live)
        except Exception:  # for instance from the program's schedule
            # vars() bypasses __setattr__, which would track the stand-in.
            vars(optimizer)[attribute] = stand_in
            try:
                config, written = dict(optimizer.get_config()), _written(stand_in)
            finally:
                vars(optimizer)[attribute] = live
    if isinstance(config.get(key), dict) and config[key] == written:
        config[key] = live
    return config


def _written(what: Any) -> Any:
    """Returns the object in Keras's serialized form; None if Keras cannot serialize it."""
    try:
        return keras.saving.serialize_keras_object(what)
    except Exception:  # raised by the program's code
        return None


def copy_of(optimizer: Any) -> Any:
    """Returns a new optimizer like `optimizer`, without its state."""
    return _made(type(optimizer), config_of(optimizer))


def _made(kind: Any, config: dict[str, Any]) -> Any:
    """Returns kind.from_config(config). In Keras 3 that does not accept a live inner optimizer or a live map, so call
    the constructor for these."""
    for key, around, copy in (("inner_optimizer", SCALING, copy_of), ("optimizer_map", MULTI, _map_like)):
        inner = config.get(key)
        if issubclass(kind, around) and inner is not None and not isinstance(inner, dict):
            return kind(copy(inner), **{name: value for name, value in config.items() if name != key})
    return kind.from_config(config)


def _map_like(given: Any) -> Any:
    """Returns a map with new optimizers; one that had several keys keeps them. A program's function is returned as it
    is."""
    if not isinstance(given, keras.optimizers.OptimizerMap):
        return given
    copies: dict[int, Any] = {}
    for one in (given.default_optimizer, *given.values()):
        if id(one) not in copies:
            copies[id(one)] = copy_of(one)
            _exclude_alike(one, copies[id(one)])
    return type(given)(copies[id(given.default_optimizer)], {key: copies[id(one)] for key, one in given.items()})


def copy_state(old: Any, made: Any) -> None:
    """Copies momenta, iterations and other state. Both optimizers are built. Only `made` may accumulate several
    passes."""
    starts = getattr(made, "gradient_accumulation_steps", None) and not old.gradient_accumulation_steps
    added = {id(one) for one in made._accumulated_gradients} if starts else set()
    mine = [one for one in made.variables if id(one) not in added]
    for one, its in zip(mine, old.variables, strict=True):
        one.assign(its)
    if starts:  # Keras's iterations count passes
        made._iterations.assign(old._iterations * made.gradient_accumulation_steps)


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
    if LEGACY:
        raise ValueError("Keras 2 does not accumulate gradients. Leave out backward_passes_per_step.")
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
    made = _made(_class(base, reduction), config)
    if old is not None:
        _exclude_alike(old, made)
        if old.built:
            made.build(old._trainable_variables)
            copy_state(old, made)
    return made


def _with_scaled_loss(optimizer: Any, config: dict[str, Any], reduction: Reduction) -> Any:
    """Scales the loss inside the reduction. Keras would scale it outside, and skip the reduction on a rank with
    overflows.
    """
    kind = _scaling(_class(keras.optimizers.LossScaleOptimizer, reduction))
    made = kind(_made(type(optimizer), config), name="loss_scale_optimizer")
    _exclude_alike(optimizer, made)
    if optimizer.built:
        made.build(optimizer._trainable_variables)
        copy_state(optimizer, made.inner_optimizer)
    return made


def _exclude_alike(old: Any, made: Any) -> None:
    """Copies the effect of exclude_from_weight_decay(), which is not part of the configuration."""
    old, made = (getattr(one, "inner_optimizer", one) for one in (old, made))
    for name, value in vars(old).items():
        if name.startswith("_exclude_from_weight_decay") and not name.endswith("_cache"):
            setattr(made, name, type(value)(value) if type(value) in (list, set) else value)


def _legacy(optimizer: Any, config: dict[str, Any], reduction: Reduction) -> Any:
    """Distributes a new legacy optimizer. One that has made steps does not know which variables its state belongs
    to."""
    inner = getattr(optimizer, "inner_optimizer", None)
    if inner is not None:
        config["inner_optimizer"] = _legacy(inner, config_of(inner), reduction)
        return type(optimizer).from_config(config)
    if int(optimizer.iterations) > 0:
        raise ValueError("this optimizer has already made steps. Distribute a new one, or use hvd.load_model.")

    class Distributed(type(optimizer)):  # type: ignore[misc]
        distrun_reduction = reduction

        def aggregate_gradients(self, grads_and_vars: Any) -> Any:
            """Reduces the gradients. Keras's hook for other strategies: it runs before clipping and before loss
            scaling."""
            pairs = list(super().aggregate_gradients(grads_and_vars))
            variables = [variable for _, variable in pairs]
            return list(zip(reduction.reduce([gradient for gradient, _ in pairs], variables), variables, strict=True))

        def apply_gradients(self, grads_and_vars: Any, *arguments: Any, **options: Any) -> Any:
            """Refuses local variables if this optimizer is inside a LossScaleOptimizer, for instance that of compile().
            Before this call, the LossScaleOptimizer has reduced and checked all gradients."""
            if reduction.local and options.get("skip_gradients_aggregation"):
                raise _local_with(SCALED)
            return super().apply_gradients(grads_and_vars, *arguments, **options)

        def register_local_var(self, variable: Any) -> None:
            """Excludes the gradient of `variable` from the reduction."""
            _refuse_local_where_all_are_judged(self)
            reduction.keep_local(variable)

    made = _named_as(type(optimizer), Distributed).from_config(config)
    _exclude_alike(optimizer, made)
    return made


def _amend_scaling() -> None:
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
    _amend_scaling()

    class Distributed(base):  # type: ignore[misc]
        distrun_reduction = reduction

        def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
            variables = self._trainable_variables if trainable_variables is None else list(trainable_variables)
            return super().apply(reduction.reduce(list(grads), variables), trainable_variables)

        def register_local_var(self, variable: Any) -> None:
            """Excludes the gradient of `variable` from the reduction."""
            _refuse_local_where_all_are_judged(self)
            reduction.keep_local(variable)

    if issubclass(base, keras.optimizers.LossScaleOptimizer):

        def stateless_apply(self: Any, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
            reduced = reduction.reduce(list(grads), self._trainable_variables)
            return base.stateless_apply(self, optimizer_variables, reduced, trainable_variables)

        Distributed.stateless_apply = stateless_apply
    return _named_as(base, Distributed)


def _scaling(base: Any) -> Any:
    """Adds a check that the loss was scaled. The user passed an optimizer without scaling, so a loop may not scale
    it."""

    class Scaling(base):  # type: ignore[misc]
        _distrun_scaled = False

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

    return _named_as(base, Scaling)


def _are_zeros(grads: list[Any]) -> bool:
    """True for eager gradients that are all zero. A program may take a step with them, so that the optimizer creates
    its variables before a state is restored."""
    try:
        return not any(keras.ops.convert_to_numpy(one).any() for one in grads if one is not None)
    except Exception:  # in a traced step they have no values; each backend raises its own type
        return False


def _named_as(base: Any, made: Any) -> Any:
    """Gives `made` the name of `base`, so that files name Keras's class. A user's class keeps its module and
    registration.
    """
    made.__name__ = made.__qualname__ = base.__name__
    made.__doc__ = base.__doc__
    of_keras = base.__module__.split(".")[0] in ("keras", "tf_keras")
    made.__module__ = "keras.optimizers" if of_keras else base.__module__
    registered = keras.saving.get_registered_name(base)
    package, packaged, name = registered.rpartition(">")
    # Files contain this name and load `base`. A name without a package is the class's own name, which `made` has.
    if packaged and keras.saving.get_custom_objects().get(registered) is base:
        keras.saving.register_keras_serializable(package, name)(made)
        keras.saving.get_custom_objects()[registered] = base
    return made
