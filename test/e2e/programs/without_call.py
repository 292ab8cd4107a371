"""`without_call.py CALL PROGRAM ARGS...`: runs PROGRAM with CALL refused, as by a container's seccomp profile."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

NUMBERS = {
    "memfd_create": {"x86_64": 319, "aarch64": 279},
    "pidfd_open": {"x86_64": 434, "aarch64": 434},
}
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, MODE_FILTER = 22, 38, 2
LOAD_NUMBER, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
REFUSE, ALLOW = 0x00050001, 0x7FFF0000  # EPERM


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


rules = [
    (LOAD_NUMBER, 0, 0, 0),
    (JUMP_IF_EQUAL, 0, 1, NUMBERS[sys.argv[1]][platform.machine()]),
    (RETURN, 0, 0, REFUSE),
    (RETURN, 0, 0, ALLOW),
]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = Program(len(rules), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 or libc.prctl(
    PR_SET_SECCOMP, MODE_FILTER, ctypes.byref(program), 0, 0
):
    sys.exit(f"seccomp is not to be had here: errno {ctypes.get_errno()}")
os.execvp(sys.argv[2], sys.argv[2:])
