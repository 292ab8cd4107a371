"""Who connects to our ports without belonging to the job."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

LISTENS = "0A"
# Random bytes, lengths that nobody has, another protocol, a part of a greeting, and nothing at all.
PAYLOADS = (os.urandom(4096), b"\xff" * 64, b"\xff\xff\xff\x7f" + b"x" * 100, b"GET / HTTP/1.0\r\n\r\n", b"\x01", b"")


def listening_ports(pids: Iterable[int]) -> dict[int, int]:
    """TCP ports on which any of the processes listens, and which one does."""
    inodes = {}
    for pid in pids:
        with suppress(OSError):  # a descriptor, or the process, has gone
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
    """Of each kind some at every port; they stay connected."""
    with ExitStack() as stack:
        for port in ports:
            for payload in PAYLOADS * rounds:
                stranger = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
                with suppress(OSError):  # it may have been shown the door already
                    stranger.sendall(payload)
        # What they are answered, or that they are not, is known when those whom nobody can take for one of us are gone.
        time.sleep(0.5)
        yield


def memory(pid: int) -> dict[str, int]:
    """The most that a process has had so far, in bytes: address space, where a huge length would show, and pages."""
    text = Path(f"/proc/{pid}/status").read_text()
    return {name: int(kib) * 1024 for name, kib in re.findall(r"^(VmPeak|VmHWM):\s+(\d+) kB$", text, re.MULTILINE)}


def assert_no_memory_for(before: dict[int, dict[str, int]]) -> None:
    """Of processes, since then."""
    for pid, then in before.items():
        grown = {name: value - then[name] for name, value in memory(pid).items()}
        assert grown["VmHWM"] < 8 << 20 and grown["VmPeak"] < 256 << 20, (pid, grown)
