"""Trains until should_stop(): steps.py [SECONDS PER STEP [free|stubborn]]. Prints `ready RANK PID` after ten steps and
`stopped RANK STEP` at the end.

`free` ranks never wait for each other. `stubborn` ones do not stop.
"""

import os
import random
import sys
import time

import numpy as np

import distrun.numpy as hvd

pause = float(sys.argv[1]) if len(sys.argv) > 1 else 0.001
mode = sys.argv[2] if len(sys.argv) > 2 else ""
hvd.init()
step = 0
while not hvd.should_stop() or mode == "stubborn":
    step += 1
    if step == 11:
        print(f"ready {hvd.rank()} {os.getpid()}", flush=True)
    time.sleep(pause * random.random())
    if mode != "free":
        hvd.allreduce(np.ones(4, np.float32), name="gradient")
print(f"stopped {hvd.rank()} {step}", flush=True)
