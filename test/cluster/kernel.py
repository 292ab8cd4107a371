"""System calls that Python lacks (unshare and setns exist only from 3.12 on)."""

from __future__ import annotations

import ctypes
import os

CLONE_NEWNS = 0x00020000
CLONE_NEWTIME = 0x00000080
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def unshare(namespaces: int) -> None:
    _check(_libc.unshare(ctypes.c_int(namespaces)), f"unshare({namespaces:#x})")


def setns(descriptor: int, namespaces: int) -> None:
    _check(_libc.setns(ctypes.c_int(descriptor), ctypes.c_int(namespaces)), f"setns({namespaces:#x})")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    def text(value: str) -> bytes | None:
        return os.fsencode(value) if value else None

    result = _libc.mount(text(source), text(target), text(kind), ctypes.c_ulong(flags), text(data))
    _check(result, f"mount {kind or source} on {target}")


def umount(target: str) -> None:
    _check(_libc.umount(os.fsencode(target)), f"umount {target}")
