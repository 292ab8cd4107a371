"""Runs random programs on real sessions and compares every result with NumPy's (docs/internals/simulation.md).

    distrun -np 3 --backend tcp python test/differential/run.py --seeds 1-2000

A failure names its seed S. To repeat it, use the same command with --seeds S-S.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import random
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import plan
from plan import Array, Item, Program

import distrun
import distrun.numpy as hvd
from distrun._abi import Kind
from distrun._operations import Op, enqueue

EXCEPTIONS = {"Mismatch": distrun.Mismatch, "InvalidArgument": distrun.InvalidArgument}


class Wrong(AssertionError):
    """A result differs from NumPy's, or an error is not the expected one."""


def strided(array: Array) -> Array:
    """The same values in memory that is not contiguous."""
    if array.ndim == 0:
        return array
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[..., ::2] = array
    return wide[..., ::2]


def with_mistake(item: Item, inputs: list[Array], arguments: dict[str, Any]) -> list[Array]:
    """The tensors that the culprit submits instead. Some mistakes change `arguments`."""
    if item.mistake == "dtype":
        return [one.astype("float32" if item.dtype == "float64" else "float64") for one in inputs]
    if item.mistake == "shape":
        return [np.zeros((*one.shape, 2), one.dtype) for one in inputs]
    if item.mistake == "splits":
        arguments["splits"] = [1] * (len(item.members) + 1)
    elif item.mistake == "root":
        arguments["root_rank"] = next(rank for rank in item.members if rank != item.root)
    elif item.mistake == "reduction":
        arguments["op"] = hvd.Max if item.reduction != plan.MAX else hvd.Min
    else:
        arguments[f"{item.mistake}_factor"] = 0.125
    return inputs


class Runner:
    """One program on this rank."""

    def __init__(self, program: Program, spoil: bool) -> None:
        self.program = program
        self.spoil = spoil  # change one result; the run must notice it
        self.rank = distrun.rank()
        self.sets: dict[tuple[int, ...], Any] = {tuple(program.sets[0]): hvd.global_process_set}
        self.digests: dict[tuple[int, int], int] = {}
        self.last = -1  # the rank that joined last
        self.failure: BaseException | None = None

    def start(self, item: Item, repeat: int) -> tuple[Any, list[Array]]:
        """Submits the item. Returns the handle, and the tensors that an in-place operation overwrites."""
        inputs = plan.inputs_of(self.program, item, self.rank, repeat)
        arguments: dict[str, Any] = {"name": item.name, "process_set": self.sets[tuple(item.members)]}
        if item.kind in ("allreduce", "reducescatter"):
            arguments["op"] = getattr(hvd, item.reduction)
            arguments["prescale_factor"] = item.prescale
            arguments["postscale_factor"] = item.postscale
        elif item.kind == "broadcast":
            arguments["root_rank"] = item.root
        elif item.kind == "alltoall" and not item.even_splits:
            arguments["splits"] = plan.splits_of(item, self.rank, repeat)
        if item.kind == "barrier":
            return self.start_barrier(item), []
        if item.culprit == self.rank:
            inputs = with_mistake(item, inputs, arguments)
        if item.strided:
            inputs = [strided(one) for one in inputs]
        group = "grouped_" if item.tensors > 1 else ""
        function = getattr(hvd, f"{group}{item.kind}_async{'_' if item.in_place else ''}")
        return function(inputs if group else inputs[0], **arguments), inputs

    def start_barrier(self, item: Item) -> Any:
        """hvd.barrier() without waiting. In several sets at once, blocking barriers could deadlock."""
        members = self.sets[tuple(item.members)].process_set_id
        return enqueue([Op(kind=Kind.BARRIER, name=item.name, process_set=members)], None, lambda _: [])

    def finish(self, item: Item, repeat: int, handle: Any, inputs: list[Array]) -> None:
        """Waits for the result and compares it."""
        what = f"{item}, repeat {repeat}"
        error = plan.error_of(item)
        try:
            results = handle.wait() if item.kind == "barrier" else hvd.synchronize(handle)
        except (distrun.DistrunError, ValueError) as raised:
            if not error or not isinstance(raised, EXCEPTIONS[error]):
                raise Wrong(f"{what}: {raised!r}") from raised
            return
        if error:
            raise Wrong(f"{what}: no {error}")
        if item.kind == "alltoall" and not item.even_splits:
            results, received = results
            me = item.members.index(self.rank)
            rows = [plan.splits_of(item, sender, repeat)[me] for sender in item.members]
            if received.tolist() != rows:
                raise Wrong(f"{what}: received {received.tolist()} rows instead of {rows}")
        outputs = results if item.tensors > 1 or item.kind == "barrier" else [results]
        if item.in_place:
            outputs = inputs
        self.compare(item, repeat, outputs, what)

    def compare(self, item: Item, repeat: int, outputs: list[Array], what: str) -> None:
        """Compares the outputs with NumPy's."""
        wanted = plan.expected(self.program, item, self.rank, repeat)
        if self.spoil and outputs and outputs[0].size > 0:
            self.spoil = False
            outputs = [outputs[0].copy(), *outputs[1:]]
            outputs[0].flat[0] = not outputs[0].flat[0]
        for output, right in zip(outputs, wanted, strict=True):
            same = output.shape == right.shape and output.dtype == right.dtype
            if same and item.kind not in ("allreduce", "reducescatter"):
                same = output.tobytes() == right.tobytes()
            elif same and plan.is_exact(item):
                wide = np.float64 if item.special else right.dtype
                same = np.array_equal(output.astype(wide), right.astype(wide), equal_nan=item.special)
            elif same:
                # The tolerance is for sums of a few values. Narrow types are rounded at each step.
                tolerance = (4 if right.dtype.itemsize == 2 else 64) * plan.epsilon(right.dtype)
                wide_output, wide_right = output.astype(np.float64), right.astype(np.float64)
                same = np.allclose(wide_output, wide_right, rtol=tolerance, atol=tolerance, equal_nan=item.special)
            if not same:
                raise Wrong(f"{what}: {output!r} instead of {right!r}")
        # MPI does not define which NaN is the result of two.
        everybodys = item.kind in ("allreduce", "allgather", "broadcast") and not item.joined
        if everybodys and not (item.special and distrun.mpi_enabled()):
            data = b"".join(np.ascontiguousarray(one).tobytes() for one in outputs)
            self.digests[(item.number, repeat)] = crc32(data)

    def work(self, items: list[Item], rng: random.Random) -> None:
        """The work of one thread. It submits all its items in random order, and then again those with more repeats."""
        try:
            for repeat in range(max((item.repeats for item in items), default=0)):
                now = [item for item in items if repeat < item.repeats]
                rng.shuffle(now)
                flying = [(item, *self.start(item, repeat)) for item in now]
                rng.shuffle(flying)
                for item, handle, inputs in flying:
                    self.finish(item, repeat, handle, inputs)
        except BaseException as raised:
            self.failure = raised

    def run_items(self) -> None:
        """Runs all items that have this rank as a member, on the program's number of threads."""
        rng = random.Random(self.program.seed * 31 + self.rank)
        mine = [item for item in self.program.items if self.rank in item.members]
        shares: list[list[Item]] = [[] for _ in range(self.program.threads)]
        for item in mine:
            rng.choice(shares).append(item)
        threads = [
            threading.Thread(target=self.work, args=(share, random.Random(rng.random()))) for share in shares[1:]
        ]
        for thread in threads:
            thread.start()
        self.work(shares[0], random.Random(rng.random()))
        for thread in threads:
            thread.join()
        if self.failure is not None:
            raise self.failure

    def run_tail(self) -> None:
        """Runs the tail, for which some ranks have no data."""
        if not self.program.tail:
            return
        for item in self.program.tail[: self.program.data[self.rank]]:
            self.finish(item, 0, *self.start(item, 0))
        self.last = hvd.join()
        if self.program.data[self.last] != max(self.program.data):
            raise Wrong(f"rank {self.last} is said to have joined last of ranks with {self.program.data}")

    def same_bits(self) -> None:
        """Checks that results that must be equal on all members of a set have the same bits."""
        keys = [(item.number, repeat) for item in self.program.items for repeat in range(item.repeats)]
        members = {item.number: item.members for item in self.program.items}
        mine = np.array([[self.last, *(self.digests.get(key, -1) for key in keys)]], np.int64)
        everybody = hvd.allgather(mine, name="digests")
        if len(set(everybody[:, 0])) > 1:
            raise Wrong(f"ranks have heard of different ones that joined last: {everybody[:, 0]}")
        for column, key in enumerate(keys, 1):
            digests = {int(everybody[rank, column]) for rank in members[key[0]]}
            if len(digests) > 1:
                raise Wrong(f"the results of item {key[0]}, repeat {key[1]}, differ between ranks")

    def run(self) -> None:
        """Runs the whole program."""
        added = [hvd.add_process_set(members) for members in self.program.sets[1:]]
        for made in added:
            self.sets[tuple(made.ranks)] = made
        self.run_items()
        self.run_tail()
        self.same_bits()
        for made in added:
            hvd.remove_process_set(made)


def seeds(text: str) -> Iterable[int]:
    """Parses 1-2000, or a single seed."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def insist(ranks: int | None, mpi: str | None) -> None:
    """Checks that all ranks are here and that MPI moves their tensors. Ranks that are each a world of one would pass
    too."""
    if ranks not in (None, distrun.size()):
        raise SystemExit(f"this is a world of {distrun.size()}, not of {ranks}: distrun has not seen who started it")
    if mpi is None:
        return
    if not distrun.mpi_enabled():
        raise SystemExit(f"MPI does not move the tensors: {distrun.query('why')}")
    text, length = ctypes.create_string_buffer(8192), ctypes.c_int()
    ctypes.CDLL(None).MPI_Get_library_version(text, ctypes.byref(length))
    if not text.value.decode().startswith(mpi):
        raise SystemExit(f"this MPI is {text.value.decode()}, not {mpi}: look at LD_LIBRARY_PATH")


def main() -> None:
    """Runs the seeds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=seeds, default=range(1, 101))
    parser.add_argument("--spoil", action="store_true", help="change one result: the run must fail")
    parser.add_argument("--mpi-first", action="store_true", help="the program initialises MPI, before distrun does")
    parser.add_argument("--ranks", type=int, help="how many there must be")
    parser.add_argument("--mpi", metavar="VERSION", help="MPI must move the tensors, and say VERSION... of itself")
    arguments = parser.parse_args()
    if arguments.mpi_first:
        importlib.import_module("mpi4py.MPI")
    wanted = arguments.seeds
    distrun.init()
    size = distrun.size()
    insist(arguments.ranks, arguments.mpi)
    for seed in wanted:
        try:
            Runner(plan.make_program(seed, size), arguments.spoil and distrun.rank() == size - 1).run()
        except BaseException:
            print(f"seed {seed} fails on rank {distrun.rank()} of {size}; again with --seeds {seed}", flush=True)
            raise
    distrun.shutdown()
    print(f"all {len(list(wanted))} programs passed", flush=True)


if __name__ == "__main__":
    main()
