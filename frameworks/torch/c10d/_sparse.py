"""Sums of sparse tensors, which DDP needs for embeddings: every member gathers all entries and adds them."""

from __future__ import annotations

import torch
from distrun import errors
from distrun._abi import Kind, ReduceOp
from distrun._operations import Handle

from .._adapter import collective
from ..sparse import of_entries
from ._channel import Channel, Piece
from ._options import Reduction


def allreduce(channel: Channel, tensor: torch.Tensor, reduction: Reduction) -> Handle[None]:
    """Reduces a sparse_coo tensor in place. The result is coalesced. Members may have any entries, or none.

    ValueError for other reductions than sums and averages, since a missing entry has no value to compare.
    """
    if not reduction.linear:
        raise ValueError("sparse tensors are reduced by SUM, AVG and PREMUL_SUM only. Use to_dense() for the others.")
    own = tensor.detach().coalesce()
    indices, values = own.indices().t().contiguous(), own.values().contiguous()
    shape = torch.tensor([list(tensor.shape)], dtype=torch.int64, device=tensor.device)
    sources = [shape, indices, values]
    share = 1 / len(channel.members) if reduction.op is ReduceOp.AVERAGE else reduction.prescale

    def finish(handle: Handle[None]) -> None:
        shapes, places, entries = (
            collective.adapter.gathered(source, handle.gathered(index)) for index, source in enumerate(sources)
        )
        differing = [rank for rank, row in zip(channel.members, shapes, strict=True) if not torch.equal(row, shape[0])]
        if differing:
            raise errors.Mismatch(
                f"a sparse tensor has the shape {tuple(tensor.shape)} here and "
                f"{tuple(shapes[channel.members.index(differing[0])].tolist())} on rank {differing[0]}. "
                "Pass the same shape on every rank.",
                ranks=differing,
            )
        total = of_entries(places, entries, tensor.shape, f"a sparse tensor in {channel}").coalesce()
        with torch.no_grad():
            tensor.copy_(total if share == 1 else total * share)

    return channel.start(Kind.ALLGATHER, [Piece(source, tuple(source.shape)) for source in sources], finish)
