"""Connects to the ports of a job without belonging to it."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

LISTENS = "0A"
# Random bytes, lengths beyond the limit, another protocol, the first byte of a greeting, and nothing at all.
PAYLOADS = (os.urandom(4096), b"\xff" * 64, b"\xff\xff\xff\x7f" + b"x" * 100, b"GET / HTTP/1.0\r\n\r\n", b"\x01", b"")


def listening_ports(pids: Iterable[int]) -> dict[int, int]:
    """The TCP ports on which the processes listen, with the pid of the process."""
    inodes = {}
    for pid in pids:
        with suppress(OSError):  # the descriptor or the process has gone
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                if found := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(entry)):
                    inodes[found[1]] = pid
    ports = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == LISTENS and columns[9] in inodes:
                ports[int(columns[1].rpartition(":")[2], 16)] = inodes[columns[9]]
    return ports


@contextmanager
def strangers(ports: Iterable[int], rounds: int = 10) -> Iterator[None]:
    """Opens several connections of each kind to every port. They stay open until the end of the context."""
    with ExitStack() as stack:
        for port in ports:
            for payload in PAYLOADS * rounds:
                stranger = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
                with suppress(OSError):  # the process may already have closed this connection
                    stranger.sendall(payload)
        # By now the processes have closed the connections whose first bytes are wrong.
        time.sleep(0.5)
        yield


def memory(pid: int) -> dict[str, int]:
    """The peaks of a process so far, in bytes: VmPeak, where a huge length would show, and VmHWM, the resident
    memory."""
    text = Path(f"/proc/{pid}/status").read_text()
    return {name: int(kib) * 1024 for name, kib in re.findall(r"^(VmPeak|VmHWM):\s+(\d+) kB$", text, re.MULTILINE)}


def assert_no_memory_for(before: dict[int, dict[str, int]]) -> None:
    """The peaks of these processes have hardly grown since `before`."""
    for pid, then in before.items():
        grown = {name: value - then[name] for name, value in memory(pid).items()}
        assert grown["VmHWM"] < 8 << 20 and grown["VmPeak"] < 256 << 20, (pid, grown)
