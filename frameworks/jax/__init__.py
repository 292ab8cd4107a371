"""distrun for JAX: `distrun.jax.initialize_distributed()` in place of `jax.distributed.initialize()`."""

from __future__ import annotations

import os

import jax
from distrun.errors import NotInitialized

__all__ = ["initialize_distributed"]


def initialize_distributed(**options: object) -> None:
    """Joins this process to the job's other ranks in JAX: `jax.distributed.initialize` with rank, size and address.

    JAX looks for its place in a job at launchers that it knows, and distrun is none of them. Everything that
    `jax.distributed.initialize` takes may be given, and wins.
    """
    try:
        place: dict[str, object] = {
            "coordinator_address": os.environ["JAX_COORDINATOR_ADDRESS"],
            "num_processes": int(os.environ["DISTRUN_SIZE"]),
            "process_id": int(os.environ["DISTRUN_RANK"]),
        }
    except KeyError as missing:
        raise NotInitialized(
            f"initialize_distributed() needs {missing.args[0]}: start the program with distrun -np N python ..."
        ) from None
    jax.distributed.initialize(**{**place, **options})
