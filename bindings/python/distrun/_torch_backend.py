"""`python -m distrun._torch_backend train.py ...`: what ranks run under distrun --torch-backend distrun.

Every group that the program asks of gloo, with init_process_group or later, is made by the backend distrun; asked for
its backend, torch says the name that the program gave. In the spelling cpu:gloo,cuda:gloo it stays gloo's, for what
distrun has not.
"""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

from distrun._amend import run_program

_GLOO = ("gloo", "cpu:gloo")


def use_distrun(c10d: ModuleType) -> None:
    """Changes torch.distributed.distributed_c10d, where all groups are made."""
    begin, make = c10d.init_process_group, c10d._new_process_group_helper

    @functools.wraps(begin)
    def init_process_group(backend: Any = None, *arguments: Any, **more: Any) -> None:
        if str(backend).lower() in _GLOO:
            # Its way for the ranks to meet, which they do first.
            importlib.import_module("distrun.torch.c10d._rendezvous").OURS.add("gloo")
        begin(backend, *arguments, **more)

    @functools.wraps(make)
    def helper(size: int, rank: int, ranks: list[int], backend: Any, *arguments: Any, **more: Any) -> Any:
        if str(backend) not in _GLOO:
            return make(size, rank, ranks, backend, *arguments, **more)
        importlib.import_module("distrun.torch.c10d")
        group, store = make(size, rank, ranks, c10d.Backend("distrun"), *arguments, **more)
        if group in c10d._world.pg_map:  # no such group on ranks that are not in it
            # Libraries choose by dist.get_backend(): ignite's auto_model leaves a model alone, and each rank trains
            # its own, where the name is one that it does not know.
            c10d._world.pg_map[group] = (backend, store)
        return group, store

    vars(c10d).update(init_process_group=init_process_group, _new_process_group_helper=helper)


if __name__ == "__main__":
    run_program("torch.distributed.distributed_c10d", use_distrun)
