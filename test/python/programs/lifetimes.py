"""Repeated init and shutdown, many threads, and outputs that outlive the session."""

from __future__ import annotations

import os
import threading

import numpy as np
from checks import raises

import distrun.numpy as hvd

SIZE: list[int] = []  # of the world; needed when no session is open


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def once(number: int) -> np.ndarray:
    hvd.init(process_sets=[hvd.ProcessSet([0])] if SIZE[0] > 1 else None)
    gathered = hvd.allgather(np.array([hvd.rank() + number]))
    kept = hvd.allreduce_async(np.ones(3), op=hvd.Sum, name="kept")
    hvd.shutdown()
    # Shutdown waits until it is complete and takes over its memory.
    assert kept.poll() and kept.wait().tolist() == [SIZE[0]] * 3
    with raises(hvd.NotInitialized, "init"):
        hvd.allreduce(np.ones(1))
    with raises(hvd.NotInitialized):
        hvd.rank()
    return gathered


def all_sets_or_none() -> None:
    """A wrong set refuses all sets that init() would register, and the next call registers them."""
    first, same, outside = hvd.ProcessSet([0]), hvd.ProcessSet([0]), hvd.ProcessSet([SIZE[0]])
    for wrong, why in ((outside, "names a rank outside"), (same, "the same ranks"), (hvd.ProcessSet([0, 0]), "twice")):
        with raises(ValueError, why):
            hvd.init(process_sets=[first, wrong])
        assert first.process_set_id is None and wrong.process_set_id is None
    hvd.init(process_sets=[first, first])
    assert first.size() == 1
    hvd.shutdown()


def many_threads() -> None:
    failures: list[BaseException] = []

    def submit(thread: int) -> None:
        try:
            for step in range(60):
                result = hvd.allreduce(np.full(5, thread), op=hvd.Sum, name=f"thread{thread}.{step}")
                assert (result == thread * hvd.size()).all()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=submit, args=(index,)) for index in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def main() -> None:
    hvd.init()
    size = hvd.size()
    SIZE.append(size)
    hvd.shutdown()
    hvd.shutdown()
    if size > 1:
        all_sets_or_none()
    results = [once(number) for number in range(3)]
    before, threads = descriptors(), threading.active_count()
    results += [once(number) for number in range(3, 10)]
    assert descriptors() <= before + 1 and threading.active_count() == threads
    for number, result in enumerate(results):
        assert result.tolist() == [rank + number for rank in range(size)]
    hvd.init()
    many_threads()
    print("all checks passed", flush=True)  # the atexit handler leaves the job


if __name__ == "__main__":
    main()
