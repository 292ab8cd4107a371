"""Names, arguments and memory of the operations, for the tensors of any front end.

A front end passes an Adapter, which handles its tensors. Every operation returns a Handle.
"""

from __future__ import annotations

import operator
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from distrun import _arguments, _operations, _session, errors
from distrun._abi import Kind, ReduceOp
from distrun._operations import Gathered, Handle, Op
from distrun.process_sets import ProcessSet, global_process_set, registered_id

T = TypeVar("T")


class Memory(NamedTuple):
    """A tensor's memory, dtype, shape, device and stream, in the C API's terms."""

    pointer: int
    dtype: int
    shape: tuple[int, ...]
    device_type: int = 0
    device_index: int = 0
    stream: int = 0


class Adapter(Protocol[T]):
    """How a front end's tensors are inspected, created and copied."""

    def given(self, value: Any) -> T:
        """Converts a caller's value to a tensor, for an operation with a new output tensor."""
        ...

    def describe(self, tensor: T) -> Memory:
        """Returns the memory of a contiguous tensor. ValueError for a dtype or device that distrun cannot send."""
        ...

    def hold(self, tensor: T) -> object:
        """Returns an object that keeps the tensor's memory alive and in place."""
        ...

    def pointer(self, tensor: T) -> int:
        """Returns the tensor's address at this moment."""
        ...

    def layout(self, tensor: T) -> object:
        """Returns pointer, shape and strides. If they are unchanged, a result can be copied back to the tensor."""
        ...

    def contiguous(self, tensor: T) -> T:
        """Returns `tensor` itself if it is contiguous, else a contiguous copy."""
        ...

    def writable(self, tensor: T) -> None:
        """Raises ValueError if the tensor's memory is read-only."""
        ...

    def empty_like(self, tensor: T) -> T:
        """Returns a new contiguous tensor of the same shape, dtype and device."""
        ...

    def copy(self, target: T, source: T) -> None:
        """Copies the elements of `source` to `target`."""
        ...

    def gathered(self, like: T, result: Gathered) -> T:
        """Copies the result of an allgather or alltoall to a new tensor."""
        ...

    def check_share(self, tensor: T, members: int) -> None:
        """Raises ValueError, on all ranks alike, if a share of the rows (one of `members`) cannot be allocated."""
        ...

    def empty_rows(self, like: T, rows: int) -> T:
        """Returns a new contiguous tensor with `rows` rows. `like` has at least one dimension."""
        ...

    def integers(self, values: Sequence[int]) -> T:
        """Returns a new int32 tensor, or an int64 one if a value needs it."""
        ...


def reduce_op(op: int | None, average: bool | None = None) -> ReduceOp:
    """Returns the reduction from Horovod's arguments `op` and `average` (the older one). The default is Average."""
    if average is not None:
        if not isinstance(average, bool):
            raise TypeError(
                f"average must be True or False, not {average!r}. Name other reductions by keyword: op=hvd.Max."
            )
        if op is not None:
            raise ValueError("pass either op or average, not both. average is the older name for op=Average or op=Sum.")
        warnings.warn(
            "average is deprecated; use op=hvd.Average or op=hvd.Sum.", DeprecationWarning, stacklevel=_program_level()
        )
        return ReduceOp.AVERAGE if average else ReduceOp.SUM
    if op is None:
        return ReduceOp.AVERAGE
    found = ReduceOp._value2member_map_.get(op)
    if not isinstance(found, ReduceOp):
        raise ValueError(f"op must be Sum, Average, Min, Max or Product, not {op!r}.")
    if found is ReduceOp.ADASUM:
        raise NotImplementedError("Adasum is not part of distrun. Use op=hvd.Average, and warm up the learning rate.")
    return found


def _program_level() -> int:
    """Returns the `stacklevel`, for the function that calls this, of the program's line that called this package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == __package__:
        frame, level = frame.f_back, level + 1
    return level


def reduction(op: int | None, prescale: float, postscale: float, average: bool | None = None) -> dict[str, Any]:
    """Returns the arguments of `call` that describe the reduction."""
    return {
        "reduce": reduce_op(op, average),
        "prescale": _arguments.number("prescale_factor", prescale),
        "postscale": _arguments.number("postscale_factor", postscale),
    }


EXACT, HOROVOD = "exact", "horovod"


def gradient_factor(gradient: str, kind: Kind, process_set: ProcessSet) -> float:
    """Returns the factor for the gradient of an allgather, broadcast or reducescatter.

    "exact" is the gradient of the sum of all ranks' losses, so the factor is 1. Horovod averages the gradients of
    allgather and broadcast over the set, and multiplies the gradient of reducescatter by the set's size.
    """
    if gradient == EXACT:
        return 1.0
    if gradient != HOROVOD:
        raise ValueError(f"gradient must be 'exact' or 'horovod', not {gradient!r}.")
    members = process_set.size() or 1
    return float(members) if kind == Kind.REDUCESCATTER else 1.0 / members


# The largest group. Keep equal to kMaxGroup in runtime/engine/run/tensor_table.cc, whose error has no name and no cure.
MAX_GROUP = 4096


def check_group(what: str, count: int) -> None:
    """Raises InvalidArgument if a group is too large. It is not split, because its parts would not run all or none."""
    if count > MAX_GROUP:
        raise errors.InvalidArgument(
            f"{what} has {count} tensors, but a group can have at most {MAX_GROUP}. Make several groups."
        )


# Enums are slow. In small operations, hashing, comparing or looking up a member costs a noticeable time.
_ALLGATHER, _REDUCESCATTER = Kind.ALLGATHER, Kind.REDUCESCATTER
_WORDS = {kind: kind.name.lower() for kind in Kind}  # a list indexed by a Kind breaks torch.compile's tracing


class Call(NamedTuple):
    """One call of a front end: the names of its tensors, and the arguments that all its tensors share.

    single: the handle returns one tensor instead of a list. group: the C API's number; with -1 each tensor runs alone.
    """

    kind: Kind
    names: Sequence[str]
    process_set: int
    single: bool = True
    group: int = -1
    reduce: ReduceOp = ReduceOp.SUM
    root: int = 0
    prescale: float = 1.0
    postscale: float = 1.0

    def op(self, index: int, memory: Memory, output: int, splits: tuple[int, ...] = ()) -> Op:
        """Returns the C API's operation for the tensor at `index`."""
        kind, names, process_set, _, group, reduce, root, prescale, postscale = self
        pointer, dtype, shape, device_type, device_index, stream = memory
        return Op(  # by position: keyword arguments would take most of this function's time
            kind, names[index], dtype, shape, pointer, output, reduce, root, prescale, postscale, process_set, group,
            device_type, device_index, stream, splits,
        )  # fmt: skip


def call(
    kind: Kind,
    name: str | None,
    process_set: ProcessSet,
    *,
    single: bool = True,
    reduce: ReduceOp = ReduceOp.SUM,
    root: int = 0,
    prescale: float = 1.0,
    postscale: float = 1.0,
) -> Call:
    """Returns a call with one tensor. A counter per operation and process set names it if the caller does not."""
    members = registered_id(process_set)
    operation = _WORDS[kind]
    if _arguments.name(name) is None:
        name = f"noname.{_session.current().number(operation, members)}"
    return Call(kind, (f"{operation}.{name}",), members, single, -1, reduce, root, prescale, postscale)


def grouped_call(kind: Kind, name: str | None, process_set: ProcessSet, count: int, **arguments: Any) -> Call:
    """Returns a call with `count` tensors that run all or none. Each name has the tensor's place in the group."""
    members = registered_id(process_set)
    operation = _WORDS[kind]
    check_group(f"the grouped {operation} '{_arguments.name(name) or 'without a name'}'", count)
    if name is None:
        name = f"noname.group{_session.current().number(f'grouped_{operation}', members)}"
    names = [f"{operation}.{name}_{index + 1}of{count}" for index in range(count)]
    return Call(kind, names, members, single=False, group=0, **arguments)


def batch_call(kind: Kind, names: Sequence[str], process_set: ProcessSet) -> Call:
    """Returns a call with several tensors that are submitted together. Each runs when all ranks have submitted it."""
    operation = _WORDS[kind]
    return Call(kind, [f"{operation}.{name}" for name in names], registered_id(process_set), single=False)


def about(error: Exception, tensor: str) -> Exception:
    """Returns the error of an adapter or a front end with the tensor's name, because a call may have many tensors."""
    return _with(error, f"tensor '{tensor}'")


def about_one_of(error: Exception, index: int, count: int) -> Exception:
    """Like about, for tensors of a call that have no names yet."""
    return error if count == 1 else _with(error, f"tensor {index + 1} of {count}")


def _with(error: Exception, subject: str) -> Exception:
    kind = type(error)
    return kind(f"{subject}: {error}") if kind in (ValueError, TypeError) else error


class Collectives(Generic[T]):
    """The operations on one front end's tensors.

    The handle of a call with `single` returns a tensor. The other handles return a list.
    """

    def __init__(self, adapter: Adapter[T]) -> None:
        self.adapter = adapter

    def start(
        self, what: Call, tensors: Sequence[T], process_set: ProcessSet, *, in_place: bool = False
    ) -> Handle[Any]:
        """Starts any operation except alltoall. `in_place` overwrites the tensors (allreduce and broadcast only)."""
        if what.kind is _ALLGATHER:
            return self.allgather(tensors, what)
        if what.kind is _REDUCESCATTER:
            return self.reducescatter(tensors, what, process_set)
        return self.same_size(tensors, what, in_place=in_place)

    def same_size(self, tensors: Sequence[T], what: Call, *, in_place: bool) -> Handle[Any]:
        """Starts an allreduce or broadcast. The output has the input's shape; `in_place` overwrites the tensors.

        The runtime uses a contiguous tensor without a copy. Another tensor is copied, and the copy is reduced in place.
        If `in_place` is set, the result is copied back to the tensor.
        """
        adapter = self.adapter
        ops: list[Op] = []
        keep: list[object] = []
        outputs: list[T] = []
        copies: list[tuple[int, T, T, object]] = []
        works: list[T] = []
        for index, tensor in enumerate(tensors):
            try:
                if in_place:
                    adapter.writable(tensor)
                work = adapter.contiguous(tensor)
                memory = adapter.describe(work)
            except (ValueError, TypeError) as error:
                raise about(error, what.names[index]) from None
            target = adapter.empty_like(work) if work is tensor and not in_place else work
            ops.append(what.op(index, memory, memory.pointer if target is work else adapter.describe(target).pointer))
            keep += (adapter.hold(tensor), work, target)
            outputs.append(tensor if in_place else target)
            if in_place and work is not tensor:
                copies.append((index, tensor, work, adapter.layout(tensor)))
            works.append(work)

        def finish(_handle: Handle[Any]) -> Any:
            self._stayed(works, ops)
            for index, tensor, _, layout in copies:  # check all before writing any: a group is all or none
                if adapter.layout(tensor) != layout:
                    raise _moved(ops[index].name, "got other memory or another shape")
            for _, tensor, work, _ in copies:
                adapter.copy(tensor, work)
            return outputs[0] if what.single else outputs

        return _operations.enqueue(ops, keep, finish)

    def _inputs(self, tensors: Sequence[T], what: Call, members: int | None = None) -> tuple[list[T], list[Memory]]:
        """Returns the tensors, or contiguous copies, and their memory. members: checks that each gets a share."""
        inputs: list[T] = []
        memories: list[Memory] = []
        for tensor, name in zip(tensors, what.names, strict=True):
            try:
                inputs.append(self.adapter.contiguous(tensor))
                memories.append(self.adapter.describe(inputs[-1]))
                if members is not None:
                    self.adapter.check_share(inputs[-1], members)
            except (ValueError, TypeError) as error:
                raise about(error, name) from None
        return inputs, memories

    def allgather(self, tensors: Sequence[T], what: Call) -> Handle[Any]:
        """Concatenates the members' tensors along dimension 0, which may differ among the members."""
        return self._gather(tensors, what, lambda outputs, _: outputs[0] if what.single else outputs)

    def allgather_sizes(self, tensors: Sequence[T], what: Call) -> Handle[tuple[list[T], list[tuple[int, ...]]]]:
        """Like allgather, but returns the outputs and, for each output, dimension 0 of every member's tensor."""
        return self._gather(tensors, what, lambda outputs, sizes: (outputs, sizes))

    def _gather(
        self, tensors: Sequence[T], what: Call, make: Callable[[list[T], list[tuple[int, ...]]], Any]
    ) -> Handle[Any]:
        inputs, memories = self._inputs(tensors, what)
        ops = [what.op(index, memory, 0) for index, memory in enumerate(memories)]

        def finish(handle: Handle[Any]) -> Any:
            self._stayed(inputs, ops)
            results = [handle.gathered(index) for index in range(len(inputs))]
            outputs = [self.adapter.gathered(like, result) for like, result in zip(inputs, results, strict=True)]
            return make(outputs, [result.first_dims for result in results])

        keep = [self.adapter.hold(tensor) for tensor in inputs]
        return _operations.enqueue(ops, keep, finish)

    def alltoall(self, tensor: T, splits: tuple[int, ...] | None, what: Call) -> Handle[Any]:
        """Returns the rows that the members have sent to this rank, in rank order. With splits also the rows per
        member."""
        integers = self.adapter.integers
        return self.exchange(
            tensor, splits, what, lambda output, rows: output if splits is None else (output, integers(rows))
        )

    def alltoall_sizes(
        self, tensor: T, splits: tuple[int, ...] | None, what: Call
    ) -> Handle[tuple[T, tuple[int, ...]]]:
        """Like alltoall, but always returns the output and the number of rows from each member."""
        return self.exchange(tensor, splits, what, lambda output, rows: (output, rows))

    def exchange(
        self, tensor: T, splits: tuple[int, ...] | None, what: Call, make: Callable[[T, tuple[int, ...]], Any]
    ) -> Handle[Any]:
        """Like alltoall, but returns make(output, rows from each member)."""
        [work], [memory] = self._inputs([tensor], what)
        op = what.op(0, memory, 0, splits or ())

        def finish(handle: Handle[Any]) -> Any:
            self._stayed([work], [op])
            result = handle.gathered(0)
            return make(self.adapter.gathered(work, result), result.first_dims)

        return _operations.enqueue([op], [self.adapter.hold(work)], finish)

    def reducescatter(self, tensors: Sequence[T], what: Call, process_set: ProcessSet) -> Handle[Any]:
        """Returns this rank's share of the rows of the reduced tensors."""
        adapter = self.adapter
        members = process_set.size() or 1
        inputs, memories = self._inputs(tensors, what, members)
        outputs: list[T] = []
        ops: list[Op] = []
        for index, (tensor, memory) in enumerate(zip(inputs, memories, strict=True)):
            if memory.shape:
                outputs.append(adapter.empty_rows(tensor, share_of(memory.shape[0], process_set)))
            else:
                outputs.append(adapter.empty_like(tensor))  # the engine refuses a scalar on all ranks together
            ops.append(what.op(index, memory, adapter.describe(outputs[-1]).pointer))
        keep = [adapter.hold(tensor) for tensor in (*inputs, *outputs)]

        def finish(_: Handle[Any]) -> Any:
            self._stayed(inputs, ops)
            return outputs[0] if what.single else outputs

        return _operations.enqueue(ops, keep, finish)

    def _stayed(self, tensors: Sequence[T], ops: Sequence[Op]) -> None:
        """Raises InvalidArgument if a tensor's memory has changed since it was submitted."""
        for tensor, op in zip(tensors, ops, strict=True):
            if self.adapter.pointer(tensor) != op.input:
                raise _moved(op.name, "got other memory")


def _moved(name: str, what: str) -> errors.InvalidArgument:
    return errors.InvalidArgument(
        f"tensor '{name}' {what} (resize_, set_) while it was in flight, so its result is lost. Wait for an "
        "operation before you change its tensor.",
        tensor=name,
    )


def share(rows: int, members: int, position: int) -> int:
    """Returns one member's rows of a reducescatter. The first rows % members members get one row more."""
    return rows // members + (1 if position < rows % members else 0)


def share_of(rows: int, process_set: ProcessSet) -> int:
    """Returns the number of rows that this rank gets from a reducescatter."""
    return share(rows, process_set.size() or 1, process_set.rank() or 0)


def split_rows(splits: object) -> tuple[int, ...] | None:
    """Converts alltoall's `splits` to rows per member: None, or a sequence or one-dimensional array of integers."""
    if splits is None:
        return None
    values = splits.tolist() if hasattr(splits, "tolist") else splits
    try:
        if isinstance(values, list | tuple):
            rows = tuple(operator.index(one) for one in values)
            if all(-1 << 63 <= one < 1 << 63 for one in rows):  # ctypes would keep only the lowest 64 bits
                return rows
    except TypeError:
        pass
    raise ValueError(
        f"splits must be whole numbers of rows below 2^63, one for each rank of the process set, not {splits!r}."
    )


def join(process_set: ProcessSet, gpu: int = -1) -> int:
    """Joins: this rank is out of data, and takes part in the others' operations until every member has joined.

    Returns the world rank that joined last. `gpu` is the device for the others' GPU tensors, used if this rank has had
    no GPU tensor in the set. Afterwards unnamed operations start at number 0, because the ranks have run different
    numbers of them.
    """
    members = registered_id(process_set)
    _session.current()  # raises in a forked child, which has no engine threads and would wait forever
    _session.drain_all()
    place = max(gpu, 0)
    operation = Op(Kind.JOIN, "join", process_set=members, device_type=int(gpu >= 0), device_index=place)
    last: int = _operations.enqueue([operation], None, lambda handle: handle.gathered(0).first_dims[0]).wait()
    _session.current().forget_numbers(members)
    return last


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when every member of `process_set` has called it."""
    what = call(Kind.BARRIER, None, process_set)
    operation = Op(kind=Kind.BARRIER, name=what.names[0], process_set=what.process_set)
    _operations.enqueue([operation], None, lambda _: None).wait()
