"""Queries about this build and this job: Horovod's *_built and *_enabled functions."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from distrun import _session

# MPI's libraries and their values of MPI_THREAD_MULTIPLE. The standard ABI has changed that value.
_MPI = {
    "libmpi.so.40": 3,
    "libmpich.so.12": 3,
    "libmpi.so.12": 3,
    "libmpi_abi.so.1": 4096,
    "libmpi_abi.so.0": 4096,
}


def _built(backend: str) -> bool:
    """True if the runtime lists the backend as usable on this machine."""
    return _usable(backend) is not None


def _usable(backend: str) -> dict[str, Any] | None:
    """Returns the backend's entry of query("backends"); None if it is not usable on this machine."""
    listed = _session.query("backends", json=True)["backends"]
    return next((one for one in listed if one["backend"] == backend and one["usable"]), None)


def _enabled(backend: str) -> bool:
    """True if this job moves tensors with the backend, in any process set."""
    _session.world()
    return any(choice["backend"] == backend for choice in _session.query("why", json=True))


def mpi_built() -> bool:
    """Returns True if the MPI plug-in is usable on this machine."""
    return _built("mpi")


def gloo_built() -> bool:
    """Returns True if the Gloo plug-in is usable on this machine."""
    return _built("gloo")


def nccl_built() -> int:
    """Returns NCCL's version code if the NCCL plug-in is usable on this machine, else 0."""
    nccl = _usable("nccl")
    return int(nccl.get("library_version", 1)) if nccl else 0


def cuda_built() -> bool:
    """Returns True if distrun can reduce CUDA tensors on this machine."""
    return nccl_built() != 0


def rocm_built() -> bool:
    """Returns False, because distrun has no ROCm backend."""
    return False


def sycl_built() -> bool:
    """Returns False, because distrun has no SYCL backend."""
    return False


def ddl_built() -> bool:
    """Returns False, because distrun does not support IBM DDL."""
    return False


def ccl_built() -> bool:
    """Returns False, because distrun does not support oneCCL."""
    return False


def mpi_enabled() -> bool:
    """Returns True if MPI alone moves the tensors of a process set. MPI within `hierarchical` does not count; see
    query("why")."""
    return _enabled("mpi")


def gloo_enabled() -> bool:
    """Returns True if Gloo alone moves the tensors of a process set. Gloo within `hierarchical` does not count; see
    query("why")."""
    return _enabled("gloo")


def nccl_enabled() -> bool:
    """Returns True if NCCL alone moves the tensors of a process set. NCCL within `hierarchical` does not count; see
    query("why")."""
    return _enabled("nccl")


def shm_enabled() -> bool:
    """Returns True if shared memory alone moves the tensors of a process set. Its part in `hierarchical` does not
    count; see query("why")."""
    return _enabled("shm")


def tcp_enabled() -> bool:
    """Returns True if distrun's own TCP alone moves the tensors of a process set. Its part in `hierarchical` does not
    count; see query("why")."""
    return _enabled("tcp")


def moves_cuda(process_set: int) -> bool:
    """True if a backend moves CUDA tensors of the set without copies to the host's memory.

    All members must be able to, so every member gets the same answer.
    """
    _session.world()
    choices = _session.query("why", json=True)
    return any((choice["process_set"], choice["device"]) == (process_set, "cuda") for choice in choices)


def mpi_threads_supported() -> bool:
    """Returns True if several threads of this process may call MPI.

    That holds if the program has initialized MPI so, as mpi4py does. It also holds if MPI is the backend, because
    distrun uses only such an MPI. If MPI started the job and is not initialized yet, the answer is True as well:
    mpi4py requests that level.
    """
    known = [has for library, multiple in _MPI.items() if (has := _has_threads(library, multiple)) is not None]
    return mpi_enabled() or (any(known) if known else _started_by_mpi())


def _started_by_mpi() -> bool:
    """True if MPI's variables are set. A process finds its MPI job by them; distrun does not pass them on to its
    ranks."""
    return "PMIX_RANK" in os.environ or "PMI_RANK" in os.environ


def _has_threads(library: str, multiple: int) -> bool | None:
    """Asks the MPI that the process has loaded; never loads one. None if it is not initialized."""
    level, flags = ctypes.c_int(), (ctypes.c_int(), ctypes.c_int())
    try:
        mpi = ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None
    mpi.MPI_Initialized(ctypes.byref(flags[0]))
    mpi.MPI_Finalized(ctypes.byref(flags[1]))
    if not flags[0]:
        return None
    if not flags[1]:
        mpi.MPI_Query_thread(ctypes.byref(level))
    return level.value >= multiple
