"""c10d's collectives as operations of distrun. Each function submits one call and returns its handle.

`channel` is the group. Arguments are checked before anything is submitted, so a ValueError occurs on this rank only.
Errors that the ranks find together (other shapes, dtypes, calls) are a Mismatch on all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from distrun._abi import Kind
from distrun._operations import Handle

from .._adapter import collective
from ._channel import Channel, Piece
from ._memory import data, put, take, values
from ._options import Reduction

Tensors = Sequence[torch.Tensor]
Message = Callable[[Channel, str], Handle[None]]  # submits a message, in the set of the two, under a name


def _need(condition: bool, text: str) -> None:
    if not condition:
        raise ValueError(text)


def allreduce(channel: Channel, tensors: Tensors, reduction: Reduction) -> Handle[None]:
    """Reduces in place. The tensors run independently of each other."""
    works = [values(tensor, reduction.linear) for tensor in tensors]
    pieces = [Piece(work, tuple(work.shape), work) for work in works]
    return channel.start(Kind.ALLREDUCE, pieces, _put_into(tensors, works), reduction)


def reduce(channel: Channel, tensors: Tensors, reduction: Reduction, root: int) -> Handle[None]:
    """Reduces in place on the root. The other members' tensors do not change."""
    if channel.position == root:
        return allreduce(channel, tensors, reduction)
    works = [values(tensor, reduction.linear) for tensor in tensors]
    pieces = [Piece(work, tuple(work.shape), torch.empty_like(work)) for work in works]
    return channel.start(Kind.ALLREDUCE, pieces, lambda _: None, reduction)


def broadcast(channel: Channel, tensors: Tensors, root: int) -> Handle[None]:
    """Overwrites the tensors with the root's."""
    works = [data(tensor) for tensor in tensors]
    pieces = [Piece(work, tuple(work.shape), work) for work in works]
    return channel.start(Kind.BROADCAST, pieces, _put_into(tensors, works), root=root)


def send(tensors: Tensors) -> Message:
    """Returns a function that sends the tensors in a set of two. The other rank receives under the same name."""
    pieces = _described([Piece(work, tuple(work.shape), work) for work in map(data, tensors)])
    return _from_here(
        tensors,
        lambda channel, name: channel.start(Kind.BROADCAST, pieces, lambda _: None, root=channel.position, name=name),
    )


def receive(tensors: Tensors) -> Message:
    """Returns a function that receives the tensors in a set of two. The other rank sends under the same name.

    Mismatch on both if dtypes or sizes differ.
    """
    works = [data(tensor) for tensor in tensors]
    pieces = _described([Piece(work, tuple(work.shape), work) for work in works])
    return _from_here(
        tensors,
        lambda channel, name: channel.start(
            Kind.BROADCAST, pieces, _put_into(tensors, works), root=1 - channel.position, name=name
        ),
    )


def _described(pieces: list[Piece]) -> list[Piece]:
    """Refuses tensors that cannot be sent, before the message gets a number, which the other rank counts too."""
    for piece in pieces:
        collective.adapter.describe(piece.source)
    return pieces


def _from_here(tensors: Tensors, message: Message) -> Message:
    """Runs the message with the present CUDA stream, since a thread that submits it later has another current
    stream."""
    on_gpu = next((tensor for tensor in tensors if tensor.is_cuda), None)
    if on_gpu is None:
        return message
    stream = torch.cuda.current_stream(on_gpu.device)

    def later(channel: Channel, name: str) -> Handle[None]:
        with torch.cuda.stream(stream):
            return message(channel, name)

    return later


def allgather(channel: Channel, outputs: Sequence[Tensors], inputs: Tensors) -> Handle[None]:
    """Gathers each input into its outputs, one for each member. A member's tensor may differ in size."""
    count = len(channel.members)
    _need(len(outputs) == len(inputs), f"{len(outputs)} lists of outputs do not fit {len(inputs)} inputs.")
    for row in outputs:
        _need(len(row) == count, f"an allgather among {count} ranks needs {count} outputs, not {len(row)}.")
        _writable(row)
    works = [data(tensor) for tensor in inputs]

    def finish(handle: Handle[None]) -> None:
        for index, row in enumerate(outputs):
            take(row, works[index], handle.gathered(index), channel.members)

    return channel.start(Kind.ALLGATHER, [Piece(work, tuple(work.shape)) for work in works], finish)


def allgather_single(channel: Channel, outputs: Tensors, inputs: Tensors) -> Handle[None]:
    """Concatenates the inputs of all members, in rank order. An output has the elements of all of them."""
    count = len(channel.members)
    _need(len(outputs) == len(inputs), f"{len(outputs)} outputs for {len(inputs)} inputs.")
    for output, tensor in zip(outputs, inputs, strict=True):
        _need(
            output.nbytes == count * tensor.nbytes and output.dtype == tensor.dtype,
            f"the output of an allgather among {count} ranks must have {count} times the elements of the input, and "
            f"its dtype: not {tuple(output.shape)} of {output.dtype} for {tuple(tensor.shape)} of {tensor.dtype}.",
        )
        _need(output.is_contiguous(), "the output of an allgather into one tensor must be contiguous.")
    return allgather(channel, [output.detach().view(count, -1).unbind() for output in outputs], inputs)


def reduce_scatter(channel: Channel, outputs: Tensors, inputs: Sequence[Tensors], reduction: Reduction) -> Handle[None]:
    """Reduces inputs[member] into each output. An output has one input tensor for each member, of its own size."""
    count = len(channel.members)
    _need(len(outputs) == len(inputs), f"{len(outputs)} outputs do not fit {len(inputs)} lists of inputs.")
    for output, row in zip(outputs, inputs, strict=True):
        _need(len(row) == count, f"a reduce-scatter among {count} ranks needs {count} inputs, not {len(row)}.")
        _need(
            all(tensor.numel() == output.numel() for tensor in row),
            "the inputs and the output of a reduce-scatter must have the same size. Use all_reduce for uneven shares.",
        )
    joined = [torch.cat([tensor.detach().reshape(-1) for tensor in row]) for row in inputs]
    return reduce_scatter_single(channel, outputs, joined, reduction)


def reduce_scatter_single(channel: Channel, outputs: Tensors, inputs: Tensors, reduction: Reduction) -> Handle[None]:
    """Reduces each input, and writes this member's share of it to its output. All shares are equal."""
    count = len(channel.members)
    _need(len(outputs) == len(inputs), f"{len(outputs)} outputs for {len(inputs)} inputs.")
    pieces = []
    works = []
    for output, tensor in zip(outputs, inputs, strict=True):
        _need(
            count * output.numel() == tensor.numel() and output.dtype == tensor.dtype,
            f"the input of a reduce-scatter among {count} ranks must have {count} times the elements of the output, "
            f"and its dtype: not {tuple(tensor.shape)} of {tensor.dtype} for {tuple(output.shape)} of {output.dtype}.",
        )
        source, work = values(tensor, reduction.linear), values(output, reduction.linear)
        # The runtime must not write a share into memory that it reads. Here an output may be a part of the input.
        if source.untyped_storage().data_ptr() == work.untyped_storage().data_ptr():
            work = torch.empty_like(work)
        works.append(work)
        pieces.append(Piece(source, (count, work.numel()), work))

    return channel.start(Kind.REDUCESCATTER, pieces, _put_into(outputs, works), reduction)


def alltoall(channel: Channel, outputs: Tensors, inputs: Tensors) -> Handle[None]:
    """Sends input i to member i. Output i becomes the tensor that member i sends here. Sizes may differ."""
    count = len(channel.members)
    _need(
        len(outputs) == count and len(inputs) == count,
        f"an alltoall among {count} ranks needs {count} inputs and {count} outputs, not {len(inputs)} and "
        f"{len(outputs)}.",
    )
    parts = [data(tensor) for tensor in inputs]
    return _exchange(channel, outputs, torch.cat(parts), [part.numel() for part in parts])


def alltoall_single(
    channel: Channel, output: torch.Tensor, tensor: torch.Tensor, received: Sequence[int], sent: Sequence[int]
) -> Handle[None]:
    """Sends sent[i] rows of dimension 0 to member i, and receives received[i] from it. Empty splits: equal shares."""
    members = len(channel.members)
    blocks, counts = _rows(output, received, members), _rows(tensor, sent, members)
    source = data(tensor)
    width = source.numel() // max(1, tensor.shape[0])
    return _exchange(channel, output.detach().split(blocks), source, [width * count for count in counts])


def gather(channel: Channel, outputs: Tensors, tensor: torch.Tensor, root: int) -> Handle[None]:
    """Gathers to the root, which passes an output for each member. The others pass none."""
    count = len(channel.members)
    mine = channel.position == root
    _need(
        len(outputs) == (count if mine else 0),
        f"gather got {len(outputs)} outputs. The root must pass {count}, and the other ranks none.",
    )
    source = data(tensor)
    counts = [source.numel() if member == root else 0 for member in range(count)]
    return _exchange(channel, outputs, source, counts)


def scatter(channel: Channel, output: torch.Tensor, tensors: Tensors, root: int) -> Handle[None]:
    """Scatters from the root. It passes an input for each member, the others pass none. Each member gets its own."""
    count = len(channel.members)
    mine = channel.position == root
    _need(
        len(tensors) == (count if mine else 0),
        f"scatter got {len(tensors)} inputs. The root must pass {count}, and the other ranks none.",
    )
    parts = [data(tensor) for tensor in tensors]
    source = torch.cat(parts) if parts else data(output)[:0]
    nothing = output.new_empty(0)
    outputs = [output if member == root else nothing for member in range(count)]
    return _exchange(channel, outputs, source, [part.numel() for part in parts] or [0] * count)


def _writable(outputs: Tensors) -> None:
    """Refuses outputs that cannot be overwritten, before anything is sent."""
    for output in outputs:
        collective.adapter.writable(output)


def _put_into(outputs: Tensors, works: Tensors) -> Callable[[Handle[None]], None]:
    _writable(outputs)

    def finish(_: Handle[None]) -> None:
        for output, work in zip(outputs, works, strict=True):
            put(output, work)

    return finish


def _exchange(channel: Channel, outputs: Tensors, source: torch.Tensor, counts: Sequence[int]) -> Handle[None]:
    _writable(outputs)

    def finish(handle: Handle[None]) -> None:
        if outputs:
            take(outputs, source, handle.gathered(0), channel.members)

    return channel.start(Kind.ALLTOALL, [Piece(source, tuple(source.shape), splits=tuple(counts))], finish)


def _rows(tensor: torch.Tensor, splits: Sequence[int], members: int) -> list[int]:
    _need(tensor.dim() > 0, "all_to_all_single needs tensors of at least one dimension.")
    if splits:
        _need(
            len(splits) == members and sum(splits) == tensor.shape[0] and min(splits) >= 0,
            f"the splits {list(splits)} must be one for each of {members} ranks, and add up to {tensor.shape[0]} rows.",
        )
        return list(splits)
    _need(
        tensor.shape[0] % members == 0,
        f"{tensor.shape[0]} rows cannot be divided into equal parts for {members} ranks.",
    )
    return [tensor.shape[0] // members] * members
