"""Prints a line of JSON about this rank: arguments, variables, folder, limits."""

from __future__ import annotations

import json
import os
import resource
import socket
import sys

mask = os.umask(0)
os.umask(mask)
facts = {
    "argv": sys.argv[1:],
    "env": dict(os.environ),
    "host": socket.gethostname(),
    "user": os.geteuid(),
    "cwd": os.getcwd(),
    "umask": mask,
    "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    "python": sys.executable,
    "prefix": sys.prefix,
}
print("told " + json.dumps(facts), flush=True)
