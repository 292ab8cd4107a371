"""Reductions of sparse tensors, by allgathers."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from distrun import _arguments, errors
from distrun._abi import Kind, ReduceOp
from distrun._collectives import grouped_call, reduce_op
from distrun.process_sets import ProcessSet, global_process_set, has_peers

from ._adapter import collective
from ._changes import watched


def sparse_allreduce_async(
    tensor: torch.Tensor, name: str | None, op: int | None, process_set: ProcessSet = global_process_set
) -> Callable[[], torch.Tensor]:
    """Starts the sum or average of sparse COO tensors, and returns a function.

    Call that function, or pass it to synchronize(), for the result. The result is not coalesced: several ranks may have
    an entry at the same index, and these add up. `name` is equal on all ranks, or None. NotImplementedError for other
    reductions, ValueError for other layouts, Mismatch on all ranks if their shapes differ.
    """
    finish = start_sparse_allreduce(tensor, name, op, process_set)
    if not has_peers(process_set):
        return finish
    check = watched([(name or "sparse, without a name", tensor)])

    def checked() -> torch.Tensor:
        error = check()
        result = finish()
        if error is not None:
            raise error
        return result

    return checked


def start_sparse_allreduce(
    tensor: torch.Tensor, name: str | None, op: int | None, process_set: ProcessSet
) -> Callable[[], torch.Tensor]:
    """Like sparse_allreduce_async, for a caller that checks for changes of the tensor itself."""
    reduce = reduce_op(op)
    if reduce not in (ReduceOp.SUM, ReduceOp.AVERAGE):
        raise NotImplementedError(f"sparse tensors are reduced with Sum or Average, not {reduce.name.title()}.")
    if tensor.layout != torch.sparse_coo:
        raise ValueError(f"expected a sparse COO tensor, not one of layout {tensor.layout}.")
    shape, dense = tensor.shape, tensor.detach()
    # Entries become rows, because an allgather accepts different numbers of rows.
    rows, values = dense._indices().t().contiguous(), dense._values()
    what = grouped_call(Kind.ALLGATHER, f"sparse.{name}" if _arguments.name(name) else None, process_set, 3)
    handle = collective.allgather_sizes([_on_device(shape, rows.device), rows, values], what)

    def finish() -> torch.Tensor:
        (shapes, all_rows, all_values), (present, *_) = handle.wait()
        _same_shapes(name, shapes.tolist(), present, process_set)
        if reduce == ReduceOp.AVERAGE:
            all_values = all_values / (process_set.size() or 1)
        return of_entries(all_rows, all_values, shape, f"the sparse tensor {name or 'without a name'}", name or "")

    return finish


def of_entries(rows: torch.Tensor, values: torch.Tensor, shape: torch.Size, what: str, name: str = "") -> torch.Tensor:
    """Returns the sparse tensor with the entries of all ranks.

    InvalidArgument if an index is outside the shape, because torch would write into other memory there. Tensor data is
    not protected on the network, so the indices may have been changed.
    """
    if rows.numel():
        low, high = torch.stack(torch.aminmax(rows, dim=0)).tolist()
        for dimension, size in enumerate(shape[: len(low)]):
            if low[dimension] < 0 or high[dimension] >= size:
                wrong = low[dimension] if low[dimension] < 0 else high[dimension]
                raise errors.InvalidArgument(
                    f"{what} has an entry at {wrong} in dimension {dimension}, outside its shape {tuple(shape)}. To "
                    "find the rank, create it with check_invariants=True on every rank. If no rank has sent it, a "
                    "fault of the network or somebody else has changed it.",
                    tensor=name,
                )
    return torch.sparse_coo_tensor(rows.t(), values, shape, check_invariants=False)


@functools.lru_cache(maxsize=1024)
def _on_device(shape: torch.Size, device: torch.device) -> torch.Tensor:
    """Returns one row with the shape. Cached: creating it on a GPU waits for the GPU, in the middle of backward."""
    return torch.tensor([shape], dtype=torch.int64, device=device)


def _same_shapes(name: str | None, shapes: list[list[int]], present: tuple[int, ...], process_set: ProcessSet) -> None:
    """Raises Mismatch, on every rank alike, for different shapes. Entries do not show the size of sparse dimensions."""
    if all(one == shapes[0] for one in shapes):
        return
    ranks = [rank for rank, rows in zip(process_set.ranks or (), present, strict=True) if rows]
    wrong = next(place for place, one in enumerate(shapes) if one != shapes[0])
    raise errors.Mismatch(
        f"the sparse tensor {name or 'without a name'} has the shape {tuple(shapes[0])} on rank {ranks[0]} and "
        f"{tuple(shapes[wrong])} on rank {ranks[wrong]}. Pass the same shape on every rank.",
        tensor=name or "",
        ranks=[ranks[wrong]],
    )
