"""Makes optimizers like given ones: with the same configuration, and with the same state."""

from __future__ import annotations

import contextlib
import importlib
import types
import warnings
from typing import Any, NamedTuple

import numpy as np

from ._backends import as_array
from ._keras import LEGACY, MULTI, OLDER, SCALING, keras


def config_of(optimizer: Any) -> dict[str, Any]:
    """Returns the configuration for an optimizer like `optimizer`.

    These parts stay live objects instead of Keras's serialized forms: a schedule or a function as learning rate, the
    inner optimizer of loss scaling, and the map of a MultiOptimizer. Keras may be unable to serialize them, or to find
    their classes again.
    """
    key, holder, attribute = "learning_rate", vars(optimizer), "_learning_rate"
    stand_in = keras.optimizers.schedules.ExponentialDecay(0.0, 1, 0.0)
    if isinstance(optimizer, SCALING):
        key, attribute = "inner_optimizer", "_optimizer" if LEGACY else "inner_optimizer"
        stand_in = keras.optimizers.SGD()
    elif isinstance(optimizer, MULTI):
        key, attribute = "optimizer_map", "_optimizer_map"
        stand_in = keras.optimizers.OptimizerMap(keras.optimizers.SGD())
    elif isinstance(optimizer, OLDER):
        holder, attribute = optimizer._hyper, key
    live = holder.get(attribute)
    if key == "learning_rate" and not callable(live):
        return dict(optimizer.get_config())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras warns of functions that are not safe to load
        try:  # while it works, call a program's get_config() only with the program's own object
            config, written = dict(optimizer.get_config()), _written(live)
        except Exception:  # for instance from the program's schedule
            # vars() bypasses __setattr__, which would track the stand-in.
            holder[attribute] = stand_in
            try:
                config, written = dict(optimizer.get_config()), _written(stand_in)
            finally:
                holder[attribute] = live
    if isinstance(config.get(key), dict) and config[key] == written:
        config[key] = live
    elif key in config and isinstance(optimizer, OLDER) and isinstance(live, types.FunctionType):
        config[key] = live  # the configuration has the function's value of now
    return config


def _written(what: Any) -> Any:
    """Returns the object in Keras's serialized form; None if Keras cannot serialize it."""
    try:
        return keras.saving.serialize_keras_object(what)
    except Exception:  # raised by the program's code
        return None


def copy_of(optimizer: Any) -> Any:
    """Returns a new optimizer like `optimizer`, without its state."""
    return make(type(optimizer), config_of(optimizer))


def make(kind: Any, config: dict[str, Any]) -> Any:
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
            exclude_alike(one, copies[id(one)])
    return type(given)(copies[id(given.default_optimizer)], {key: copies[id(one)] for key, one in given.items()})


def copy_state(old: Any, made: Any) -> None:
    """Copies momenta, iterations and other state. Both optimizers are built. Only `made` may accumulate several
    passes."""
    starts = getattr(made, "gradient_accumulation_steps", None) and not old.gradient_accumulation_steps
    added = {id(one) for one in made._accumulated_gradients} if starts else set()
    mine = [one for one in variables_of(made) if id(one) not in added]
    for one, its in zip(mine, variables_of(old), strict=True):
        one.assign(its)
    if starts:  # Keras's iterations count passes
        made._iterations.assign(old._iterations * made.gradient_accumulation_steps)


def exclude_alike(old: Any, made: Any) -> None:
    """Copies the effect of exclude_from_weight_decay(), which is not part of the configuration."""
    old, made = (getattr(one, "inner_optimizer", one) for one in (old, made))
    for name, value in vars(old).items():
        if name.startswith("_exclude_from_weight_decay") and not name.endswith("_cache"):
            setattr(made, name, type(value)(value) if type(value) in (list, set) else value)


def named_as(base: Any, made: Any) -> Any:
    """Gives `made` the name of `base`, so that files name Keras's class. A user's class keeps its module and
    registration.
    """
    made.__name__ = made.__qualname__ = base.__name__
    made.__doc__ = base.__doc__
    of_keras = base.__module__.split(".")[0] in ("keras", "tf_keras")
    of_files = "keras.optimizers.legacy" if issubclass(base, OLDER) else "keras.optimizers"
    made.__module__ = of_files if of_keras else base.__module__
    registered = keras.saving.get_registered_name(base)
    package, packaged, name = registered.rpartition(">")
    # Files contain this name and load `base`. A name without a package is the class's own name, which `made` has.
    if packaged and keras.saving.get_custom_objects().get(registered) is base:
        keras.saving.register_keras_serializable(package, name)(made)
        keras.saving.get_custom_objects()[registered] = base
    return made


def variables_of(optimizer: Any) -> list[Any]:
    """Returns the state of an optimizer: its steps, its learning rate (not in legacy Keras) and its momenta."""
    found = optimizer.variables
    return list(found() if callable(found) else found)


def rate_of(optimizer: Any) -> Any:
    """Returns the variable, the schedule or the function with the learning rate.

    An optimizer of keras.optimizers.legacy has a number until its state is created.
    """
    return (
        optimizer._hyper.get("learning_rate")
        if isinstance(optimizer, OLDER)
        else getattr(optimizer, "_learning_rate", None)
    )


def build(optimizer: Any, variables: Any) -> None:
    """Creates the state of an optimizer for these variables, if it does not exist."""
    if isinstance(optimizer, OLDER):
        optimizer._create_all_weights(variables)
    elif LEGACY or not optimizer.built:
        optimizer.build(variables)


class Recipe(NamedTuple):
    """What an optimizer without state is made from. It can be pickled if the program's own classes can."""

    kind: Any
    config: dict[str, Any]
    undecayed: list[str]  # names of variables without weight decay, which are not part of the configuration


def recipe_of(optimizer: Any) -> Recipe:
    """Returns the recipe of an optimizer; that of a distributed one has Keras's class. TypeError if there is none."""
    if isinstance(optimizer, MULTI):
        raise TypeError(
            "a MultiOptimizer cannot be copied or pickled by itself. Copy the model that it trains, or create it "
            "again: hvd.DistributedOptimizer(keras.optimizers.MultiOptimizer(...))."
        )
    if getattr(optimizer, "_exclude_from_weight_decay", None):
        raise TypeError(
            "this optimizer cannot be copied or pickled: exclude_from_weight_decay(var_list=...) names variables that "
            "the copy may not have. Use exclude_from_weight_decay(var_names=...)."
        )
    config = config_of(optimizer)
    if isinstance(optimizer, SCALING):
        config["inner_optimizer"] = recipe_of(optimizer.inner_optimizer)
    pattern = getattr(optimizer, "_exclude_from_weight_decay_pattern", None)  # of Keras 3
    names = [pattern.pattern] if pattern else list(getattr(optimizer, "_exclude_from_weight_decay_names", None) or [])
    return Recipe(getattr(optimizer, "distrun_base", type(optimizer)), config, names)


def made_from(recipe: Recipe) -> Any:
    """Returns a new optimizer."""
    config = dict(recipe.config)
    inner = config.get("inner_optimizer")
    if isinstance(inner, Recipe):
        config["inner_optimizer"] = made_from(inner)
    new = make(recipe.kind, config)
    if isinstance(inner, Recipe):
        exclude_alike(config["inner_optimizer"], new)
    if recipe.undecayed:
        new.exclude_from_weight_decay(var_names=recipe.undecayed)
    return new


class State(NamedTuple):
    """The values of an optimizer's variables."""

    steps: int
    values: list[Any]


def _steps_of(optimizer: Any) -> Any:
    part = getattr(optimizer, "inner_optimizer", optimizer)
    return part.iterations if isinstance(part, OLDER) else part._iterations


def state_of(optimizer: Any) -> State:
    """Returns the state of an optimizer, also of a copy that has no momenta yet. Before its first step, an optimizer of
    keras.optimizers.legacy has none."""
    kept: State | None = vars(optimizer).get("distrun_state")
    if kept is not None:
        return kept
    values = [np.array(as_array(one)) for one in variables_of(optimizer)]
    return State(int(_steps_of(optimizer)) if values else 0, values)


def resume(copied: Any, state: State) -> None:
    """Gives a new optimizer this state. If its momenta do not exist yet, `restore` does that when they do."""
    if not _assigned(copied, state):
        vars(copied)["distrun_state"] = state  # __setattr__ would track the arrays
        _steps_of(copied).assign(state.steps)


def restore(copied: Any) -> None:
    """Gives an optimizer whose momenta were just created the state that `resume` has kept for it.

    With other variables than the original's, it starts anew.
    """
    state = vars(copied).pop("distrun_state", None)
    if state is not None:
        with _outside_of_graphs():
            if not _assigned(copied, state):
                _steps_of(copied).assign(0)


def _assigned(copied: Any, state: State) -> bool:
    variables = variables_of(copied)
    if [tuple(one.shape) for one in variables] != [value.shape for value in state.values]:
        return False
    for variable, value in zip(variables, state.values, strict=True):
        variable.assign(value)
    return True


def _outside_of_graphs() -> Any:
    """Inside this context an assignment runs once, and not in every run of the tf.function that is being traced."""
    if keras.backend.backend() != "tensorflow":
        return contextlib.nullcontext()
    return importlib.import_module("tensorflow").init_scope()
