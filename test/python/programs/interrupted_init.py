"""Ctrl-C while init waits for a rank that does not come. The other rank waits until the first one has ended, and
leaves."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

from checks import marker, wait_for

import distrun

if os.environ["DISTRUN_RANK"] == "0":
    marker("pid").write_text(str(os.getpid()))
    try:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        distrun.init()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    assert not distrun.is_initialized()
    marker("interrupted").touch()
else:
    wait_for(marker("interrupted").exists, "the interrupt", 50.0)
    # The interrupted init goes on waiting in the background. It would miss a rank that ends before its own process.
    first = Path("/proc", marker("pid").read_text())
    wait_for(lambda: not first.exists(), "the end of rank 0", 50.0)
print("outside", flush=True)
