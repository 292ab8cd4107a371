"""MPI through mpi4py beside distrun on another backend. Argument: the thread level that the program requests from
MPI."""

from __future__ import annotations

import sys

import mpi4py
from checks import raises

import distrun.numpy as hvd

mpi4py.rc.thread_level = sys.argv[1]
hvd.init()
assert hvd.mpi_threads_supported()  # mpi4py requests this level by default; the call has not loaded MPI

from mpi4py import MPI  # noqa: E402  # this import initialises MPI

assert hvd.mpi_threads_supported() == (sys.argv[1] == "multiple") and not hvd.mpi_enabled()
hvd.shutdown()
hvd.init(comm=MPI.COMM_WORLD)
assert (hvd.rank(), hvd.size()) == (MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size())
hvd.shutdown()
with raises(NotImplementedError, "add_process_set"):
    hvd.init(comm=MPI.COMM_WORLD.Split(MPI.COMM_WORLD.Get_rank()))
MPI.Finalize()
hvd.init()
assert not hvd.mpi_threads_supported()  # not after MPI_Finalize
print("all checks passed", flush=True)
