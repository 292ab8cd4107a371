"""The reduction of gradients, used by DistributedGradientTape, DistributedOptimizer and distrun.keras."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from distrun import _arguments
from distrun._abi import ReduceOp
from distrun._collectives import reduce_op
from distrun._compression import check
from distrun.process_sets import ProcessSet, checked, global_process_set, has_peers

from ._call import factor_of
from .compression import Compression, Compressor
from .functions import variable_names
from .ops import allreduce_dense, allreduce_slices


def _check_groups(groups: Any) -> None:
    lists = groups if isinstance(groups, list | tuple) else []
    if not all(isinstance(group, list | tuple) for group in lists) or not (
        groups is None or groups is lists or (isinstance(groups, int) and groups >= 0)
    ):
        raise ValueError(
            f"groups should be a non-negative integer or a list of lists of tf.Variable, not {groups!r:.60}."
        )
    seen: set[int] = set()
    for variable in (one for group in lists for one in group):
        if not hasattr(variable, "dtype"):  # a variable of TensorFlow or Keras, or a tensor that a tape watches
            raise ValueError(f"groups must consist of lists of tf.Variable, not of {type(variable).__name__}.")
        if id(variable) in seen:
            raise ValueError("a variable appears in more than one of the groups.")
        seen.add(id(variable))


@dataclasses.dataclass
class Reduction:
    """How gradients are reduced. `reduce` returns one gradient for each given one; None stays None.

    All dense gradients are one batch. With `groups` (a number of equal groups, or lists of variables), those of a group
    run all or none. Gradients of local variables are not reduced, but divided by the number of members.
    """

    compression: type[Compressor] = Compression.none
    sparse_as_dense: bool = False
    op: int = ReduceOp.AVERAGE
    predivide: float = 1.0
    groups: int | Sequence[Sequence[Any]] | None = None
    process_set: ProcessSet = global_process_set
    scale_local: bool = True
    prefix: str = "gradient"
    local: dict[int, Any] = dataclasses.field(default_factory=dict)  # by id(), valid while they are held

    def __post_init__(self) -> None:
        check(self.compression)
        checked(self.process_set)
        self.op = reduce_op(self.op)
        self.predivide = _arguments.predivide(factor_of("gradient_predivide_factor", self.predivide))
        if self.predivide != 1.0 and self.op != ReduceOp.AVERAGE:
            raise ValueError("gradient_predivide_factor not supported with op != Average")
        self.groups = _arguments.whole(self.groups)
        _check_groups(self.groups)

    def keep_local(self, variable: Any) -> None:
        """Excludes the gradient of `variable` from the reduction."""
        self.local[id(variable)] = variable

    def copied(self) -> Reduction:
        """Returns a copy for another optimizer. TypeError if it has local variables, which are known by their id."""
        if self.local:
            raise TypeError(
                "a DistributedOptimizer with variables of one rank only (register_local_var) cannot be copied or "
                "pickled, because the copy does not know which variables these are. Create another one, and register "
                "its variables."
            )
        return dataclasses.replace(self, local={})

    def active(self) -> bool:
        """True if the process set has other ranks to reduce with."""
        return has_peers(self.process_set)

    def reduce(self, gradients: Sequence[Any], variables: Sequence[Any], *, generic_names: bool = False) -> list[Any]:
        """Returns the reduced gradients.

        `variables` give them their names. Those that are not local have the same order on all ranks.
        """
        if not self.active():  # the optimizer expects dense ones in any case
            pairs = zip(gradients, variables, strict=True)
            return [self._dense(one) if id(variable) not in self.local else one for one, variable in pairs]
        # Leave out local variables, because their number may differ among the ranks.
        shared = [index for index, variable in enumerate(variables) if id(variable) not in self.local]
        given = range(len(shared)) if generic_names else variable_names([variables[index] for index in shared])
        names = {index: f"{self.prefix}.{name}" for index, name in zip(shared, given, strict=True)}
        results = list(gradients)
        dense, sparse, values = [], [], []
        for index, gradient in enumerate(gradients):
            if gradient is None:
                continue
            # In Keras's float8 the gradient is the variable's new value. Take the maximum, as Keras does over several
            # passes.
            is_value = getattr(variables[index], "overwrite_with_gradient", False)
            if index not in names:
                results[index] = gradient if is_value else self._scaled(gradient)
            elif is_value:
                values.append(index)
            elif isinstance(gradient, tf.IndexedSlices) and not self.sparse_as_dense:
                sparse.append(index)
            else:
                dense.append(index)
        for part, grouped in self._parts(dense, variables):
            self._reduce_dense(part, results, names, grouped)
        if values:
            largest = dataclasses.replace(self, compression=Compression.none, op=ReduceOp.MAX, predivide=1.0)
            largest._reduce_dense(values, results, names, False)
        if sparse:
            slices = [results[index] for index in sparse]
            of_sparse = [names[index] for index in sparse]
            reduced = allreduce_slices(slices, reduce_op(self.op), of_sparse, self.process_set, self.compression)
            for index, gradient in zip(sparse, reduced, strict=True):
                results[index] = gradient
        return results

    def _dense(self, gradient: Any) -> Any:
        wanted = self.sparse_as_dense and isinstance(gradient, tf.IndexedSlices)
        return tf.convert_to_tensor(gradient) if wanted else gradient

    def _reduce_dense(self, part: list[int], results: list[Any], names: dict[int, str], grouped: bool) -> None:
        reduced = allreduce_dense(
            [results[index] for index in part],
            reduce_op(self.op),
            [names[index] for index in part],
            self.process_set,
            self.compression,
            grouped=grouped,
            prescale=1.0 / self.predivide,
            postscale=self.predivide,
        )
        for index, gradient in zip(part, reduced, strict=True):
            results[index] = gradient

    def _scaled(self, gradient: Any) -> Any:
        members = self.process_set.size() or 1
        if not self.scale_local:
            return gradient
        if isinstance(gradient, tf.IndexedSlices):
            values = gradient.values / tf.cast(members, gradient.dtype)
            return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
        return gradient / tf.cast(members, gradient.dtype)

    def _parts(self, dense: list[int], variables: Sequence[Any]) -> list[tuple[list[int], bool]]:
        """Returns the gradients of each operation, and whether they run all or none."""
        if not dense:
            return []
        if not self.groups:
            return [(dense, False)]
        if isinstance(self.groups, int):
            size, longer = divmod(len(dense), self.groups)
            starts = [index * size + min(index, longer) for index in range(self.groups + 1)]
            cuts = [dense[starts[group] : starts[group + 1]] for group in range(self.groups)]
            return [(cut, True) for cut in cuts if cut]
        group_of = {id(variable): number for number, group in enumerate(self.groups) for variable in group}
        parts: dict[int, list[int]] = {}
        for index in dense:
            parts.setdefault(group_of.get(id(variables[index]), -1), []).append(index)
        return [(parts[number], number >= 0) for number in sorted(parts)]
