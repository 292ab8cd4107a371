"""All mismatches between ranks. All ranks get an error with the tensor, the odd rank and both values, and then go on.

Rank 1 differs from the others. Run with three ranks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
from checks import raises, run

import distrun
import distrun.numpy as hvd

Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
_numbers = itertools.count()


class With:
    """The arguments of a call."""

    def __init__(self, *args: object, **named: object) -> None:
        self.args, self.named = args, named


def differ(
    call: Callable[..., object],
    usual: With,
    differing: With,
    *texts: str,
    kind: type[distrun.DistrunError] = distrun.Mismatch,
) -> None:
    """Rank 1 makes the call differently from the others. Then all ranks make the same call."""
    name = f"t{next(_numbers)}"
    mine = differing if hvd.rank() == 1 else usual
    with raises(kind, name, "rank 1", *texts) as caught:
        call(*mine.args, name=name, **mine.named)
    error = caught[0]
    assert isinstance(error, kind)
    assert error.ranks == (1,) and error.usable, error.ranks
    assert error.tensor == f"{call.__name__}.{name}", error.tensor
    call(*usual.args, name=name, **usual.named)


def floats(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def check_dtypes() -> None:
    for call in (hvd.allreduce, hvd.allgather, hvd.alltoall, hvd.reducescatter):
        differ(call, With(floats(3)), With(np.ones(3, np.int32)), "data types", "float32", "int32")
    differ(hvd.broadcast, With(floats(3), 0), With(np.ones(3, np.int32), 0), "data types", "float32", "int32")


def check_shapes() -> None:
    for call in (hvd.allreduce, hvd.reducescatter):
        differ(call, With(floats(2, 3)), With(floats(3, 2)), "shapes", "(2, 3)", "(3, 2)")
    differ(hvd.broadcast, With(floats(2), 0), With(floats(3), 0), "shapes", "(2,)", "(3,)")
    for call in (hvd.allgather, hvd.alltoall):
        differ(call, With(floats(3, 2)), With(floats(3, 4)), "(3, 2)", "(3, 4)")
        differ(call, With(floats(3, 2)), With(floats(3, 2, 1)), "2 dimensions", "3 dimensions")


def check_scales_and_reductions() -> None:
    for call in (hvd.allreduce, hvd.reducescatter):
        differ(call, With(floats(3)), With(floats(3), prescale_factor=0.5), "prescale factors", "0.5")
        differ(call, With(floats(3)), With(floats(3), postscale_factor=3.0), "postscale factors", "3")
        differ(call, With(floats(3), op=hvd.Sum), With(floats(3), op=hvd.Max), "reduce operations", "sum", "max")


def check_roots_and_splits() -> None:
    differ(hvd.broadcast, With(floats(2), 0), With(floats(2), 2), "root ranks", "0", "2")
    for splits in ([1, 1], [1, 1, 1, 1], [2, 2, 2], [-1, 1, 1]):
        differ(
            hvd.alltoall,
            With(floats(3)),
            With(floats(3), splits),
            "splits [",
            str(splits),
            kind=distrun.InvalidArgument,
        )
    differ(hvd.alltoall, With(floats(3)), With(floats(4)), "4 rows", kind=distrun.InvalidArgument)


def check_groups_and_operations() -> None:
    """Found after the ranks have waited for each other for stall_warning_time."""
    with raises(distrun.Mismatch, "allreduce 'allreduce.k'", "allgather 'allgather.k'", "rank 1"):
        (hvd.allgather if hvd.rank() == 1 else hvd.allreduce)(floats(2), name="k")
    with raises(distrun.Mismatch, "group of 2"):
        hvd.grouped_allreduce([floats(2)] * (2 if hvd.rank() == 1 else 1), name="g")
    assert hvd.allreduce(floats(2), op=hvd.Sum, name="k").tolist() == [hvd.size()] * 2


def check_wrong_everywhere() -> None:
    """Mistakes that all ranks make alike."""
    scalar = np.float32(1)
    for call in (hvd.allgather, hvd.alltoall, hvd.reducescatter):
        with raises(distrun.InvalidArgument, "0 dimensions", call.__name__):
            call(scalar, name="zero")
    for root in (-1, hvd.size()):
        with raises(distrun.InvalidArgument, "root rank", str(root)):
            hvd.broadcast(floats(2), root, name="root")
    with raises(distrun.InvalidArgument, "cannot be divided equally"):
        hvd.alltoall(floats(2), name="two")


def check_refused_here() -> None:
    handle = hvd.allreduce_async(floats(2), name="twice") if hvd.rank() == 0 else None
    if handle is not None:  # the others have not submitted it, so it is in flight
        with raises(ValueError, "allreduce.twice", "in flight"):
            hvd.allreduce_async(floats(2), name="twice")
    hvd.barrier()
    hvd.synchronize(handle or hvd.allreduce_async(floats(2), name="twice"))
    some = distrun.add_process_set([0, 1])
    if hvd.rank() == 2:
        for call in (hvd.allreduce, hvd.allgather, hvd.alltoall):
            with raises(ValueError, "not a member"):
                call(floats(2), name="outside", process_set=some)
        with raises(ValueError, "not a member"):
            hvd.barrier(process_set=some)
    else:
        with raises(distrun.InvalidArgument, "root rank 2", "not in the process set"):
            hvd.broadcast(floats(2), 2, name="inside", process_set=some)
    distrun.remove_process_set(some)
    with raises(ValueError, "not registered"):
        hvd.allreduce(floats(2), process_set=some)
    with raises(ValueError, "datetime64"):
        hvd.allreduce(np.ones(2, "datetime64[s]"))


if __name__ == "__main__":
    run(globals())
    with raises(distrun.NotInitialized, "init"):
        hvd.allreduce(floats(2))
