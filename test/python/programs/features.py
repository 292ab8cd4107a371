"""The features that the job uses and that the installation has. Arguments: the backend that moves the tensors, and the
names of all usable backends."""

from __future__ import annotations

import sys

import numpy as np

import distrun.numpy as hvd

USED, USABLE = sys.argv[1], sys.argv[2:]

hvd.init()
assert hvd.allreduce(np.ones(3), op=hvd.Sum).tolist() == [hvd.size()] * 3
enabled = {
    "mpi": hvd.mpi_enabled(),
    "gloo": hvd.gloo_enabled(),
    "nccl": hvd.nccl_enabled(),
    "shm": hvd.shm_enabled(),
    "tcp": hvd.tcp_enabled(),
}
assert [name for name, used in enabled.items() if used] == [USED], enabled
assert hvd.mpi_threads_supported() == (USED == "mpi")
built = {"mpi": hvd.mpi_built(), "gloo": hvd.gloo_built(), "nccl": hvd.nccl_built() > 0}
assert built == {name: name in USABLE for name in built}, built
assert hvd.cuda_built() == ("nccl" in USABLE)
assert not (hvd.rocm_built() or hvd.ddl_built() or hvd.ccl_built() or hvd.sycl_built())
hvd.shutdown()
print("all checks passed", flush=True)
