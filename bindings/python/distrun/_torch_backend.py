"""`python -m distrun._torch_backend train.py ...`: ranks run this under distrun --torch-backend distrun.

The backend distrun makes every group that the program requests from gloo, with init_process_group or later. torch
still reports the backend's name as the program gave it. The spelling cpu:gloo,cuda:gloo keeps gloo, for operations
that distrun does not have.
"""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

from distrun._amend import run_program

_GLOO = ("gloo", "cpu:gloo")


def use_distrun(c10d: ModuleType) -> None:
    """Patches torch.distributed.distributed_c10d, which makes all groups."""
    begin, make = c10d.init_process_group, c10d._new_process_group_helper

    @functools.wraps(begin)
    def init_process_group(backend: Any = None, *arguments: Any, **more: Any) -> None:
        if str(backend).lower() in _GLOO:
            # Before torch makes the group, its ranks find each other in a rendezvous. Use distrun's for gloo too.
            importlib.import_module("distrun.torch.c10d._rendezvous").OURS.add("gloo")
        begin(backend, *arguments, **more)

    @functools.wraps(make)
    def helper(size: int, rank: int, ranks: list[int], backend: Any, *arguments: Any, **more: Any) -> Any:
        if str(backend) not in _GLOO:
            return make(size, rank, ranks, backend, *arguments, **more)
        importlib.import_module("distrun.torch.c10d")
        group, store = make(size, rank, ranks, c10d.Backend("distrun"), *arguments, **more)
        if group in c10d._world.pg_map:  # ranks outside the group have no such group
            # Libraries branch on dist.get_backend(). For an unknown name, ignite's auto_model does not wrap the model,
            # and each rank would train its own.
            c10d._world.pg_map[group] = (backend, store)
        return group, store

    vars(c10d).update(init_process_group=init_process_group, _new_process_group_helper=helper)


if __name__ == "__main__":
    run_program("torch.distributed.distributed_c10d", use_distrun)
