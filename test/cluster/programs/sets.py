"""Sums over all ranks and over the ranks of each host. Prints which backend each process set got."""

from __future__ import annotations

import numpy as np

import distrun
import distrun.numpy as hvd

hvd.init()
here = hvd.rank() // hvd.local_size()
sets = [
    distrun.add_process_set([host * hvd.local_size() + local for local in range(hvd.local_size())])
    for host in range(hvd.size() // hvd.local_size())
]
ones = np.ones(1000, np.float32)
total = hvd.allreduce(ones, op=hvd.Sum, name="all")
local = hvd.allreduce(ones, op=hvd.Sum, name=f"host{here}", process_set=sets[here])
print(f"sums {hvd.rank()} {total[0]:.0f} {local[0]:.0f}", flush=True)
if hvd.local_rank() == 0:
    # Without the reasons, because srun mixes long lines.
    chosen = [line.split(" (")[0] for line in distrun.query("why").splitlines() if line.startswith("process set")]
    print(f"host {here}: " + " | ".join(chosen), flush=True)
hvd.shutdown()
