"""Imports modules once, then runs each program that client.py asks for in a fork of this process.

    python server.py LISTENER MODULE...

Importing PyTorch takes 3 seconds of a core and TensorFlow 6, for each rank of each job. LISTENER is the descriptor of a
listening Unix socket. At the end of standard input, the server ends with all its forks.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import io
import json
import os
import resource
import selectors
import signal
import socket
import sys
import threading
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1


@dataclass
class Running:
    """A fork, and the connection of its client."""

    pid: int
    pidfd: int
    client: socket.socket


def read_request(client: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Reads the request of client.py: 4 bytes of length with its descriptors, then JSON."""
    length, descriptors, _, _ = socket.recv_fds(client, 4, 64)
    text = b""
    while len(text) < int.from_bytes(length, "little"):
        part = client.recv(1 << 16)
        if not part:
            raise ConnectionError("the client ended before its request did")
        text += part
    return json.loads(text), descriptors


def take_place_of_client(request: dict[str, Any], descriptors: list[int]) -> None:
    """Takes over everything that a launcher passes to a process."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    beyond = 1 + max(*map(int, os.listdir("/proc/self/fd")), *request["descriptors"])
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, beyond) for descriptor in descriptors]
    os.closerange(3, beyond)
    for descriptor, number in zip(moved, request["descriptors"], strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    os.umask(request["umask"])
    os.sched_setaffinity(0, request["cores"])
    for limit, values in request["limits"].items():
        resource.setrlimit(int(limit), values)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    for name, number in (("stdout", 1), ("stderr", 2)):
        raw = os.fdopen(number, "wb", 0 if unbuffered else -1, closefd=False)
        stream = io.TextIOWrapper(raw, "utf-8", "surrogateescape", line_buffering=number == 2, write_through=unbuffered)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()


def run(program: str, arguments: list[str]) -> None:
    sys.argv = [program, *arguments]
    sys.path[0] = str(Path(program).resolve().parent)
    main = types.ModuleType("__main__")
    main.__file__ = program
    sys.modules["__main__"] = main
    exec(compile(Path(program).read_bytes(), program, "exec"), main.__dict__)


def end(code: int) -> NoReturn:
    """As Python does, but objects are not freed one by one: in a fork that copies the memory of all modules, 2 s."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def run_to_its_end(program: str, arguments: list[str]) -> NoReturn:
    try:
        run(program, arguments)
    except SystemExit as failure:
        if failure.code is not None and not isinstance(failure.code, int):
            print(failure.code, file=sys.stderr)
            end(1)
        end(failure.code or 0)
    except Exception:
        sys.excepthook(*sys.exc_info())
        end(1)
    end(0)


class Server:
    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
        self._selector.register(listener, selectors.EVENT_READ)

    def serve(self) -> tuple[str, list[str]]:
        """Returns in a fork, with the program and its arguments."""
        while True:
            for key, _ in self._selector.select():
                process = key.data
                if key.fileobj is self._listener:
                    with contextlib.suppress(ConnectionError):  # the client has already ended
                        if started := self._start():
                            return started
                elif process is None:
                    os._exit(0)  # the tests are over; the forks get SIGKILL
                elif key.fd not in self._selector.get_map():
                    continue  # the process has ended in this round
                elif key.fd == process.pidfd:
                    self._finish(process)
                else:
                    self._listen(process)

    def _start(self) -> tuple[str, list[str]] | None:
        client, _ = self._listener.accept()
        request, descriptors = read_request(client)
        if (pid := os.fork()) == 0:
            self._close(client)
            take_place_of_client(request, descriptors)
            return request["program"], request["arguments"]
        for descriptor in descriptors:
            os.close(descriptor)
        process = Running(pid, os.pidfd_open(pid), client)
        self._selector.register(client, selectors.EVENT_READ, process)
        self._selector.register(process.pidfd, selectors.EVENT_READ, process)
        return None

    def _close(self, client: socket.socket) -> None:
        """Called in a fork. Closes the objects now. Later they would close numbers that belong to other files by
        then."""
        for key in self._selector.get_map().values():
            if key.data is not None:
                key.data.client.close()
        client.close()
        self._listener.close()
        self._selector.close()

    def _listen(self, process: Running) -> None:
        """The client passes a signal on, or has ended."""
        number = b""
        with contextlib.suppress(ConnectionError):
            number = process.client.recv(1)
        if number:
            os.kill(process.pid, number[0])
            return
        self._selector.unregister(process.client)
        for kill in (os.killpg, os.kill):  # the fork may not have its own group yet
            with contextlib.suppress(ProcessLookupError):
                kill(process.pid, signal.SIGKILL)

    def _finish(self, process: Running) -> None:
        status = os.waitpid(process.pid, 0)[1]
        self._selector.unregister(process.pidfd)
        os.close(process.pidfd)
        if process.client in self._selector.get_map():
            self._selector.unregister(process.client)
            with contextlib.suppress(ConnectionError):
                process.client.sendall(status.to_bytes(4, "little"))
        process.client.close()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    listener = socket.socket(fileno=int(sys.argv[1]))
    for name in sys.argv[2:]:
        importlib.import_module(name)
    gc.freeze()  # a garbage collection would write to the memory of all imported modules, which copies it
    run_to_its_end(*Server(listener).serve())
