"""More than 2^31 elements and more than 4 GiB, so every count must have 64 bits. Needs 5 GiB per rank."""

from __future__ import annotations

import numpy as np
from checks import run

import distrun.numpy as hvd

MANY = 2**31 + 1001
LONG = 2**30 + 77  # 4 GiB of float32


def check_many_elements() -> None:
    data = np.zeros(MANY, np.uint8)
    data[[0, 2**31, MANY - 1]] = hvd.rank() + 1
    hvd.allreduce_(data, op=hvd.Max, name="many")
    assert data[[0, 1, 2**31, MANY - 1]].tolist() == [hvd.size(), 0, hvd.size(), hvd.size()]
    if hvd.rank() == 1:
        data[:] = 0
    hvd.broadcast_(data, 0, name="many")
    assert data[[0, 1, 2**31, MANY - 1]].tolist() == [hvd.size(), 0, hvd.size(), hvd.size()]


def check_many_bytes() -> None:
    data = np.zeros(LONG, np.float32)
    data[[0, 2**30, LONG - 1]] = hvd.rank() + 1
    hvd.allreduce_(data, op=hvd.Sum, name="long")
    total = hvd.size() * (hvd.size() + 1) / 2
    assert data[[0, 1, 2**30, LONG - 1]].tolist() == [total, 0, total, total]


def check_blocks_of_many() -> None:
    rank, size = hvd.rank(), hvd.size()
    rows = [MANY // size + (MANY % size if each == 0 else 0) for each in range(size)]
    data = np.zeros(rows[rank], np.uint8)
    data[[0, -1]] = rank + 1
    whole = hvd.allgather(data, name="many")
    assert len(whole) == MANY
    for each in range(size):
        begin = sum(rows[:each])
        edges = whole[[begin, begin + 1, begin + rows[each] - 1]].tolist()
        assert edges == [each + 1, 0, each + 1], (each, edges)


def check_shares_of_many() -> None:
    rank, last = hvd.rank(), hvd.size() - 1
    rows = 2**28 + 1  # 16 bytes each
    data = np.zeros((rows, 16), np.uint8)
    data[rows - 1] = 7
    share = hvd.reducescatter(data, op=hvd.Max, name="many")
    assert share[-1, 0] == (7 if rank == last else 0)
    del share
    splits = [0] * last + [rows if rank == 0 else 0]  # all rows of rank 0 go to the last rank
    received, sizes = hvd.alltoall(data, splits, name="many")
    assert sizes.tolist() == [rows if rank == last else 0] + [0] * last
    assert len(received) == (rows if rank == last else 0) and (rank != last or received[-1, 0] == 7)


if __name__ == "__main__":
    run(globals())
