"""Operations on values and variables, and loading of models with distributed optimizers."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

import distrun.numpy as arrays
from distrun import _arguments, _seeds, basics
from distrun._abi import Kind
from distrun._collectives import batch_call
from distrun._objects import allgather_object
from distrun._parameters import slot_path
from distrun.numpy._adapter import collective
from distrun.numpy._plain import checked
from distrun.process_sets import ProcessSet, global_process_set

from ._backends import as_array, checked_variables, path_of
from ._copies import build, copy_of, copy_state, rate_of, variables_of
from ._keras import LEGACY, keras
from .optimizer import (
    Compression,
    DistributedOptimizer,
    compression_name,
    distributed_optimizers,
    distributed_part,
    is_distributed,
    with_all_ranks,
)


def _given(value: Any) -> Any:
    """Converts a program's value to an array. ValueError if it has more than numbers (a mask, for instance)."""
    return as_array(checked(value))


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: int | None = None,
    compression: str = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Reduces the ranks' values (default: the average), and returns a NumPy array. Collective; blocks.

    value: a tensor of Keras's backend, an array or a number, of the same shape and dtype on all ranks. It cannot be
    used in a compiled step.
    """
    return arrays.allreduce(
        _given(value),
        average,
        name,
        getattr(arrays.Compression, compression_name(compression)),
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        process_set=process_set,
    )


def allgather(value: Any, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """Concatenates the ranks' values along dimension 0, which may differ, as a NumPy array. Collective; blocks."""
    return arrays.allgather(_given(value), name, process_set=process_set)


def broadcast(value: Any, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set) -> Any:
    """Returns the value of world rank `root_rank` as a NumPy array. Collective; blocks."""
    return arrays.broadcast(_given(value), root_rank, name, process_set=process_set)


def reducescatter(
    value: Any, name: str | None = None, op: int | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Reduces the ranks' values (default: the average), and returns this rank's share of the rows as a NumPy array."""
    return arrays.reducescatter(_given(value), name, op=op, process_set=process_set)


def broadcast_variables(variables: Sequence[Any], root_rank: int = 0) -> None:
    """Overwrites Keras variables with those of rank `root_rank`, all in one batch. Collective; blocks.

    Seeds of random numbers become a function of the root's seed and of the rank.
    """
    given = checked_variables("broadcast_variables", variables)
    _broadcast([(one, path_of(one, slot_path)) for one in given], root_rank)


def _broadcast(given: Sequence[tuple[Any, str]], root_rank: int) -> None:
    """Broadcasts variables, each given with its path."""
    root_rank = _arguments.root_rank(root_rank)
    contents = [np.array(as_array(variable)) for variable, _ in given]
    names = [f"variable.{index}.{path}" for index, (_, path) in enumerate(given)]
    what = batch_call(Kind.BROADCAST, names, global_process_set)._replace(root=root_rank)
    collective.same_size(contents, what, in_place=True).wait()
    if basics.rank() != root_rank:
        for index, key in _seeds.places([variable for variable, _ in given]).items():
            contents[index] = _own_seed(contents[index], key, root_rank)
        for (variable, _), value in zip(given, contents, strict=True):
            variable.assign(value)


def _own_seed(state: Any, key: int, root_rank: int) -> Any:
    """Returns this rank's state of a generator, made from the root's."""
    own = np.array(state)
    own[key] ^= own.dtype.type(_seeds.mask(basics.rank(), root_rank))
    return own


def broadcast_global_variables(root_rank: int) -> NoReturn:
    """Raises RuntimeError that says what to use instead. Horovod has this for TensorFlow 1's graphs."""
    raise RuntimeError(
        f"only graphs of TensorFlow 1 have global variables. Use hvd.broadcast_model(model, {root_rank}), "
        f"hvd.broadcast_variables(variables, {root_rank}) or BroadcastGlobalVariablesCallback({root_rank})."
    )


def has_its_variables(model: Any) -> bool:
    """True if the variables exist before fit() takes its first step.

    On TensorFlow the first step creates missing variables. The other backends create them before fit() begins.
    """
    if keras.backend.backend() != "tensorflow" or model.built:
        return True
    # The model is never called itself; it has its own step, which calls its layers.
    layers = list(model._flatten_layers(include_self=False))
    return bool(layers) and all(layer.built for layer in layers)


def broadcast_model(model: Any, root_rank: int = 0, local: Collection[int] = ()) -> None:
    """Gives every rank the weights and the optimizer's state of rank `root_rank`. Collective; blocks.

    It builds the optimizer if needed. The seeds of layers that draw random numbers (Dropout) become a function of the
    root's seed and of the rank. Distributed optimizers in other attributes of the model are broadcast with the state
    that they have; they are not built, as the model does not know their variables. Those of a smaller process set are
    skipped.

    local: the id() values of variables that each rank keeps. ValueError if the model has no weights yet, or if the
    ranks have built its optimizers differently.
    """
    if not hasattr(model, "weights"):
        raise TypeError(
            f"broadcast_model takes a Keras model, not one of type {type(model).__name__}. For variables use "
            "broadcast_variables."
        )
    if not has_its_variables(model):
        raise ValueError(
            "the model has no weights yet. Give it an input shape (keras.Input), build it, or call it on a batch "
            "first. BroadcastGlobalVariablesCallback waits for the weights by itself."
        )
    optimizer = getattr(model, "optimizer", None)
    state: list[Any] = []
    if optimizer is not None and not hasattr(optimizer, "build") and not is_distributed(optimizer):
        state = _state_of_older(optimizer)
    elif optimizer is not None:
        build(optimizer, model.trainable_variables)
        state = [*_state_of(optimizer), *_passes_of(optimizer, model.trainable_variables)]
    seeds = _seeds_of(model, local)
    others, by_rank = _others_built_alike(model, optimizer, [as_array(one).tolist() for one in seeds])
    for one in others:
        state += _state_of(one)
    given = [(one, path_of(one)) for one in model.weights] + [(one, path_of(one, slot_path)) for one in state]
    _broadcast([(one, path) for one, path in given if id(one) not in local], root_rank)
    _set_seeds(model, seeds, by_rank[int(root_rank)], root_rank)


def _seeds_of(model: Any, local: Collection[int]) -> list[Any]:
    """Returns the seeds of the model's layers. Keras 3 does not list them as weights."""
    ours = {*local, *(id(one) for one in model.weights)}
    others = [one for one in getattr(model, "variables", ()) if id(one) not in ours]
    return [others[index] for index in _seeds.places(others)]


def _set_seeds(model: Any, seeds: list[Any], roots: list[list[int]], root_rank: int) -> None:
    if basics.rank() == root_rank:
        return
    if len(seeds) != len(roots):
        warnings.warn(
            f"{getattr(model, 'name', 'the model')} has {len(roots)} random seeds on rank {root_rank} and "
            f"{len(seeds)} on rank {basics.rank()}, so rank {basics.rank()} keeps its own, and a restored run draws "
            "other random numbers. Give all ranks the same layers that draw random numbers (Dropout, GaussianNoise, "
            "RandomFlip).",
            stacklevel=3,
        )
        return
    for (index, key), seed in zip(_seeds.places(seeds).items(), roots, strict=True):
        dtype = as_array(seeds[index]).dtype
        # The dtype depends on the backend, and the root's may be signed.
        seeds[index].assign(_own_seed(np.array(seed).astype(dtype), key, root_rank))


def _state_of(optimizer: Any) -> list[Any]:
    rate = rate_of(distributed_part(optimizer))
    # Legacy Keras does not list the rate among the variables.
    return [*variables_of(optimizer), *([rate] if LEGACY and hasattr(rate, "assign") else [])]


def _passes_of(optimizer: Any, variables: Sequence[Any]) -> list[Any]:
    """Returns the sums of the passes that have no step yet. Keras 3 lists them among the variables."""
    passes = getattr(distributed_part(optimizer), "distrun_passes", None)
    return passes.sums(variables).variables() if passes is not None else []


def _state_of_older(optimizer: Any) -> list[Any]:
    """Returns the state of a TensorFlow 1 optimizer in Keras's wrapper, or of one of tf.keras.optimizers.legacy.

    Before the first step it is empty, on all ranks alike.
    """
    variables = getattr(getattr(optimizer, "optimizer", optimizer), "variables", None)
    return list(variables()) if callable(variables) else []


def _others_built_alike(model: Any, optimizer: Any, seeds: list[Any]) -> tuple[list[Any], list[Any]]:
    """Returns the model's other optimizers, and every rank's `seeds`. ValueError if the ranks have built them
    differently.
    """
    found = distributed_optimizers(model)
    others = {path: one for path, one in found.items() if one is not optimizer and with_all_ranks(one)}
    # A rank without other optimizers takes part too, since the others may have some.
    sizes = {path: len(variables_of(one)) for path, one in others.items()}
    by_rank = allgather_object((sizes, seeds), "broadcast_model")
    first, _ = by_rank[0]
    for rank, (its, _) in enumerate(by_rank):
        if its != first:
            path = next(one for one in {**first, **its} if its.get(one) != first.get(one))
            raise ValueError(
                f"model.{path} has {first.get(path, 'no')} variables on rank 0 and {its.get(path, 'no')} on rank "
                f"{rank}. Build it on all ranks before fit(), with the variables that it trains: "
                f"model.{path}.build(variables). If only some ranks use it, give it a process_set of these ranks."
            )
    return list(others.values()), [seeds for _, seeds in by_rank]


def load_model(
    filepath: Any,
    custom_optimizers: Sequence[Any] | None = None,
    custom_objects: dict[str, Any] | None = None,
    compression: str = Compression.none,
    legacy_opts: bool = False,
    average_aggregated_gradients: bool | None = None,
    backward_passes_per_step: int = 1,
) -> Any:
    """Loads a model like keras.saving.load_model, and makes its optimizer a DistributedOptimizer with the same state.

    custom_optimizers: your own optimizer classes that the file names. legacy_opts is Horovod's and has no effect.
    average_aggregated_gradients: only for a model whose optimizer accumulates several passes; ValueError without it,
    since files do not say whether it steps with their sum. Pass the value that DistributedOptimizer got with
    backward_passes_per_step, or True if the model used Keras's own gradient_accumulation_steps.
    backward_passes_per_step: that of DistributedOptimizer, for legacy Keras only, whose files do not have it.
    """
    del legacy_opts
    several = _arguments.count("backward_passes_per_step", backward_passes_per_step, 1)
    if several > 1 and not LEGACY:
        raise ValueError("files of Keras 3 have the number of passes. Leave out backward_passes_per_step.")
    compression = compression_name(compression)
    known = _known(custom_optimizers, custom_objects)
    if LEGACY or keras.config.backend() == "tensorflow":
        importlib.import_module("distrun.tensorflow._sync_batch_norm")  # registers its class with Keras
    model = keras.saving.load_model(filepath, custom_objects=known)
    old = getattr(model, "optimizer", None)  # Keras 3 has no optimizer before compile()
    if old is None or is_distributed(old):
        return model
    passes = _accumulated_passes(old, filepath, average_aggregated_gradients)
    with keras.saving.custom_object_scope(known):
        if not LEGACY and not old._trainable_variables and str(filepath).endswith((".h5", ".hdf5")):
            old = _built_from_h5(old, model.trainable_variables, filepath)
        replace_optimizer(
            model,
            old,
            lambda one: DistributedOptimizer(
                one,
                compression=compression,
                backward_passes_per_step=several,
                average_aggregated_gradients=bool(average_aggregated_gradients),
            ),
        )
    if average_aggregated_gradients is False:
        distributed_part(model.optimizer).distrun_reduction.postscale *= passes
    return model


def replace_optimizer(model: Any, old: Any, distributed: Callable[[Any], Any]) -> None:
    """Sets model.optimizer to `distributed` of an optimizer like `old`, with its state."""
    if not LEGACY:
        model.optimizer = distributed(old)
        return
    model.optimizer = distributed(copy_of(old))  # its optimizers do not know their variables
    build(model.optimizer, model.trainable_variables)
    if len(variables_of(old)) < len(variables_of(model.optimizer)):  # Keras reads no state from a SavedModel
        build(old, model.trainable_variables)
    copy_state(old, model.optimizer)


def _accumulated_passes(optimizer: Any, filepath: Any, average: bool | None) -> int:
    passes = getattr(getattr(optimizer, "inner_optimizer", optimizer), "gradient_accumulation_steps", None) or 1
    if passes > 1 and average is None:
        raise ValueError(
            f"{filepath}: its optimizer accumulates the gradients of {passes} passes, but the file does not say "
            "whether it uses their sum or their average. Pass average_aggregated_gradients=False for the sum "
            "(backward_passes_per_step of DistributedOptimizer), or True for the average "
            "(gradient_accumulation_steps of Keras)."
        )
    return int(passes)


def _known(optimizers: Any, objects: Any) -> dict[str, Any]:
    if objects is not None and not isinstance(objects, Mapping):
        raise TypeError(f"custom_objects must be a dict of names and classes or functions, not {objects!r:.60}.")
    try:
        return {one.__name__: one for one in optimizers or ()} | dict(objects or {})
    except (TypeError, AttributeError):
        raise TypeError(f"custom_optimizers must be a list of optimizer classes, not {optimizers!r:.60}.") from None


def _built_from_h5(optimizer: Any, variables: Sequence[Any], filepath: Any) -> Any:
    """Returns a new optimizer like `optimizer` with the state in the file.

    Keras 3 builds the loaded one without variables, so that fit() fails. It keeps only the number of steps and the
    learning rate.
    """
    made = copy_of(optimizer)
    made.build(variables)
    with importlib.import_module("h5py").File(filepath) as file:
        values = []
        group = file.get("optimizer_weights")
        if group is not None:
            parts = sorted((len(key), key) for key in group.attrs if key.startswith("weight_names"))
            values = [group[name][()] for _, key in parts for name in group.attrs[key]]
    if [value.shape for value in values] == [tuple(one.shape) for one in made.variables]:
        for variable, value in zip(made.variables, values, strict=True):
            variable.assign(value)
        return made
    steps, read = (getattr(one, "inner_optimizer", one)._iterations for one in (made, optimizer))
    steps.assign(read)
    if int(read) > 0 and len(made.variables) > len(optimizer.variables):
        warnings.warn(
            f"{filepath} does not have the whole state of its optimizer {made.name} for this Keras (it may come from "
            "Keras 2). The optimizer starts with new momenta, and with the number of steps and the learning rate of "
            "the file.",
            stacklevel=3,
        )
    return made
