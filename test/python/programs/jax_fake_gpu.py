"""Which path the operations of compiled programs take on GPUs. The job has the plug-in nccl above a fake of CUDA and
NCCL, and JAX claims to have a GPU. Programs are only lowered for CUDA, which needs no GPU, and not run.
test/backend/nccl/jax_test.cc calls the handler."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
from checks import run

import distrun.jax as hvd
from distrun.jax import _native

GPU = 3  # CUDA's number of JAX's GPU
ROWS = jnp.ones((4, 2))
OPERATIONS: tuple[Callable[..., Any], ...] = (
    *(hvd.allreduce, hvd.allgather, hvd.alltoall, hvd.reducescatter),
    functools.partial(hvd.broadcast, root_rank=0),
    jax.grad(lambda rows: hvd.allreduce(rows).sum()),
)
registered: list[str] = []


def local_devices(*, backend: str) -> list[Any]:
    assert backend == "cuda"
    return [SimpleNamespace(local_hardware_id=GPU)]


def no_cuda(*, backend: str) -> list[Any]:
    raise RuntimeError(f"Unknown backend {backend}")


def register(name: str, function: Any, platform: str) -> None:
    registered.append(platform)
    really_register(name, function, platform=platform)


def pretend(devices: Any = local_devices, registers: Any = register) -> None:
    """Makes JAX claim to have a GPU, and clears the cached answers."""
    jax.default_backend = lambda: "gpu"
    jax.local_devices = devices
    jax.ffi.register_ffi_target = registers
    _native._registered_for_cuda.cache_clear()


def lowered(operation: Callable[..., Any]) -> str:
    """The text of the program for CUDA, traced again."""
    return str(jax.jit(lambda rows: operation(rows)).trace(ROWS).lower(lowering_platforms=("cuda",)).as_text())


def traced(operation: Callable[..., Any]) -> str:
    """The input of lowering. Callbacks can be lowered only for the platform that exists."""
    return str(jax.make_jaxpr(lambda rows: operation(rows))(ROWS))


really_register = jax.ffi.register_ffi_target


def check_programs_call_the_handler_where_the_job_moves_cuda_tensors() -> None:
    pretend()
    for operation in OPERATIONS:
        text = lowered(operation)
        assert "custom_call @distrun_collective" in text and "callback" not in text, text
    assert registered.count("CUDA") == 1, registered
    assert hvd.join() == 0  # on the GPU; there this rank would take part in the operations of the others


def check_a_set_whose_members_do_not_goes_by_way_of_the_host() -> None:
    from distrun import features

    moves, features.moves_cuda = features.moves_cuda, lambda number: number != 0 and moves(number)
    try:
        pretend()
        for operation in OPERATIONS:
            text = traced(operation)
            assert "distrun_collective" not in text and "pure_callback" in text, text
        assert _native.gpu(hvd.global_process_set) == -1
    finally:
        features.moves_cuda = moves
    assert _native.gpu(hvd.global_process_set) == GPU


def check_gpus_of_another_maker_and_what_jax_refuses() -> None:
    pretend(devices=no_cuda)
    assert "distrun_collective" not in traced(hvd.allreduce)

    def refuses(name: str, function: Any, platform: str) -> None:
        raise ValueError("another version")

    pretend(registers=refuses)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert "distrun_collective" not in traced(hvd.allreduce)
    assert "native handler for GPUs (another version)" in str(said[0].message), said


if __name__ == "__main__":
    run(globals())
