"""The operations under Horovod's names, for the tensors of any front end.

A front end has an object of Operations, whose methods take tensors and a Request. `public` makes the functions that
programs call: their arguments are the tensors and those of one of the functions below whose names end in `_options`, or
of a front end's own, where Horovod has another order there.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar

from distrun import _collectives
from distrun._abi import Kind
from distrun._collectives import EXACT, Call, Collectives, reduction, split_rows
from distrun._compression import Compressor, NoneCompressor
from distrun._operations import Handle, checked
from distrun.process_sets import ProcessSet, global_process_set

G = TypeVar("G")  # what a program may pass where it gets a new tensor
T = TypeVar("T")
X = TypeVar("X")
R = TypeVar("R")
P = ParamSpec("P")

NAMES = [
    "allgather", "allgather_async", "allreduce", "allreduce_", "allreduce_async", "allreduce_async_", "alltoall",
    "alltoall_async", "barrier", "broadcast", "broadcast_", "broadcast_async", "broadcast_async_", "grouped_allgather",
    "grouped_allgather_async", "grouped_allreduce", "grouped_allreduce_", "grouped_allreduce_async",
    "grouped_allreduce_async_", "grouped_reducescatter", "grouped_reducescatter_async", "join", "poll",
    "reducescatter", "reducescatter_async", "synchronize",
]  # fmt: skip


_REDUCED = Kind.ALLREDUCE, Kind.REDUCESCATTER


class Request(NamedTuple):
    """The arguments of one call beside its tensors, as the program gave them."""

    name: str | None
    process_set: ProcessSet
    op: int | None = None
    average: bool | None = None
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = 0
    splits: Any = None
    compression: type[Compressor] = NoneCompressor
    gradient: str = EXACT

    def call(self, kind: Kind, group: int | None = None, *, single: bool = True) -> Call:
        """Checked and named. group: the number of tensors that run all or none; None for one tensor. single: the handle
        of one tensor gives that, not a list."""
        how = reduction(self.op, self.prescale, self.postscale, self.average) if kind in _REDUCED else {}
        if group is None:
            return _collectives.call(kind, self.name, self.process_set, single=single, root=self.root, **how)
        return _collectives.grouped_call(kind, self.name, self.process_set, group, root=self.root, **how)


def reduction_options(
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Request:
    """Of an allreduce."""
    return Request(name, process_set, op, average, prescale_factor, postscale_factor)


def compressed_reduction_options(
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = NoneCompressor,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Request:
    """Of an allreduce that returns its output."""
    factors = prescale_factor, postscale_factor
    return Request(name, process_set, op, average, *factors, compression=compression)


def share_options(
    name: str | None = None,
    op: int | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Request:
    """Of a reducescatter."""
    return Request(name, process_set, op, None, prescale_factor, postscale_factor)


def compressed_share_options(
    name: str | None = None,
    compression: type[Compressor] = NoneCompressor,
    op: int | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Request:
    """Of a reducescatter that returns its output."""
    return Request(name, process_set, op, None, prescale_factor, postscale_factor, compression=compression)


def name_options(name: str | None = None, process_set: ProcessSet = global_process_set) -> Request:
    """Of an allgather."""
    return Request(name, process_set)


def gathered_options(
    name: str | None = None, process_set: ProcessSet = global_process_set, gradient: str = EXACT
) -> Request:
    """Of an allgather that has a gradient."""
    return Request(name, process_set, gradient=gradient)


def root_options(root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set) -> Request:
    """Of a broadcast."""
    return Request(name, process_set, root=root_rank)


def sent_options(
    root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set, gradient: str = EXACT
) -> Request:
    """Of a broadcast that has a gradient."""
    return Request(name, process_set, root=root_rank, gradient=gradient)


def shared_options(
    name: str | None = None,
    compression: type[Compressor] = NoneCompressor,
    op: int | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    gradient: str = EXACT,
) -> Request:
    """Of a reducescatter that has a gradient."""
    factors = prescale_factor, postscale_factor
    return Request(name, process_set, op, None, *factors, compression=compression, gradient=gradient)


def split_options(splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set) -> Request:
    """Of an alltoall."""
    return Request(name, process_set, splits=splits)


class Operations(Generic[G, T]):
    """Every operation on the tensors of one front end.

    Forms with _async start it and return a Handle, whose wait() gives the output; the others block. Forms that end in
    an underscore overwrite the tensors. The tensors of a grouped form run all or none. Every one raises ValueError for
    tensors that cannot travel, TypeError or ValueError for arguments, NotInitialized before init(), and the blocking
    ones and wait() raise DistrunError for what the ranks find out together.

    module: of the functions that `public` makes. noun: what their docstrings call a tensor. given, tensor: G and T, as
    their signatures show them.
    """

    def __init__(self, collectives: Collectives[T], module: str, *, noun: str, given: str, tensor: str) -> None:
        self.collectives = collectives
        self.module = module
        self.noun = noun
        self.shown = {"G": given, "T": tensor}

    def begin(
        self, kind: Kind, tensors: list[T], ask: Request, *, grouped: bool = False, in_place: bool = False
    ) -> Handle[Any]:
        """Starts it."""
        what = ask.call(kind, len(tensors) if grouped else None)
        return self.collectives.start(what, tensors, ask.process_set, in_place=in_place)

    def run(
        self, kind: Kind, tensors: list[T], ask: Request, *, grouped: bool = False, in_place: bool = False
    ) -> list[T]:
        """Blocks until the outputs are there."""
        what = ask.call(kind, len(tensors) if grouped else None, single=False)
        outputs: list[T] = self.collectives.start(what, tensors, ask.process_set, in_place=in_place).wait()
        return outputs

    def _given(self, values: Sequence[G]) -> list[T]:
        given = self.collectives.adapter.given
        return [given(value) for value in values]

    def _compressed(self, kind: Kind, values: Sequence[G], ask: Request, *, grouped: bool = False) -> list[T]:
        if ask.compression is NoneCompressor:
            return self.run(kind, self._given(values), ask, grouped=grouped)
        compress, decompress = ask.compression.compress, ask.compression.decompress
        small = [compress(tensor) for tensor in self._given(values)]
        outputs = self.run(kind, [tensor for tensor, _ in small], ask, grouped=grouped)
        return [decompress(output, context) for output, (_, context) in zip(outputs, small, strict=True)]

    def allreduce_async(self, tensor: G, ask: Request) -> Handle[T]:
        """Starts a reduction over the ranks into a new tensor; synchronize() gives it."""
        return self.begin(Kind.ALLREDUCE, self._given([tensor]), ask)

    def allreduce_async_(self, tensor: T, ask: Request) -> Handle[T]:
        """Like allreduce_async, but overwrites the tensor."""
        return self.begin(Kind.ALLREDUCE, [tensor], ask, in_place=True)

    def allreduce(self, tensor: G, ask: Request) -> T:
        """The reduction (default: the average) of the tensors of all ranks, as a new tensor."""
        return self._compressed(Kind.ALLREDUCE, [tensor], ask)[0]

    def allreduce_(self, tensor: T, ask: Request) -> T:
        """Like allreduce, but overwrites the tensor."""
        return self.run(Kind.ALLREDUCE, [tensor], ask, in_place=True)[0]

    def grouped_allreduce_async(self, tensors: Sequence[G], ask: Request) -> Handle[list[T]]:
        """Starts the reduction of several tensors, which run all or none."""
        return self.begin(Kind.ALLREDUCE, self._given(tensors), ask, grouped=True)

    def grouped_allreduce_async_(self, tensors: Sequence[T], ask: Request) -> Handle[list[T]]:
        """Like grouped_allreduce_async, but overwrites the tensors."""
        return self.begin(Kind.ALLREDUCE, list(tensors), ask, grouped=True, in_place=True)

    def grouped_allreduce(self, tensors: Sequence[G], ask: Request) -> list[T]:
        """The reductions of several tensors, which run all or none."""
        return self._compressed(Kind.ALLREDUCE, tensors, ask, grouped=True)

    def grouped_allreduce_(self, tensors: Sequence[T], ask: Request) -> list[T]:
        """Like grouped_allreduce, but overwrites the tensors."""
        return self.run(Kind.ALLREDUCE, list(tensors), ask, grouped=True, in_place=True)

    def allgather_async(self, tensor: G, ask: Request) -> Handle[T]:
        """Starts an allgather; synchronize() gives the new tensor."""
        return self.begin(Kind.ALLGATHER, self._given([tensor]), ask)

    def allgather(self, tensor: G, ask: Request) -> T:
        """The tensors of all ranks one after the other along dimension 0, whose size may differ."""
        return self.run(Kind.ALLGATHER, self._given([tensor]), ask)[0]

    def grouped_allgather_async(self, tensors: Sequence[G], ask: Request) -> Handle[list[T]]:
        """Starts the allgather of several tensors, which run all or none."""
        return self.begin(Kind.ALLGATHER, self._given(tensors), ask, grouped=True)

    def grouped_allgather(self, tensors: Sequence[G], ask: Request) -> list[T]:
        """The allgathers of several tensors, which run all or none."""
        return self.run(Kind.ALLGATHER, self._given(tensors), ask, grouped=True)

    def broadcast_async(self, tensor: G, ask: Request) -> Handle[T]:
        """Starts a broadcast into a new tensor."""
        return self.begin(Kind.BROADCAST, self._given([tensor]), ask)

    def broadcast_async_(self, tensor: T, ask: Request) -> Handle[T]:
        """Like broadcast_async, but overwrites the tensor."""
        return self.begin(Kind.BROADCAST, [tensor], ask, in_place=True)

    def broadcast(self, tensor: G, ask: Request) -> T:
        """The tensor of world rank `root_rank`, as a new tensor of the same shape and dtype on every member."""
        return self.run(Kind.BROADCAST, self._given([tensor]), ask)[0]

    def broadcast_(self, tensor: T, ask: Request) -> T:
        """Like broadcast, but overwrites the tensor."""
        return self.run(Kind.BROADCAST, [tensor], ask, in_place=True)[0]

    def alltoall_async(self, tensor: G, ask: Request) -> Handle[Any]:
        """Starts an alltoall; synchronize() gives what alltoall returns."""
        rows = split_rows(ask.splits)
        return self.collectives.alltoall(self.collectives.adapter.given(tensor), rows, ask.call(Kind.ALLTOALL))

    def alltoall(self, tensor: G, ask: Request) -> Any:
        """Sends a block of rows to each rank and gives the blocks of all ranks, in rank order.

        splits: rows for each rank; None: equal shares of dimension 0. Rows beyond their sum are not sent. With splits
        the result is the pair of the output and the rows received from each rank (int32, or int64 from 2^31 rows on).
        """
        return self.alltoall_async(tensor, ask).wait()

    def reducescatter_async(self, tensor: G, ask: Request) -> Handle[T]:
        """Starts a reducescatter; synchronize() gives this rank's share as a new tensor."""
        return self.begin(Kind.REDUCESCATTER, self._given([tensor]), ask)

    def reducescatter(self, tensor: G, ask: Request) -> T:
        """Reduces the tensors of all ranks (default: the average) and gives each rank its share of the rows.

        Shares are equal, and one row longer on the first ranks where the rows cannot be shared equally.
        """
        return self._compressed(Kind.REDUCESCATTER, [tensor], ask)[0]

    def grouped_reducescatter_async(self, tensors: Sequence[G], ask: Request) -> Handle[list[T]]:
        """Starts the reducescatter of several tensors, which run all or none."""
        return self.begin(Kind.REDUCESCATTER, self._given(tensors), ask, grouped=True)

    def grouped_reducescatter(self, tensors: Sequence[G], ask: Request) -> list[T]:
        """The reducescatters of several tensors, which run all or none."""
        return self._compressed(Kind.REDUCESCATTER, tensors, ask, grouped=True)


def public(method: Callable[[X, Request], R], options: Callable[P, Request]) -> Callable[Concatenate[X, P], R]:
    """The function for programs: `method` of an object of Operations, with the arguments of `options` after the
    tensors."""
    operations: Operations[Any, Any] = method.__self__  # type: ignore[attr-defined]
    found = inspect.signature(method)
    first = next(iter(found.parameters.values()))

    def shown(annotation: str) -> str:
        return re.sub(r"\b[GT]\b", lambda word: operations.shown[word[0]], annotation)

    # Under the method's name, which Python says where a program passes other arguments.
    plain: Any = options
    read: Any = types.FunctionType(plain.__code__, plain.__globals__, method.__name__, plain.__defaults__)
    read.__qualname__ = method.__name__

    def on_one(tensor: X, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(tensor, read(*args, **kwargs))

    def on_several(tensors: X, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(tensors, read(*args, **kwargs))

    function: Any = on_several if first.name == "tensors" else on_one
    signature = found.replace(
        parameters=[first.replace(annotation=shown(first.annotation)), *inspect.signature(options).parameters.values()],
        return_annotation=shown(found.return_annotation),
    )
    function.__signature__ = signature
    function.__annotations__ = {one.name: one.annotation for one in signature.parameters.values()}
    function.__annotations__["return"] = signature.return_annotation
    function.__doc__ = (method.__doc__ or "").replace("tensor", operations.noun)
    function.__name__ = function.__qualname__ = method.__name__
    function.__module__ = operations.module
    typed: Callable[Concatenate[X, P], R] = function
    return typed


def join(device: int = -1, process_set: ProcessSet = global_process_set) -> int:
    """For a rank that has run out of data: takes part in what the others do until they have too.

    It contributes the neutral element to reductions and no rows to allgathers, and drops what they give. An average
    still divides by the size of the set. Returns the rank that joined last. `device` is Horovod's and has no effect.
    """
    del device
    return _collectives.join(process_set)


def poll(handle: Handle[Any]) -> bool:
    """True once the operation is complete: synchronize() will not block."""
    return checked(handle).poll()


def synchronize(handle: Handle[Any]) -> Any:
    """Waits for the operation and gives its output, or raises its exception."""
    return checked(handle).wait()
