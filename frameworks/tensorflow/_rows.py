"""Operations in the body of tf.vectorized_map, which also computes Jacobians: one operation for all rows.

TensorFlow traces the body for one row, and rewrites it for all rows. For each stateful op it asks a converter. Without
a converter, the op becomes a loop over the rows. Its operations would all have one name and no order, and the traced op
would run in addition.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf
from distrun._abi import Kind

from ._call import Call
from ._execution import execution, run
from ._native import call_of


def register() -> None:
    """Registers converters for the native ops. TensorFlow 2.15 to 2.21 import the module of converters themselves.

    A version without that module has no vectorized_map, or implements it differently.
    """
    try:
        from tensorflow.python.ops.parallel_for.pfor import RegisterPFor
    except ImportError:
        return
    for kind in Kind:
        for order in ("", "Ordered"):
            RegisterPFor(f"Distrun{kind.name.title()}{order}")(functools.partial(_convert_native, kind))


def _convert_native(kind: Kind, of_rows: Any) -> list[Any]:
    return convert(call_of(kind, of_rows.op), of_rows)


def convert(what: Call, of_rows: Any) -> list[Any]:
    """Returns the outputs for all rows.

    of_rows: TensorFlow's _PforInput, with the traced op and its inputs. Each input has all rows, or is the same for
    every row; its output is likewise.
    """
    shown = f"{what.kind.name.lower()} '{what.names[0]}'"
    # These operations are elementwise, so one operation on the stacked rows replaces those of the rows.
    if what.kind not in (Kind.ALLREDUCE, Kind.BROADCAST):
        raise NotImplementedError(
            f"{shown} in tf.vectorized_map or in a Jacobian: only allreduce and broadcast work there. Call it "
            "outside, on all rows together, or use tf.map_fn. For a Jacobian pass experimental_use_pfor=False."
        )
    if of_rows.pfor.all_indices_partitioned:
        raise NotImplementedError(
            f"{shown} in a branch or a loop of tf.vectorized_map that only some rows run: on another rank these may "
            "be other rows. Call it for every row and choose with tf.where, or use tf.map_fn."
        )
    _leave_out(of_rows.op)
    outputs = run(what, [one.t for one in of_rows.inputs])
    return [one._replace(t=output) for output, one in zip(outputs, of_rows.inputs, strict=True)]


def _leave_out(op: Any) -> None:
    """Removes the traced op from the ops that must run.

    It runs in spite of this in three cases: an op that runs uses its result; it is an ordered op in a loop; it is in a
    function that the body calls. So the op for all rows has another name.
    """
    graph = op.graph
    if graph is tf.compat.v1.get_default_graph() and op.type in execution().unordered:
        run_anyway = getattr(graph, "control_outputs", [])
        run_anyway[:] = [one for one in run_anyway if one.name != op.name]
