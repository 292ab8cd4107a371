"""Training with MXNet when another rank ends, or when one rank differs. The first argument selects the case."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import mxnet as mx
import numpy as np

import distrun.mxnet as hvd

HOW = sys.argv[1]


class Training:
    """A layer with one weight. Its gradient is the mean of the batch."""

    def __init__(self, more: bool = False) -> None:
        self.layer = mx.gluon.nn.Dense(1, use_bias=more, in_units=4)
        self.layer.initialize(mx.init.One())
        self.trainer = hvd.DistributedTrainer(self.layer.collect_params(), "sgd", {"learning_rate": 1.0})

    def step(self, batch: Any) -> None:
        with mx.autograd.record():
            loss = self.layer(batch).mean()
        loss.backward()
        self.trainer.step(1)

    def weight(self) -> Any:
        return self.layer.weight.data().asnumpy()[0]


def batch(value: float) -> Any:
    return mx.nd.full((2, 4), value)


def killed() -> None:
    """Rank 1 dies in the middle of a step. The others get the error and print the time."""
    training = Training()
    training.step(batch(1))
    hvd.barrier()
    if hvd.rank() == 1:
        print(f"dies {time.time()}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        training.step(batch(1))
    except hvd.RankLost as failure:
        print(f"told {time.time()} ranks={failure.ranks}", flush=True)
        raise SystemExit(3) from None


def leaves() -> None:
    """Rank 1 has one batch more than rank 0, which ends without join."""
    training = Training()
    try:
        for _ in range(2 + (hvd.rank() == 1)):
            training.step(batch(1))
    except hvd.RankLeft as failure:
        print(f"told ranks={failure.ranks} {failure}", flush=True)
        raise SystemExit(3) from None


def joins() -> None:
    """The same with join. The last batch is averaged with zeros, as in Horovod."""
    training = Training()
    for _ in range(2 + (hvd.rank() == 1)):
        training.step(batch(1))
    assert hvd.join() == 1
    steps = 2 if hvd.rank() == 0 else 2.5
    np.testing.assert_allclose(training.weight(), 1.0 - steps)


def lacks() -> None:
    """Rank 1's layer has a bias that the others lack. Its error names the rank that left without submitting it."""
    Training(more=hvd.rank() == 1).step(batch(1))


def spreads(value: float) -> None:
    """Infinity or NaN on one rank reaches all ranks, so they can all skip the step."""
    training = Training()
    training.step(batch(value if hvd.rank() == 0 else 1.0))
    assert not np.isfinite(training.weight()).any(), training.weight()


def overflows() -> None:
    """float16: each rank's gradient is finite, but their sum is not."""
    gradient = mx.nd.full((3,), 60000 if hvd.rank() == 0 else 10000, dtype="float16")
    assert np.isinf(hvd.allreduce(gradient, op=hvd.Sum).asnumpy()).all()


hvd.init()
{
    "killed": killed,
    "leaves": leaves,
    "joins": joins,
    "lacks": lacks,
    "nan": lambda: spreads(float("nan")),
    "infinite": lambda: spreads(float("inf")),
    "overflows": overflows,
}[HOW]()
hvd.shutdown()
print("all checks passed", flush=True)
