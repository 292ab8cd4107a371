"""Refuses tensors that would leave the host outside distrun, under distrun --encrypt and --checksum on several hosts.

The program gets Unsupported as soon as it asks for a process group of torch.distributed by another backend, for
jax.distributed, or for tf.distribute. There are three ways in:

- distrun_protected.pth in site-packages calls install() when Python starts. It also reaches the Python programs that a
  shell, env or a script of the user starts.
- Ranks run `python train.py ...` through `python -m distrun._protected train.py ...`. That also holds where Python
  reads no .pth files: the package is found through PYTHONPATH, or Python was started with -S.
- `import distrun.torch` protects torch.distributed in all other programs.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from distrun._amend import patch_when_imported
from distrun.errors import Unsupported

_YES = ("1", "true", "yes", "on")


def asked() -> str:
    """Returns the option that asks for protection, "--encrypt" or "--checksum". "" without one, or in a job on one
    host."""
    if os.environ.get("DISTRUN_SIZE", "1") == os.environ.get("DISTRUN_LOCAL_SIZE", "1"):
        return ""
    for name in ("encrypt", "checksum"):
        if os.environ.get(f"DISTRUN_{name.upper()}", "").lower() in _YES:
            return f"--{name}"
    return ""


def _refuse(what: str, instead: str) -> None:
    if option := asked():
        raise Unsupported(
            f"{what} sends tensors to other hosts without protection, but {option} was given. {instead}, or leave "
            f"out {option}."
        )


def protect_torch(c10d: ModuleType) -> None:
    """Patches torch.distributed.distributed_c10d, which makes all groups. Only the backend distrun may make one."""
    make = c10d._new_process_group_helper
    if getattr(make, "protects", False):
        return

    @functools.wraps(make)
    def helper(size: int, rank: int, ranks: list[int], backend: Any, *arguments: Any, **more: Any) -> Any:
        names = [part.split(":")[-1] for part in str(backend).lower().split(",")]
        if size != 1 and any(name != "distrun" for name in names):
            named = "" if names == ["undefined"] else f" {backend}"
            _refuse(
                f"torch.distributed's own backend{named}",
                'Call init_process_group("distrun") after `import distrun.torch.c10d`',
            )
        return make(size, rank, ranks, backend, *arguments, **more)

    vars(helper)["protects"] = True
    c10d._new_process_group_helper = helper  # type: ignore[attr-defined]


def _instead_of(owner: Any, name: str, what: str, instead: str) -> None:
    """Makes a function of a class raise Unsupported, if protection is on."""
    call: Callable[..., Any] = getattr(owner, name)
    if getattr(call, "protects", False):
        return

    @functools.wraps(call)
    def guarded(*arguments: Any, **more: Any) -> Any:
        _refuse(what, instead)
        return call(*arguments, **more)

    vars(guarded)["protects"] = True
    setattr(owner, name, guarded)


def _protect_jax(distributed: ModuleType) -> None:
    """Patches jax._src.distributed."""
    _instead_of(distributed.State, "initialize", "jax.distributed", "Use distrun.jax without it")


def _protect_workers(strategies: ModuleType) -> None:
    """Patches tensorflow.python.distribute.collective_all_reduce_strategy."""
    workers = strategies.CollectiveAllReduceExtended
    _instead_of(workers, "_initialize_multi_worker", "MultiWorkerMirroredStrategy", "Use distrun.tensorflow")


def _protect_servers(strategies: ModuleType) -> None:
    """Patches tensorflow.python.distribute.parameter_server_strategy_v2."""
    _instead_of(strategies.ParameterServerStrategyV2, "__init__", "ParameterServerStrategy", "Use distrun.tensorflow")


AMENDED: dict[str, Callable[[ModuleType], None]] = {
    "torch.distributed.distributed_c10d": protect_torch,
    "jax._src.distributed": _protect_jax,
    "tensorflow.python.distribute.collective_all_reduce_strategy": _protect_workers,
    "tensorflow.python.distribute.parameter_server_strategy_v2": _protect_servers,
}


def install() -> None:
    """Patches each framework right after its import, if an option asks for protection. Further calls have no effect."""
    if not asked() or getattr(install, "called", False):
        return
    vars(install)["called"] = True
    for name, amend in AMENDED.items():
        if module := sys.modules.get(name):
            amend(module)
        else:
            patch_when_imported(name, amend)
