"""From torch's description of a group to a process set of ours."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from distrun import _session, basics
from distrun.process_sets import add_process_set, global_process_set

from ._channel import Channel
from ._group import DistrunProcessGroup


def create(options: Any, backend_options: object) -> DistrunProcessGroup:
    """What torch calls for every group, on its members alone.

    Joins the job if that was not done. The default group is the set of all ranks; any other one becomes a process set
    of its own, which blocks until all members have come. ValueError where torch's ranks are not distrun's.
    """
    del backend_options
    basics.init()
    world = _session.world()
    ranks = list(options.global_ranks_in_group)
    rank, size = (options.group_rank, options.group_size) if not ranks else (dist.get_rank(), dist.get_world_size())
    if (rank, size) != (world.rank, world.size):
        raise ValueError(
            f"torch.distributed takes this process for rank {rank} of {size}, and distrun for rank {world.rank} of "
            f"{world.size}: start it with `distrun -np {size}` and leave rank and world_size to the environment."
        )
    if ranks != sorted(ranks):
        raise ValueError(f"the ranks of a group of distrun's go up, and these do not: {ranks}.")
    channel = Channel(add_process_set(ranks, members_only=True) if ranks else global_process_set)
    return DistrunProcessGroup(channel, options.group_id, options.store, options.timeout)
