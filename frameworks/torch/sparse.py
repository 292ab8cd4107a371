"""Sparse tensors: two allgathers instead of a reduction."""

from __future__ import annotations

from collections.abc import Callable

import torch
from distrun._abi import Kind, ReduceOp
from distrun._collectives import grouped_call, reduce_op
from distrun.process_sets import ProcessSet, global_process_set

from ._adapter import collective


def sparse_allreduce_async(
    tensor: torch.Tensor, name: str | None, op: int | None, process_set: ProcessSet = global_process_set
) -> Callable[[], torch.Tensor]:
    """Starts the sum or average of sparse COO tensors. Call (or synchronize) what is returned for the result.

    The result is not coalesced: ranks may have entries at the same place, and they add up.
    """
    reduce = reduce_op(op)
    if reduce not in (ReduceOp.SUM, ReduceOp.AVERAGE):
        raise NotImplementedError(f"sparse tensors are reduced with Sum or Average, not {reduce.name.title()}.")
    if tensor.layout != torch.sparse_coo:
        raise ValueError(f"expected a sparse COO tensor, not one of layout {tensor.layout}.")
    shape, dense = tensor.shape, tensor.detach()
    # Entries become rows, so that ranks with different numbers of them fit together.
    rows, values = dense._indices().t().contiguous(), dense._values()
    what = grouped_call(Kind.ALLGATHER, f"sparse.{name}" if name else None, process_set, 2)
    handle = collective.allgather([rows, values], what)

    def finish() -> torch.Tensor:
        all_rows, all_values = handle.wait()
        if reduce == ReduceOp.AVERAGE:
            all_values = all_values / (process_set.size() or 1)
        return torch.sparse_coo_tensor(all_rows.t(), all_values, shape, check_invariants=False)

    return finish
