"""DistributedSampler: a rank's share of a dataset."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from distrun._collectives import share
from distrun.process_sets import ProcessSet, global_process_set, registered_id
from torch.utils.data.distributed import DistributedSampler as _DistributedSampler


class DistributedSampler(_DistributedSampler[Any]):
    """torch's DistributedSampler, by default with the ranks of the process set. The other arguments are torch's.

    pad=False: each sample is used exactly once, so some ranks get one sample more than others. Ranks that run out first
    then call join(). Call set_epoch() before each epoch; the order depends only on seed and epoch. ValueError for
    drop_last with pad=False.
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        *,
        pad: bool = True,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        if num_replicas is None or rank is None:
            registered_id(process_set)
            num_replicas = process_set.size() if num_replicas is None else num_replicas
            rank = process_set.rank() if rank is None else rank
        if drop_last and not pad:
            raise ValueError(
                "drop_last=True leaves out samples, and pad=False says that none may be left out. Use one of them."
            )
        super().__init__(dataset, num_replicas, rank, shuffle, seed, drop_last)
        self._share = self.num_samples if pad else share(len(dataset), self.num_replicas, self.rank)

    def __iter__(self) -> Iterator[int]:
        # torch appends the samples that make the shares equal, so they are cut off here.
        return islice(super().__iter__(), self._share)

    def __len__(self) -> int:
        return self._share
