"""Limits for jobs under test."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def memory_group() -> Path:
    """The folder in which a group with a memory limit can be made. In cgroup v1 this is the group of this process. A
    group of v2 has either processes or groups with limits in it, so there it is the top folder."""
    own = {line.split(":", 2)[1]: line.split(":", 2)[2] for line in Path("/proc/self/cgroup").read_text().splitlines()}
    root = Path("/sys/fs/cgroup")
    return root / "memory" / own["memory"].lstrip("/") if "memory" in own else root


@contextmanager
def limited_memory(limit: int, below: bool = True) -> Iterator[Path]:
    """A cgroup with this limit in bytes. Hosts in a box see it at the same path. `below`: it is below the group of this
    process, if that can be; else it is at the top."""
    top = Path("/sys/fs/cgroup")
    above = memory_group() if below else top / "memory" if (top / "memory").exists() else top
    group = above / f"distrun-test-memory-{os.getpid()}"
    try:
        group.mkdir(exist_ok=True)
        name = "memory.limit_in_bytes" if (group / "memory.limit_in_bytes").exists() else "memory.max"
        (group / name).write_text(str(limit))
    except OSError as error:
        pytest.skip(f"no cgroup with a memory limit can be made here: {error}")
    try:
        yield group
    finally:
        deadline = time.monotonic() + 30
        while (group / "cgroup.procs").read_text():
            assert time.monotonic() < deadline, "processes are left in the cgroup"
            time.sleep(0.02)
        group.rmdir()
