"""Prints the native files of distrun that an operation of distrun.jax uses."""

from __future__ import annotations

import hashlib
from pathlib import Path

import jax

import distrun.jax as hvd

hvd.init()
assert float(jax.jit(lambda: hvd.allreduce(jax.numpy.ones(3), op=hvd.Sum, name="ones"))()[0]) == hvd.size()
mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libdistrun" in line}
for path in map(Path, sorted(mapped)):
    print("file", jax.__version__, path.name, hashlib.sha256(path.read_bytes()).hexdigest(), flush=True)
