"""Child processes that are forked or started after init: they get a clear error, and the parent is not affected."""

from __future__ import annotations

import multiprocessing
import os
import sys
from typing import Any

import torch
from checks import raises, run
from torch.utils.data import DataLoader, Dataset

import distrun.torch as hvd
from distrun import _session


class Numbers(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(index), float(hvd.rank())])


def in_child(queue: Any) -> None:
    try:
        hvd.allreduce(torch.ones(1), name="child")
    except hvd.NotInitialized as error:
        queue.put(str(error))
    sys.exit(7)  # runs the functions registered with atexit; they must not affect the parent's job


def check_error_in_the_child() -> None:
    handle = hvd.allreduce_async(torch.ones(3), op=hvd.Sum, name="in_flight") if hvd.rank() == 0 else None
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=in_child, args=(queue,))
    child.start()
    text = queue.get(timeout=60)
    child.join(60)
    assert "forked" in text and f"rank {hvd.rank()}" in text and child.exitcode == 7, (text, child.exitcode)
    if handle is None:
        handle = hvd.allreduce_async(torch.ones(3), op=hvd.Sum, name="in_flight")
    assert handle.wait().tolist() == [hvd.size()] * 3


class Dispatched(_session.Extension):
    """Like JAX's extension: only the parent has the threads that it waits for."""

    def drain(self) -> None:
        assert not _session.forked()


def check_handles_and_init_in_the_child() -> None:
    _session.extend(Dispatched())
    handle = hvd.allreduce_async(torch.ones(1), name="kept")
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            with raises(hvd.NotInitialized, "forked"):
                handle.wait()
            with raises(hvd.NotInitialized, "forked"):
                hvd.init()
            with raises(hvd.NotInitialized, "forked"):
                hvd.join()
            hvd.shutdown()
            assert not hvd.is_initialized() and hvd.size() >= 1
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    assert handle.wait().tolist() == [1.0]


def check_data_loader_workers() -> None:
    total = torch.zeros(2)
    for step, batch in enumerate(DataLoader(Numbers(), batch_size=5, num_workers=2, multiprocessing_context="fork")):
        total += hvd.allreduce(batch.sum(dim=0), op=hvd.Sum, name=f"step{step}")
    expected_ranks = 40 * sum(range(hvd.size()))
    assert total.tolist() == [sum(range(40)) * hvd.size(), expected_ranks]


def asks_anew(queue: Any) -> None:
    texts = []
    for call, kind in ((hvd.rank, hvd.NotInitialized), (hvd.init, hvd.InvalidArgument)):
        with raises(kind) as caught:
            call()
        texts.append(str(caught[0]))
    queue.put(texts)


def check_children_started_anew() -> None:
    """The default of Python 3.14. Each child imports the program's file again."""
    for method in ("forkserver", "spawn"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        child = context.Process(target=asks_anew, args=(queue,))
        child.start()
        asked, initialised = queue.get(timeout=60)
        child.join(60)
        assert child.exitcode == 0
        for text in (asked, initialised):
            assert "which multiprocessing has started" in text and 'multiprocessing_context="fork"' in text, text
        assert '`if __name__ == "__main__":`' in initialised and "DISTRUN_KEY_FD" in initialised, initialised
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).tolist() == [hvd.size()]


if __name__ == "__main__":
    run(globals())
