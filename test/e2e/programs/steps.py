"""Trains until it is told to stop: steps.py [SECONDS PER STEP [free|stubborn]]; says `stopped RANK STEP`.

`free` ranks never wait for each other; `stubborn` ones go on.
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
print(f"ready {hvd.rank()} {os.getpid()}", flush=True)
step = 0
while not hvd.should_stop() or mode == "stubborn":
    step += 1
    time.sleep(pause * random.random())
    if mode != "free":
        hvd.allreduce(np.ones(4, np.float32), name="gradient")
print(f"stopped {hvd.rank()} {step}", flush=True)
