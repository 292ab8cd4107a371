"""Submits the operations of one process group. All tensors of one call are submitted together.

A name is the group's label and a number in the order of the calls. torch requires the same order on all members. So all
members must make the same calls, and the threads of one member must not race each other. Messages between two ranks
have names of their own (_messages.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from distrun import _operations, errors
from distrun._abi import Kind
from distrun._operations import Handle, Op
from distrun.process_sets import ProcessSet, drop_process_set, number_kept, registered_id

from .._adapter import collective
from ._options import SUM, Reduction


class Piece(NamedTuple):
    """One tensor of a call.

    shape: the shape that the ranks compare. target: the runtime writes into it. None: it writes into its own memory,
    and `finish` copies from there.
    """

    source: torch.Tensor
    shape: tuple[int, ...]
    target: torch.Tensor | None = None
    splits: tuple[int, ...] = ()


class Channel:
    """The process set of a group. Ranks are positions in the group; members are sorted by world rank.

    `label` identifies the group among all groups of the job, and is the same on all members.
    """

    def __init__(self, process_set: ProcessSet) -> None:
        self.members = tuple(process_set.ranks or ())
        self.position = process_set.rank() or 0
        number = registered_id(process_set)
        # Groups of all ranks share the set of all ranks, which outlives them. Other sets' numbers are never reused.
        self.label = str(number or f"0.{number_kept('c10d groups', process_set)}")
        self._set = process_set
        self._numbers = itertools.count()

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.members[:8]))
        return f"the group of ranks {shown}{', ...' if len(self.members) > 8 else ''}"

    def place(self, rank: int) -> int:
        """Checks a rank in the group itself; ValueError if there is none. torch passes group_src and group_dst
        unchecked."""
        if not 0 <= rank < len(self.members):
            raise ValueError(
                f"{self} has no rank {rank}. group_src, group_dst and root are ranks in the group, 0 to "
                f"{len(self.members) - 1}."
            )
        return rank

    def start(
        self,
        kind: Kind,
        pieces: Sequence[Piece],
        finish: Callable[[Handle[None]], None],
        reduction: Reduction = SUM,
        root: int = 0,
        name: str = "",
    ) -> Handle[None]:
        """Submits all pieces. `finish` runs when all are complete, on the first thread that waits."""
        # If a tensor is refused here, no number is used: the other ranks' next call is this rank's next call too.
        memories = [collective.adapter.describe(piece.source) for piece in pieces]
        number = registered_id(self._set)
        name = name or self._next()
        ops = []
        for index, (piece, memory) in enumerate(zip(pieces, memories, strict=True)):
            ops.append(
                Op(
                    kind=kind,
                    name=f"{name}.{index}" if index else name,
                    dtype=memory.dtype,
                    shape=piece.shape,
                    input=memory.pointer,
                    output=0 if piece.target is None else piece.target.data_ptr(),
                    reduce=reduction.op,
                    prescale=reduction.prescale,
                    root=self.members[root],
                    process_set=number,
                    device_type=memory.device_type,
                    device_index=memory.device_index,
                    stream=memory.stream,
                    splits=piece.splits,
                )
            )
        tensors = [tensor for piece in pieces for tensor in (piece.source, piece.target) if tensor is not None]
        held = [collective.adapter.hold(tensor) for tensor in tensors]
        return _operations.enqueue(ops, held, finish)

    def barrier(self) -> Handle[None]:
        """Starts a barrier. It is complete when all members have called it."""
        number = registered_id(self._set)
        op = Op(kind=Kind.BARRIER, name=self._next(), process_set=number)
        return _operations.enqueue([op], None, lambda _: None)

    def close(self) -> None:
        """Says that this rank makes no more calls. The set ends after all members have closed it; that of all ranks
        stays."""
        try:
            drop_process_set(self._set)
        except errors.DistrunError as error:
            if error.usable:
                raise
            # Otherwise the job has ended, and all sets with it.

    def _next(self) -> str:
        return f"c10d.{self.label}.{next(self._numbers)}"
