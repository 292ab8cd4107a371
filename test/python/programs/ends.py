"""The end of a rank as seen by the others. The first argument selects how rank 1 ends. The others print their
errors."""

from __future__ import annotations

import os
import signal
import sys
import threading

import numpy as np

import distrun.numpy as hvd


def end(how: str) -> None:
    if how == "raise":
        raise ValueError("boom on purpose")
    if how == "thread":
        thread = threading.Thread(target=submit_and_raise)
        thread.start()
        thread.join()
        hvd.allreduce(np.ones(2), name="never")
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "leave":
        sys.exit(0)


def submit_and_raise() -> None:
    hvd.allreduce_async(np.ones(2), name="from a thread")
    raise KeyError("lost in a thread")


def main() -> None:
    hvd.init()
    hvd.barrier()
    if hvd.rank() == 1:
        end(sys.argv[1])
    try:
        hvd.allreduce(np.ones(2), name="never")
    except hvd.HorovodInternalError as error:
        assert not error.usable
        print(f"got {type(error).__name__} ranks={error.ranks} cause={error.cause!r} text={error}", flush=True)
    else:
        print("got nothing", flush=True)
    # The job can run nothing more, and the next call fails at once.
    try:
        hvd.allreduce(np.ones(2), name="again")
    except hvd.DistrunError as error:
        print(f"then {type(error).__name__}", flush=True)
    sys.exit(1)


if __name__ == "__main__":
    main()
