"""The operations under Horovod's names, for the tensors of any front end.

A front end has one Operations object, whose methods take tensors and a Request. `public` makes the functions that
programs call. Their arguments are the tensors and the arguments of one of the functions below that end in `_options`.
A front end has its own such function where Horovod's order of arguments differs.
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

G = TypeVar("G")  # an input of an operation that returns a new tensor
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
    """The arguments of one call except its tensors, as the program passed them."""

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
        """Checks the arguments and returns the Call.

        group: the number of tensors that run all or none; None for one tensor. single: the handle of a call with one
        tensor returns that tensor instead of a list.
        """
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
    """The arguments of an allreduce."""
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
    """The arguments of a blocking allreduce, which can compress."""
    factors = prescale_factor, postscale_factor
    return Request(name, process_set, op, average, *factors, compression=compression)


def share_options(
    name: str | None = None,
    op: int | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Request:
    """The arguments of a reducescatter."""
    return Request(name, process_set, op, None, prescale_factor, postscale_factor)


def compressed_share_options(
    name: str | None = None,
    compression: type[Compressor] = NoneCompressor,
    op: int | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Request:
    """The arguments of a blocking reducescatter, which can compress."""
    return Request(name, process_set, op, None, prescale_factor, postscale_factor, compression=compression)


def name_options(name: str | None = None, process_set: ProcessSet = global_process_set) -> Request:
    """The arguments of an allgather."""
    return Request(name, process_set)


def gathered_options(
    name: str | None = None, process_set: ProcessSet = global_process_set, gradient: str = EXACT
) -> Request:
    """The arguments of an allgather with a gradient."""
    return Request(name, process_set, gradient=gradient)


def root_options(root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set) -> Request:
    """The arguments of a broadcast."""
    return Request(name, process_set, root=root_rank)


def sent_options(
    root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set, gradient: str = EXACT
) -> Request:
    """The arguments of a broadcast with a gradient."""
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
    """The arguments of a reducescatter with a gradient."""
    factors = prescale_factor, postscale_factor
    return Request(name, process_set, op, None, *factors, compression=compression, gradient=gradient)


def split_options(splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set) -> Request:
    """The arguments of an alltoall."""
    return Request(name, process_set, splits=splits)


class Operations(Generic[G, T]):
    """Every operation on the tensors of one front end.

    Forms with _async start the operation and return a Handle; its wait() returns the output. The others block. Forms
    that end in an underscore overwrite the tensors. The tensors of a grouped form run all or none.

    All raise ValueError for tensors that distrun cannot send, TypeError or ValueError for wrong arguments, and
    NotInitialized before init(). The blocking forms and wait() raise DistrunError for errors that the ranks find
    together, for instance different shapes.

    module: the module of the functions that `public` makes. noun: the word for a tensor in their docstrings.
    given, tensor: the types G and T in their signatures.
    """

    def __init__(self, collectives: Collectives[T], module: str, *, noun: str, given: str, tensor: str) -> None:
        self.collectives = collectives
        self.module = module
        self.noun = noun
        self.shown = {"G": given, "T": tensor}

    def begin(
        self, kind: Kind, tensors: list[T], ask: Request, *, grouped: bool = False, in_place: bool = False
    ) -> Handle[Any]:
        """Starts the operation and returns its handle."""
        what = ask.call(kind, len(tensors) if grouped else None)
        return self.collectives.start(what, tensors, ask.process_set, in_place=in_place)

    def run(
        self, kind: Kind, tensors: list[T], ask: Request, *, grouped: bool = False, in_place: bool = False
    ) -> list[T]:
        """Runs the operation, blocks until it is complete, and returns the outputs."""
        what = ask.call(kind, len(tensors) if grouped else None, single=False)
        outputs: list[T] = self.collectives.start(what, tensors, ask.process_set, in_place=in_place).wait()
        return outputs

    def _given(self, kind: Kind, values: Sequence[G], ask: Request) -> list[T]:
        given = self.collectives.adapter.given
        tensors: list[T] = []
        for value in values:
            try:
                tensors.append(given(value))
            except (ValueError, TypeError) as error:
                place = f"_{len(tensors) + 1}of{len(values)}" if len(values) > 1 else ""
                if not place and ask.name is None:
                    raise
                name = f"{kind.name.lower()}.{ask.name or 'noname'}{place}"
                raise _collectives.about(error, name) from None
        return tensors

    def _compressed(self, kind: Kind, values: Sequence[G], ask: Request, *, grouped: bool = False) -> list[T]:
        if ask.compression is NoneCompressor:
            return self.run(kind, self._given(kind, values, ask), ask, grouped=grouped)
        compress, decompress = ask.compression.compress, ask.compression.decompress
        small = [compress(tensor) for tensor in self._given(kind, values, ask)]
        outputs = self.run(kind, [tensor for tensor, _ in small], ask, grouped=grouped)
        return [decompress(output, context) for output, (_, context) in zip(outputs, small, strict=True)]

    def allreduce_async(self, tensor: G, ask: Request) -> Handle[T]:
        """Starts a reduction of one tensor over the ranks; synchronize() returns the result as a new tensor."""
        return self.begin(Kind.ALLREDUCE, self._given(Kind.ALLREDUCE, [tensor], ask), ask)

    def allreduce_async_(self, tensor: T, ask: Request) -> Handle[T]:
        """Like allreduce_async, but overwrites the tensor."""
        return self.begin(Kind.ALLREDUCE, [tensor], ask, in_place=True)

    def allreduce(self, tensor: G, ask: Request) -> T:
        """Reduces the tensors of all ranks (default: their average), and returns the result as a new tensor.

        The tensors have the same shape and dtype on every rank.
        """
        return self._compressed(Kind.ALLREDUCE, [tensor], ask)[0]

    def allreduce_(self, tensor: T, ask: Request) -> T:
        """Like allreduce, but overwrites the tensor."""
        return self.run(Kind.ALLREDUCE, [tensor], ask, in_place=True)[0]

    def grouped_allreduce_async(self, tensors: Sequence[G], ask: Request) -> Handle[list[T]]:
        """Starts the reduction of several tensors, which run all or none."""
        return self.begin(Kind.ALLREDUCE, self._given(Kind.ALLREDUCE, tensors, ask), ask, grouped=True)

    def grouped_allreduce_async_(self, tensors: Sequence[T], ask: Request) -> Handle[list[T]]:
        """Like grouped_allreduce_async, but overwrites the tensors."""
        return self.begin(Kind.ALLREDUCE, list(tensors), ask, grouped=True, in_place=True)

    def grouped_allreduce(self, tensors: Sequence[G], ask: Request) -> list[T]:
        """Reduces several tensors, which run all or none. Returns new tensors."""
        return self._compressed(Kind.ALLREDUCE, tensors, ask, grouped=True)

    def grouped_allreduce_(self, tensors: Sequence[T], ask: Request) -> list[T]:
        """Like grouped_allreduce, but overwrites the tensors."""
        return self.run(Kind.ALLREDUCE, list(tensors), ask, grouped=True, in_place=True)

    def allgather_async(self, tensor: G, ask: Request) -> Handle[T]:
        """Starts an allgather; synchronize() returns the new tensor."""
        return self.begin(Kind.ALLGATHER, self._given(Kind.ALLGATHER, [tensor], ask), ask)

    def allgather(self, tensor: G, ask: Request) -> T:
        """Concatenates the tensors of all ranks along dimension 0, in rank order, and returns a new tensor.

        Dimension 0 may differ among the ranks; the dtype and the other dimensions are the same.
        """
        return self.run(Kind.ALLGATHER, self._given(Kind.ALLGATHER, [tensor], ask), ask)[0]

    def grouped_allgather_async(self, tensors: Sequence[G], ask: Request) -> Handle[list[T]]:
        """Starts the allgather of several tensors, which run all or none."""
        return self.begin(Kind.ALLGATHER, self._given(Kind.ALLGATHER, tensors, ask), ask, grouped=True)

    def grouped_allgather(self, tensors: Sequence[G], ask: Request) -> list[T]:
        """Concatenates each of several tensors as allgather does. The tensors run all or none."""
        return self.run(Kind.ALLGATHER, self._given(Kind.ALLGATHER, tensors, ask), ask, grouped=True)

    def broadcast_async(self, tensor: G, ask: Request) -> Handle[T]:
        """Starts a broadcast; synchronize() returns a new tensor."""
        return self.begin(Kind.BROADCAST, self._given(Kind.BROADCAST, [tensor], ask), ask)

    def broadcast_async_(self, tensor: T, ask: Request) -> Handle[T]:
        """Like broadcast_async, but overwrites the tensor."""
        return self.begin(Kind.BROADCAST, [tensor], ask, in_place=True)

    def broadcast(self, tensor: G, ask: Request) -> T:
        """Returns the tensor of world rank `root_rank`, as a new tensor of the same shape and dtype on every member."""
        return self.run(Kind.BROADCAST, self._given(Kind.BROADCAST, [tensor], ask), ask)[0]

    def broadcast_(self, tensor: T, ask: Request) -> T:
        """Like broadcast, but overwrites the tensor."""
        return self.run(Kind.BROADCAST, [tensor], ask, in_place=True)[0]

    def alltoall_async(self, tensor: G, ask: Request) -> Handle[Any]:
        """Starts an alltoall; synchronize() returns the result of alltoall."""
        rows = split_rows(ask.splits)
        [given] = self._given(Kind.ALLTOALL, [tensor], ask)
        return self.collectives.alltoall(given, rows, ask.call(Kind.ALLTOALL))

    def alltoall(self, tensor: G, ask: Request) -> Any:
        """Sends a block of rows to each rank, and returns the blocks from all ranks, in rank order.

        splits: the number of rows for each rank; None: equal shares of dimension 0. Rows beyond their sum are not sent.
        With splits the result is a pair: the output, and the rows received from each rank (int32, or int64 from 2^31
        rows on).
        """
        return self.alltoall_async(tensor, ask).wait()

    def reducescatter_async(self, tensor: G, ask: Request) -> Handle[T]:
        """Starts a reducescatter; synchronize() returns this rank's share as a new tensor."""
        return self.begin(Kind.REDUCESCATTER, self._given(Kind.REDUCESCATTER, [tensor], ask), ask)

    def reducescatter(self, tensor: G, ask: Request) -> T:
        """Reduces the tensors of all ranks (default: their average), and returns this rank's share of the rows.

        The shares are equal. If the rows cannot be divided equally, each of the first ranks gets one row more.
        """
        return self._compressed(Kind.REDUCESCATTER, [tensor], ask)[0]

    def grouped_reducescatter_async(self, tensors: Sequence[G], ask: Request) -> Handle[list[T]]:
        """Starts the reducescatter of several tensors, which run all or none."""
        return self.begin(Kind.REDUCESCATTER, self._given(Kind.REDUCESCATTER, tensors, ask), ask, grouped=True)

    def grouped_reducescatter(self, tensors: Sequence[G], ask: Request) -> list[T]:
        """Reduces several tensors as reducescatter does, and returns this rank's shares. They run all or none."""
        return self._compressed(Kind.REDUCESCATTER, tensors, ask, grouped=True)


def public(method: Callable[[X, Request], R], options: Callable[P, Request]) -> Callable[Concatenate[X, P], R]:
    """Makes the function for programs: `method` of an Operations object, with the arguments of `options` after the
    tensors."""
    operations: Operations[Any, Any] = method.__self__  # type: ignore[attr-defined]
    found = inspect.signature(method)
    first = next(iter(found.parameters.values()))

    def shown(annotation: str) -> str:
        return re.sub(r"\b[GT]\b", lambda word: operations.shown[word[0]], annotation)

    # A copy of `options` with the method's name, because Python's errors about wrong arguments show the name.
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
    """Joins: this rank is out of data, and takes part in the others' operations until every member has joined.

    It contributes the neutral element to reductions and no rows to allgathers, and ignores the results. An average
    still divides by the size of the set. Blocks, and returns the world rank that joined last. `device` exists for
    Horovod's programs and has no effect.
    """
    del device
    return _collectives.join(process_set)


def poll(handle: Handle[Any]) -> bool:
    """Returns True once the operation is complete, so that synchronize() will not block."""
    return checked(handle).poll()


def synchronize(handle: Handle[Any]) -> Any:
    """Waits for the operation and returns its output, or raises its exception."""
    return checked(handle).wait()
