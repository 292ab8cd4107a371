"""Operations in the body of tf.vectorized_map, which is how Jacobians are made too: one operation for all rows.

TensorFlow traces the body for a single row and writes it again for all of them, asking a converter for each op that is
stateful. One without a converter becomes a loop over the rows: operations of one name in no order, besides the traced
one, which runs as well.
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
    """Tells TensorFlow how to convert the native ops. It imports the module itself in every version from 2.15 to 2.21;
    one that has no such module has no vectorized_map, or makes it in another way."""
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
    """The outputs for all rows. of_rows: TensorFlow's _PforInput, the traced op and its inputs. Each of these is for
    all rows or the same for every row, and so is the output that is made of it."""
    shown = f"{what.kind.name.lower()} '{what.names[0]}'"
    # What becomes of an element in these depends on no other one, so the rows' operations are one on their stack.
    if what.kind not in (Kind.ALLREDUCE, Kind.BROADCAST):
        raise NotImplementedError(
            f"{shown} in tf.vectorized_map, or in the gradient that a Jacobian is made of: only allreduce and "
            "broadcast can be made once for all rows. Call it outside, on all rows together, or use tf.map_fn; for a "
            "Jacobian pass experimental_use_pfor=False."
        )
    if of_rows.pfor.all_indices_partitioned:
        raise NotImplementedError(
            f"{shown} in a branch or a loop of tf.vectorized_map that only some rows run: on another rank they may be "
            "other rows. Make it for every row and choose with tf.where, or use tf.map_fn."
        )
    _leave_out(of_rows.op)
    outputs = run(what, [one.t for one in of_rows.inputs])
    return [one._replace(t=output) for output, one in zip(outputs, of_rows.inputs, strict=True)]


def _leave_out(op: Any) -> None:
    """The traced op need not run. It does where an op that runs takes its result; in a loop, where TensorFlow runs all
    ordered ones; and in a function that the body calls. So the one for all rows has another name."""
    graph = op.graph
    if graph is tf.compat.v1.get_default_graph() and op.type in execution().unordered:
        run_anyway = getattr(graph, "control_outputs", [])
        run_anyway[:] = [one for one in run_anyway if one.name != op.name]
