"""The process group, with the methods that torch.distributed and C++ call, under their old and new names."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from distrun import _session
from distrun._operations import Handle
from distrun.process_sets import add_process_set
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore

from . import _moves, _sparse
from ._channel import Channel
from ._messages import Messages
from ._options import GLOO_BESIDE, as_list, as_lists, asked, limit, reduction, root_rank
from ._work import DistrunWork, InFlight, ThreadPerFuture, Together, Watch

# Any: torch's stubs give each method several forms with other argument names; c10d passes arguments by position.
_ProcessGroup: Any = dist.ProcessGroup
_EACH_ALONE = ThreadPerFuture()

# With this many works, a coalesced call drops those that have ended.
_LOOK_AT = 64

# The devices of this process. torch counts GPUs by NVML if possible. Its is_available() would start CUDA, and a forked
# child could then not use CUDA.
DEVICES = ["cpu", "cuda"] if torch.cuda.device_count() else ["cpu"]


class DistrunProcessGroup(_ProcessGroup):
    """A process group on a process set, made by init_process_group("distrun") and new_group.

    Every method submits its operation and returns a work at once. All members make the same calls in the same order. A
    member calls from one thread at a time, which may be autograd's. Options are torch's struct; or, instead of it, the
    root, the operation and the time limit, by position in torch's order or by name.

    Dtypes: reductions accept uint8, int8 to int64, float16, bfloat16, float32, float64 and bool; sums also accept
    complex numbers. All other operations move any dtype. Wrong arguments raise ValueError. Errors that the ranks find
    together are raised by the work.
    """

    # Attributes that torch reads before it calls the corresponding methods.
    supports_splitting = True
    supports_coalescing = supports_time_estimate = supports_shrinking = False
    options = None  # torch copies them to groups that it splits off

    def __init__(self, channel: Channel, name: str, store: Any, timeout: timedelta) -> None:
        super().__init__(channel.position, len(channel.members))
        self._name = name
        self._channel = channel
        self._rank = channel.position
        self._size = len(channel.members)
        self._store = store
        self._timeout = timeout
        self._watch = Watch(_session.overlaps(_session.world()))
        self._messages = Messages(channel)
        self._collected: list[DistrunWork] | None = None
        self._look_at = _LOOK_AT  # the length of _collected at which works that have ended are dropped

    # Identity

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    def getBackendName(self) -> str:
        return "distrun"

    @property
    def group_name(self) -> str:
        """torch's name of the group. C++ does not keep it for a group made in Python."""
        return self._name

    pg_name = group_name

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device(kind) for kind in DEVICES]

    def _get_backend(self, device: torch.device) -> DistrunProcessGroup:
        """Returns this group for every device that it supports. RuntimeError for others, like torch's own method."""
        if device.type not in ("cpu", "cuda"):
            raise RuntimeError(f"distrun sends tensors on cpu and cuda, not on {device.type}.")
        return self

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        """Returns False, so that FSDP2 allocates its buffers with torch."""
        return False

    def get_group_store(self) -> Any:
        """Returns the group's part of the store through which its ranks met. distrun does not use it."""
        return self._store

    def __repr__(self) -> str:
        return f"DistrunProcessGroup({self._channel})"

    # Time limits and the end

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the time limit of operations from now on."""
        self._timeout = timeout

    _set_default_timeout = set_timeout  # a backend's name for it

    def shutdown(self) -> None:
        """Ends the group, as destroy_process_group does. The job and its other groups stay.

        The thread of its futures ends. Its process set ends after all members have called this.
        """
        self._watch.close()
        if _session.is_open():
            self._channel.close()

    def abort(self) -> None:
        """Ends the whole job. Operations in flight raise JobEnded here; on other ranks RankLost, which names this
        rank."""
        _session.abort(f"rank {_session.world().rank} aborted {self._channel} of torch.distributed")

    # Splitting

    def split_group(
        self,
        ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Any = None,
    ) -> DistrunProcessGroup | None:
        """Makes a group of these members, sorted by rank. They alone call it; it blocks until all have. None
        elsewhere."""
        if self._rank not in ranks:
            return None
        members = [self._channel.members[rank] for rank in ranks]
        channel = Channel(add_process_set(members, members_only=True))
        name = group_name or channel.label
        return DistrunProcessGroup(channel, name, PrefixStore(name, self._store), timeout or self._timeout)

    def eager_connect_single_device(self, device: torch.device) -> None:
        """Handles init_process_group(device_id=...). Groups are connected already, and can be split from now on."""
        self.bound_device_id = device

    def perform_nocolor_split(self, device: torch.device) -> None:
        """Does nothing. A rank outside a split need not know of it."""

    def _set_sequence_number_for_group(self) -> None:
        """Does nothing. The runtime has its own numbers."""

    # Collectives

    def allreduce(
        self,
        tensors: list[Tensor] | Tensor,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        op: Any = None,
    ) -> DistrunWork:
        """Reduces in place. Shapes, dtypes and layouts are equal on all members. A sparse tensor must be the only
        one."""
        tensors, opts = as_list(tensors), asked(opts, op, timeout=timeout)
        if len(tensors) == 1 and tensors[0].is_sparse:
            handle = _sparse.allreduce(self._channel, tensors[0], reduction(opts))
        else:
            handle = _moves.allreduce(self._channel, tensors, reduction(opts))
        return self._work("allreduce", handle, tensors, opts)

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> DistrunWork:
        """Like allreduce, for many tensors in one call."""
        handle = _moves.allreduce(self._channel, tensors, reduction(opts))
        return self._work("allreduce_coalesced", handle, tensors, opts)

    def reduce(
        self,
        tensors: list[Tensor] | Tensor,
        opts: Any = None,
        op: Any = None,
        timeout: timedelta | None = None,
        *,
        root: int | None = None,
    ) -> DistrunWork:
        """Reduces in place on the root. The other members' tensors do not change."""
        tensors, opts = as_list(tensors), asked(opts, op, root, timeout)
        handle = _moves.reduce(self._channel, tensors, reduction(opts), self._root(opts))
        return self._work("reduce", handle, tensors, opts)

    def broadcast(
        self,
        tensors: list[Tensor] | Tensor,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        root: int | None = None,
    ) -> DistrunWork:
        """Overwrites the tensors with the root's."""
        tensors, opts = as_list(tensors), asked(opts, root=root, timeout=timeout)
        return self._work("broadcast", _moves.broadcast(self._channel, tensors, self._root(opts)), tensors, opts)

    def allgather(
        self,
        outputs: list[list[Tensor]] | list[Tensor],
        inputs: list[Tensor] | Tensor,
        opts: Any = None,
        *,
        timeout: timedelta | None = None,
    ) -> DistrunWork:
        """Gathers tensors: outputs[i][r] becomes inputs[i] of member r; for a single input, outputs[r].

        Sizes may differ among members.
        """
        rows, tensors = as_lists(outputs, inputs)
        opts = asked(opts, timeout=timeout)
        flat = [tensor for row in rows for tensor in row]
        return self._work("allgather", _moves.allgather(self._channel, rows, tensors), flat, opts)

    def allgather_coalesced(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> DistrunWork:
        """Gathers tensors: outputs[r][i] becomes inputs[i] of member r."""
        return self.allgather([list(row) for row in zip(*outputs, strict=True)], inputs, opts)

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> DistrunWork:
        """Concatenates the members' inputs into `output`, which is contiguous."""
        return self.all_gather_single_coalesced([output], [input], opts)

    def all_gather_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> DistrunWork:
        """Like all_gather_single, for many pairs in one call."""
        handle = _moves.allgather_single(self._channel, outputs, inputs)
        return self._work("all_gather_single", handle, outputs, opts)

    def reduce_scatter(
        self,
        outputs: list[Tensor] | Tensor,
        inputs: list[list[Tensor]] | list[Tensor],
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        op: Any = None,
    ) -> DistrunWork:
        """Reduces and scatters: outputs[i] becomes the reduction of inputs[i][this member]; a single output that of
        inputs[this member]. All tensors have the same size."""
        rows, tensors = as_lists(inputs, outputs)
        opts = asked(opts, op, timeout=timeout)
        handle = _moves.reduce_scatter(self._channel, tensors, rows, reduction(opts))
        return self._work("reduce_scatter", handle, list(tensors), opts)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> DistrunWork:
        """Writes this member's share of the reduced input to `output`. The input is as large as all shares together."""
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    def reduce_scatter_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> DistrunWork:
        """Like reduce_scatter_single, for many pairs in one call."""
        handle = _moves.reduce_scatter_single(self._channel, outputs, inputs, reduction(opts))
        return self._work("reduce_scatter_single", handle, outputs, opts)

    def alltoall(
        self,
        outputs: list[Tensor],
        inputs: list[Tensor],
        opts: Any = None,
        *,
        timeout: timedelta | None = None,
    ) -> DistrunWork:
        """Sends inputs[r] to member r. outputs[r] becomes the tensor that member r sends here."""
        opts = asked(opts, timeout=timeout)
        return self._work("alltoall", _moves.alltoall(self._channel, outputs, inputs), outputs, opts)

    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,
        received: Sequence[int],
        sent: Sequence[int],
        opts: Any = None,
        *,
        timeout: timedelta | None = None,
    ) -> DistrunWork:
        """Like alltoall, with rows of dimension 0. Empty splits mean equal shares."""
        opts = asked(opts, timeout=timeout)
        handle = _moves.alltoall_single(self._channel, output, input, received, sent)
        return self._work("all_to_all_single", handle, [output], opts)

    def gather(
        self,
        outputs: list[list[Tensor]] | list[Tensor],
        inputs: list[Tensor] | Tensor,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        root: int | None = None,
    ) -> DistrunWork:
        """Gathers to the root. There `outputs` has a tensor for each member (a list of lists if inputs is a list).

        On other members it is empty.
        """
        rows, tensors = as_lists(outputs, inputs)
        opts = asked(opts, root=root, timeout=timeout)
        found = list(rows[0]) if rows else []
        handle = _moves.gather(self._channel, found, tensors[0], self._root(opts))
        return self._work("gather", handle, found, opts)

    def scatter(
        self,
        outputs: list[Tensor] | Tensor,
        inputs: list[list[Tensor]] | list[Tensor],
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        root: int | None = None,
    ) -> DistrunWork:
        """Scatters from the root. There `inputs` has a tensor for each member (a list of lists if outputs is a list).

        On other members it is empty.
        """
        rows, tensors = as_lists(inputs, outputs)
        opts = asked(opts, root=root, timeout=timeout)
        handle = _moves.scatter(self._channel, tensors[0], rows[0] if rows else [], self._root(opts))
        return self._work("scatter", handle, list(tensors), opts)

    def barrier(self, opts: Any = None, *, timeout: timedelta | None = None) -> DistrunWork:
        """Starts a barrier. It is complete when all members have called it."""
        opts = asked(opts, timeout=timeout)
        return self._work("barrier", self._channel.barrier(), [], opts)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Waits for a barrier. Its Timeout names the members that have not come, with and without wait_all_ranks.

        torch itself calls this if the group's backend has the name gloo.
        """
        self.barrier(timeout=timeout).wait()

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # Messages

    def send(self, tensors: list[Tensor], dst: int, tag: int = 0) -> DistrunWork:
        """Sends to member dst, whose recv has the same tag. The work is complete after the arrival; do not change the
        tensors before."""
        handle = self._messages.start(self._rank, dst, tag, _moves.send(tensors))
        return self._message(f"send to rank {dst} with tag {tag}", handle, tensors)

    def recv(self, tensors: list[Tensor], src: int, tag: int = 0) -> DistrunWork:
        """Receives from member src, in the order of its sends with this tag. Sizes and dtypes are equal on both
        members."""
        handle = self._messages.start(src, self._rank, tag, _moves.receive(tensors))
        return self._message(f"recv from rank {src} with tag {tag}", handle, tensors)

    def recv_anysource(self, tensors: list[Tensor], tag: int = 0) -> NoReturn:
        """Raises NotImplementedError."""
        raise NotImplementedError(
            "recv from any source is not supported. Name the sender: recv(tensor, src=RANK). Or receive in a gloo "
            f"group beside this one: {GLOO_BESIDE}."
        )

    def _root(self, opts: Any) -> int:
        return self._channel.place(root_rank(opts))

    def _message(self, what: str, handle: InFlight, tensors: list[Tensor]) -> DistrunWork:
        text = f"{what} in {self._channel}"
        return self._collect(DistrunWork(handle, text, tensors, self._timeout.total_seconds(), _EACH_ALONE))

    # Coalescing of any calls, for torch's _coalescing_manager with a device

    def _start_coalescing(self, device: torch.device) -> None:
        self._collected, self._look_at = [], _LOOK_AT

    def _end_coalescing(self, device: torch.device) -> DistrunWork:
        works, self._collected = self._collected or [], None
        return DistrunWork(Together(works), "a coalesced call", [], self._timeout.total_seconds(), self._watch)

    def _work(self, what: str, handle: Handle[None], result: list[Tensor], opts: Any) -> DistrunWork:
        name = f"{what} of {self._channel}"
        return self._collect(DistrunWork(handle, name, result, limit(opts, self._timeout), self._watch))

    def _collect(self, work: DistrunWork) -> DistrunWork:
        if self._collected is not None:
            # If an exception has ended the block, torch does not report it, and continues as if inside. So drop ended
            # works.
            if len(self._collected) >= self._look_at:
                self._collected = [one for one in self._collected if not one.ended_well()]
                self._look_at = _LOOK_AT + 2 * len(self._collected)
            self._collected.append(work)
        return work
