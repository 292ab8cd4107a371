"""Files that cannot be executed: only text without a #! line goes to a shell, and the error says what is wrong."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

import pytest

from ..conftest import launcher_path


def elf(machine: int) -> bytes:
    return struct.pack("<16sHH", b"\x7fELF\x02\x01\x01", 2, machine) + bytes(44)


FILES = [
    (b"echo it ran\n", 0, ""),
    (b"#!/bin/sh\necho it ran\n", 0, ""),
    (b"#!/opt/gone/bin/python\nprint(1)\n", 126, "its #! line names /opt/gone/bin/python, which does not exist"),
    (b"#!/bin/sh\r\necho hi\r\n", 126, "its #! line ends with a carriage return"),
    (b"#!/" + b"x" * 300 + b"/python\nprint(1)\n", 126, "its #! line is too long for Linux"),
    (b"\xef\xbb\xbf#!/bin/sh\necho hi\n", 126, "it has a byte order mark before #!"),
    (elf(183), 126, "it is a program for ARM64 (aarch64), and this host is x86-64"),
    (b"\x7fELF echo hi\n", 126, "it begins as a program (ELF) does, but it is broken"),
    (b"MZ\x90\x00\x03" + bytes(99), 126, "it is neither a program for this host nor a text"),
]


@pytest.mark.parametrize(("content", "code", "why"), FILES)
def test_files_that_the_kernel_refuses(tmp_path: Path, content: bytes, code: int, why: str) -> None:
    program = tmp_path / "program"
    program.write_bytes(content)
    program.chmod(0o755)
    done = subprocess.run([launcher_path(), "-np", "2", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    assert why in done.stderr
    assert done.stdout.count("it ran") == (2 if code == 0 else 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_a_folder_on_the_way_that_the_user_may_not_enter(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for name in ("program", "train.py"):
        (closed / name).write_text("#!/bin/sh\n")
        (closed / name).chmod(0o755)
    for parent in tmp_path.parents[:3]:
        parent.chmod(0o755)
    tmp_path.chmod(0o755)
    for name in ("program", "train.py"):
        done = subprocess.run(
            [launcher_path(), "-np", "1", str(closed / name)],
            user=65534, group=65534, extra_groups=[], cwd="/", env={"PATH": "/usr/bin:/bin", "HOME": "/"},
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 126, done.stderr
        assert f"this user may not enter the folder {closed}" in done.stderr and "chmod" not in done.stderr
