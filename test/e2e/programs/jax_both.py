"""distrun's operations in a program that uses jax.distributed as well."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

import distrun.jax as hvd

hvd.init()
hvd.initialize_distributed()
theirs = multihost_utils.process_allgather(np.float32(jax.process_index() + 1)).sum()
local = jax.device_put(jnp.float32(hvd.rank() + 1), jax.local_devices()[0])
ours = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))(local)
assert float(theirs) == float(ours)
print(f"both agree: {float(ours)}", flush=True)
