"""Makes a process set from torch's description of a group."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from distrun import _session, basics
from distrun.process_sets import add_process_set, global_process_set

from ._channel import Channel
from ._group import DistrunProcessGroup


def create(options: Any, backend_options: object) -> DistrunProcessGroup:
    """Makes a group. torch calls this for every group, on its members only.

    It joins the job if that has not happened. The default group uses the set of all ranks. Every other group gets a new
    process set, which blocks until all members have called this. ValueError if torch's ranks are not distrun's.
    """
    del backend_options
    basics.init()
    world = _session.world()
    ranks = list(options.global_ranks_in_group)
    rank, size = (options.group_rank, options.group_size) if not ranks else (dist.get_rank(), dist.get_world_size())
    if (rank, size) != (world.rank, world.size):
        raise ValueError(
            f"this process is rank {rank} of {size} for torch.distributed, and rank {world.rank} of {world.size} for "
            f"distrun. Start it with `distrun -np {size}`, and do not pass rank and world_size."
        )
    if ranks != sorted(ranks):
        raise ValueError(f"the ranks of a group must be in ascending order: {ranks}.")
    channel = Channel(add_process_set(ranks, members_only=True) if ranks else global_process_set)
    return DistrunProcessGroup(channel, options.group_id, options.store, options.timeout)
