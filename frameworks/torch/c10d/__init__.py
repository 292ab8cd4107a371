"""`import distrun.torch.c10d` makes distrun a backend of torch.distributed: `init_process_group("distrun")`.

Scripts written for torchrun then run unchanged under `distrun -np N python script.py`. DDP, FSDP2, DTensor and the
collectives of torch.distributed use the ranks, process sets and errors of distrun. Without a launcher, the program is a
job of one rank. docs/reference/torch-distributed.md lists what works and what does not.
"""

from __future__ import annotations

import torch.distributed as dist

from .._oldest import C10D, need
from . import _rendezvous
from ._create import create
from ._group import DEVICES, DistrunProcessGroup
from ._work import DistrunWork

__all__ = ["DistrunProcessGroup", "DistrunWork"]

need("the backend distrun of torch.distributed", C10D)
dist.Backend.register_backend("distrun", create, extended_api=True, devices=DEVICES)
# PyTorch 2.15 attaches its flight recorder to the groups of all backends outside this set. The recorder needs the
# group's name and backend in C++, where a group made in Python has neither.
_not_recorded: set[str] = getattr(dist.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", set())
_not_recorded.add("distrun")
_rendezvous.install()
