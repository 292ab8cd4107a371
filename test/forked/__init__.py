"""Programs under test start in forks of a Python that has already imported their framework.

A program computes the same in a fork, but its process differs. So a test about how processes start, die or fork starts
its own. `scripts/test --full` starts every program by itself (TEST_FORK=0). Then each rank also has its own order of
sets.
"""

from __future__ import annotations

import atexit
import os
import re
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
# By the first of these that a program imports. Keras imports the framework that KERAS_BACKEND names.
PRELOADED = {
    "keras": ("keras",),
    "tensorflow": ("tensorflow",),
    "jax": ("jax", "jax.numpy"),
    "torch": ("torch", "torch.distributed", "torch._dynamo"),
}
# Variables that these modules read when they are imported.
LOOKED_AT = ("KERAS_BACKEND", "JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES", "TF_CPP_MIN_LOG_LEVEL", "XLA_FLAGS")


def preloaded_by(program: Path) -> tuple[str, ...]:
    imported = re.findall(r"^ *(?:import|from) (?:distrun\.)?(\w+)", program.read_text(), re.MULTILINE)
    return next((modules for name, modules in PRELOADED.items() if name in imported), ())


@cache
def start_server(python: str, modules: tuple[str, ...], environment: tuple[tuple[str, str], ...]) -> Path:
    """Returns the server's socket. The server ends with this process."""
    folder = tempfile.TemporaryDirectory(prefix="forked-python-")
    path = Path(folder.name) / "socket"
    # One thread, because a process with threads cannot be forked safely.
    variables = {**os.environ, **dict(environment), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(64)
        line = [python, str(FOLDER / "server.py"), str(listener.fileno()), *modules]
        server = subprocess.Popen(line, stdin=subprocess.PIPE, env=variables, pass_fds=[listener.fileno()])

    def end() -> None:
        assert server.stdin is not None
        server.stdin.close()
        server.wait(30)
        folder.cleanup()

    atexit.register(end)
    return path


def client(server: Path, python: str, program: Path) -> list[str]:
    """The command that starts the program in a fork of the server."""
    return [python, "-ISE", str(FOLDER / "client.py"), str(server), str(program)]


def command(
    python: str, program: Path, environment: Mapping[str, str] = os.environ, *, alone: bool = False
) -> list[str]:
    """The command that starts the program: this Python, or a client of a server of this Python. `alone`: always this
    Python."""
    modules = () if alone or os.environ.get("TEST_FORK") == "0" else preloaded_by(program)
    if not modules:
        return [python, str(program)]
    looked_at = tuple((name, environment[name]) for name in LOOKED_AT if name in environment)
    return client(start_server(python, modules, looked_at), python, program)
