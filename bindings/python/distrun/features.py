"""What this build can do and what this job uses: Horovod's *_built and *_enabled queries."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from distrun import _session

# MPI's libraries with their number for MPI_THREAD_MULTIPLE, which the standard binary interface has changed.
_MPI = {
    "libmpi.so.40": 3,
    "libmpich.so.12": 3,
    "libmpi.so.12": 3,
    "libmpi_abi.so.1": 4096,
    "libmpi_abi.so.0": 4096,
}


def _built(backend: str) -> bool:
    """Whether the runtime lists the backend as usable here."""
    return _usable(backend) is not None


def _usable(backend: str) -> dict[str, Any] | None:
    """What query("backends") tells of it, None where it is not usable here."""
    listed = _session.query("backends", json=True)["backends"]
    return next((one for one in listed if one["backend"] == backend and one["usable"]), None)


def _enabled(backend: str) -> bool:
    """Whether this job moves tensors with the backend, in any process set."""
    _session.world()
    return any(choice["backend"] == backend for choice in _session.query("why", json=True))


def mpi_built() -> bool:
    """Whether the MPI plug-in is usable on this machine."""
    return _built("mpi")


def gloo_built() -> bool:
    """Whether the Gloo plug-in is usable on this machine."""
    return _built("gloo")


def nccl_built() -> int:
    """NCCL's version code if the NCCL plug-in is usable on this machine, else 0."""
    nccl = _usable("nccl")
    return int(nccl.get("library_version", 1)) if nccl else 0


def cuda_built() -> bool:
    """Whether tensors on CUDA devices can be reduced on this machine."""
    return nccl_built() != 0


def rocm_built() -> bool:
    """False: there is no ROCm backend."""
    return False


def sycl_built() -> bool:
    """False: there is no SYCL backend."""
    return False


def ddl_built() -> bool:
    """False: IBM DDL is not supported."""
    return False


def ccl_built() -> bool:
    """False: oneCCL is not supported."""
    return False


def mpi_enabled() -> bool:
    """Whether MPI by itself moves tensors of a process set; not within `hierarchical`: see query("why")."""
    return _enabled("mpi")


def gloo_enabled() -> bool:
    """Whether Gloo by itself moves tensors of a process set; not within `hierarchical`: see query("why")."""
    return _enabled("gloo")


def nccl_enabled() -> bool:
    """Whether NCCL by itself moves tensors of a process set; not within `hierarchical`: see query("why")."""
    return _enabled("nccl")


def shm_enabled() -> bool:
    """Whether shared memory by itself moves tensors of a process set; not within `hierarchical`: see query("why")."""
    return _enabled("shm")


def tcp_enabled() -> bool:
    """Whether our own TCP by itself moves tensors of a process set; not within `hierarchical`: see query("why")."""
    return _enabled("tcp")


def moves_cuda(process_set: int) -> bool:
    """Whether the members of the set move tensors on CUDA devices where they lie, by whichever backend. They know it
    alike: all of them must be able to."""
    _session.world()
    choices = _session.query("why", json=True)
    return any((choice["process_set"], choice["device"]) == (process_set, "cuda") for choice in choices)


def mpi_threads_supported() -> bool:
    """Whether MPI may be called from several threads of this process: it has been initialised so by the program (as by
    mpi4py), or is the backend, which is used only with such an MPI. Where MPI has started the job and nobody has
    initialised it yet, it may: mpi4py asks for that level."""
    known = [has for library, multiple in _MPI.items() if (has := _has_threads(library, multiple)) is not None]
    return mpi_enabled() or (any(known) if known else _started_by_mpi())


def _started_by_mpi() -> bool:
    """What lets a process find the others of an MPI job; distrun takes it out of what its ranks inherit."""
    return "PMIX_RANK" in os.environ or "PMI_RANK" in os.environ


def _has_threads(library: str, multiple: int) -> bool | None:
    """Asks the MPI that the process has loaded, and loads none; None where it is not initialised."""
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
