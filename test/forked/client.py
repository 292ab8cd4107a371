"""Takes the place of a program that server.py runs. Passes on everything that a process inherits, and the signals. Ends
like the program.

    python -ISE client.py SOCKET PROGRAM ARGUMENT...

The launcher starts it like the program itself. It imports little, because it runs once for each rank.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys

FORWARDED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
INHERITED_LIMITS = (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, resource.RLIMIT_AS, resource.RLIMIT_MEMLOCK)


def inherited() -> list[int]:
    """The open descriptors that this program was given. The one that listed them is closed by then."""
    listed = [int(name) for name in os.listdir("/proc/self/fd")]
    return sorted(
        number for number in listed if os.path.exists(f"/proc/self/fd/{number}") and os.get_inheritable(number)
    )


def main() -> None:
    descriptors = inherited()
    server = socket.socket(socket.AF_UNIX)
    server.connect(sys.argv[1])
    umask = os.umask(0)
    request = {
        "program": sys.argv[2],
        "arguments": sys.argv[3:],
        "environment": dict(os.environ),
        "descriptors": descriptors,
        "folder": os.getcwd(),
        "umask": umask,
        "cores": sorted(os.sched_getaffinity(0)),
        "limits": {int(limit): resource.getrlimit(limit) for limit in INHERITED_LIMITS},
    }
    text = json.dumps(request).encode()
    for number in FORWARDED:
        signal.signal(number, lambda number, frame: server.sendall(bytes([number])))
    socket.send_fds(server, [len(text).to_bytes(4, "little")], descriptors)
    server.sendall(text)
    status = server.recv(4)
    if len(status) < 4:
        sys.exit("the fork server has ended")
    code = os.waitstatus_to_exitcode(int.from_bytes(status, "little"))
    if code >= 0:
        os._exit(code)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)


main()
