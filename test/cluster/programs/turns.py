"""Ranks take turns: in step n, rank n modulo size says so, and no other before it has."""

import time

import numpy as np

import distrun.numpy as hvd

hvd.init()
for step in range(8):
    if step % hvd.size() == hvd.rank():
        print(f"step {step}", flush=True)
        time.sleep(0.3)  # longer than an agent needs to read it on a busy machine
    hvd.allreduce(np.zeros(1, np.float32), name="turn")
