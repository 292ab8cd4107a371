"""DistributedGradientTape: a tf.GradientTape that reduces its gradients over the ranks."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf
from distrun._abi import ReduceOp
from distrun._parameters import local_variables
from distrun.process_sets import ProcessSet, global_process_set

from .compression import Compression, Compressor
from .reduction import Reduction


class _DistributedGradientTape(tf.GradientTape):
    """A base class put before the wrapped tape's class; see DistributedGradientTape."""

    _reduction: Reduction

    def __reduce_ex__(self, _: Any) -> Any:
        """Refuses copies and pickles: TensorFlow's recording has none."""
        raise TypeError(
            "a DistributedGradientTape cannot be copied or pickled, because TensorFlow cannot copy what it has "
            "recorded. Create it where the gradients are computed: hvd.DistributedGradientTape(tape)."
        )

    def register_local_source(self, source: Any) -> None:
        """Excludes the gradient of this variable from the reduction."""
        self._reduction.keep_local(source)

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        **options: Any,
    ) -> Any:
        """Computes gradients like the tape, and reduces them over the ranks."""
        gradients = super().gradient(target, sources, output_gradients, **options)
        flat = tf.nest.flatten(sources)
        given = [gradients] if gradients is None or not tf.nest.is_nested(sources) else _leaves(gradients)
        reduced = self._reduction.reduce(given, flat, generic_names=use_generic_names)
        return tf.nest.pack_sequence_as(sources, reduced) if tf.nest.is_nested(sources) else reduced[0]

    def get_local_and_global_gradients(self, *args: Any, **options: Any) -> tuple[list[Any], list[Any]]:
        """Returns the result of gradient(target, sources) as two lists of (source, gradient) pairs.

        The first list has the registered local sources, the second the others, whose gradients are reduced.
        """
        sources = tf.nest.flatten(options["sources"] if "sources" in options else args[1])
        gradients = self.gradient(*args, **options)
        pairs = list(zip(sources, _leaves(gradients), strict=True))
        local = [pair for pair in pairs if id(pair[0]) in self._reduction.local]
        return local, [pair for pair in pairs if id(pair[0]) not in self._reduction.local]


def _leaves(gradients: Any) -> list[Any]:
    """Like tf.nest.flatten, but never splits tf.IndexedSlices, as some versions of it do."""
    if isinstance(gradients, dict):
        return [leaf for key in sorted(gradients) for leaf in _leaves(gradients[key])]
    if isinstance(gradients, list | tuple):
        return [leaf for one in gradients for leaf in _leaves(one)]
    return [gradients]


def groups_of(num_groups: int, groups: Any) -> Any:
    """Returns the argument `groups`, or Horovod's older num_groups with a warning."""
    if num_groups:
        warnings.warn("num_groups is deprecated; use groups.", DeprecationWarning, stacklevel=3)
        return num_groups if groups is None else groups
    return groups


def DistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    op: int = ReduceOp.AVERAGE,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Returns a tape like `gradtape`, with its recording, whose gradient() reduces over the ranks.

    The arguments are those of DistributedOptimizer. ValueError if `gradtape` is no tf.GradientTape, or is distributed
    already.
    """
    del device_dense, device_sparse
    if not isinstance(gradtape, tf.GradientTape):
        raise ValueError(f"DistributedGradientTape wraps a tf.GradientTape, not {type(gradtape).__name__}.")
    if isinstance(gradtape, _DistributedGradientTape):
        raise ValueError("the tape is already distributed. Its gradients would be reduced twice.")
    kind = type(gradtape)
    reduction = Reduction(
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        groups_of(num_groups, groups),
        process_set,
        scale_local_gradients,
    )
    # Set on the class, which belongs to this wrapper. All wrappers of one tape share the tape's own attributes.
    own = {"__module__": kind.__module__, "__doc__": kind.__doc__, "_reduction": reduction}
    tape: Any = object.__new__(type(kind.__name__, (_DistributedGradientTape, kind), own))
    tape.__dict__ = gradtape.__dict__  # one tape with two classes: it records for both, whichever the program enters
    return tape


def PartialDistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    op: int = ReduceOp.AVERAGE,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Returns a DistributedGradientTape that does not reduce the gradients of `local_layers`, one layer or several."""
    tape = DistributedGradientTape(
        gradtape,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
    )
    layers = local_layers if isinstance(local_layers, Iterable) else [] if local_layers is None else [local_layers]
    for layer in layers:
        for variable in local_variables(layer):
            tape.register_local_source(variable)
    return tape
