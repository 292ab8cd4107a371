"""`python -m distrun._torch_backend train.py ...`: what ranks run under distrun --torch-backend distrun.

Every group that the program asks of gloo, with init_process_group or later, is made by the backend distrun. In the
spelling cpu:gloo,cuda:gloo it stays gloo's, for what distrun has not.
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
            importlib.import_module("distrun.torch.c10d")  # its way for the ranks to meet, which they do first
        begin(backend, *arguments, **more)

    @functools.wraps(make)
    def helper(size: int, rank: int, ranks: list[int], backend: Any, *arguments: Any, **more: Any) -> Any:
        if str(backend) in _GLOO:
            importlib.import_module("distrun.torch.c10d")
            backend = c10d.Backend("distrun")
        return make(size, rank, ranks, backend, *arguments, **more)

    vars(c10d).update(init_process_group=init_process_group, _new_process_group_helper=helper)


if __name__ == "__main__":
    run_program("torch.distributed.distributed_c10d", use_distrun)
