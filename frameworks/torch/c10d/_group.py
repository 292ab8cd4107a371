"""The process group: torch.distributed's and C++'s methods, in their old and new names."""

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
from ._work import DistrunWork, EachAlone, InFlight, Together, Watch

# Any: torch's stubs give each method several forms and other names of the tensors; c10d passes them by position.
_ProcessGroup: Any = dist.ProcessGroup
_EACH_ALONE = EachAlone()

# So many works of a coalesced call make the next one look for those that have ended, and again when there are more.
_LOOK_AT = 64

# Where tensors can be here. torch counts GPUs by NVML if it can; its is_available() starts CUDA, after which a forked
# child could not use it.
DEVICES = ["cpu", "cuda"] if torch.cuda.device_count() else ["cpu"]


class DistrunProcessGroup(_ProcessGroup):
    """A process group over a process set; made by init_process_group("distrun") and new_group.

    Every method hands its operation over and returns a work at once. All members make the same calls in the same order;
    on one member, one thread at a time (autograd's thread may be one of them). Options are torch's struct or, in its
    place, the root, the operation and the time limit, by position in torch's order or by name. Dtypes: reductions take
    uint8, int8 to int64, float16, bfloat16, float32, float64, bool, and complex numbers for sums; everything else moves
    any dtype.
    Raises ValueError for arguments that do not fit together; the work raises what the ranks only know together.
    """

    # What torch asks of a backend before it calls the methods for it.
    supports_splitting = True
    supports_coalescing = supports_time_estimate = supports_shrinking = False
    options = None  # torch copies them for groups that it splits off

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
        self._look_at = _LOOK_AT  # so many of them

    # Who am I

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    def getBackendName(self) -> str:
        return "distrun"

    @property
    def group_name(self) -> str:
        """torch's name of the group; C++ does not keep it for a group made in Python."""
        return self._name

    pg_name = group_name

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device(kind) for kind in DEVICES]

    def _get_backend(self, device: torch.device) -> DistrunProcessGroup:
        """This one, for every device that it takes. RuntimeError for others, as torch's own."""
        if device.type not in ("cpu", "cuda"):
            raise RuntimeError(f"distrun moves tensors on cpu and cuda, not on {device.type}.")
        return self

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        """False: FSDP2 then takes its buffers from torch."""
        return False

    def get_group_store(self) -> Any:
        """The group's part of the store where its ranks met; distrun itself does not use it."""
        return self._store

    def __repr__(self) -> str:
        return f"DistrunProcessGroup({self._channel})"

    # Time and end

    def set_timeout(self, timeout: timedelta) -> None:
        """The limit for operations from now on."""
        self._timeout = timeout

    _set_default_timeout = set_timeout  # a backend's name for it

    def shutdown(self) -> None:
        """What destroy_process_group does to a group: its futures' thread ends, and its process set goes when all its
        members have called this. The job and its other groups stay."""
        self._watch.close()
        if _session.is_open():
            self._channel.close()

    def abort(self) -> None:
        """Ends the whole job: everything in flight raises JobEnded here, and on the others RankLost that names this
        rank."""
        _session.abort(f"rank {_session.world().rank} aborted {self._channel} of torch.distributed")

    # Groups split off

    def split_group(
        self,
        ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Any = None,
    ) -> DistrunProcessGroup | None:
        """A group of these members, going up, called by them (blocks until all have come); None elsewhere."""
        if self._rank not in ranks:
            return None
        members = [self._channel.members[rank] for rank in ranks]
        channel = Channel(add_process_set(members, members_only=True))
        name = group_name or channel.label
        return DistrunProcessGroup(channel, name, PrefixStore(name, self._store), timeout or self._timeout)

    def eager_connect_single_device(self, device: torch.device) -> None:
        """init_process_group(device_id=...): groups are connected already, and can be split from now on."""
        self.bound_device_id = device

    def perform_nocolor_split(self, device: torch.device) -> None:
        """Nothing: who is not in a split need not know of it."""

    def _set_sequence_number_for_group(self) -> None:
        """Nothing: the runtime has numbers of its own."""

    # Collectives

    def allreduce(
        self,
        tensors: list[Tensor] | Tensor,
        opts: Any = None,
        timeout: timedelta | None = None,
        *,
        op: Any = None,
    ) -> DistrunWork:
        """In place; shapes, dtypes and layouts equal on all members. A sparse tensor comes alone."""
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
        """In place on the root; the other members' tensors do not change."""
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
        """In place."""
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
        """outputs[i][r] becomes inputs[i] of member r, or outputs[r] a single input's; sizes may differ between
        members."""
        rows, tensors = as_lists(outputs, inputs)
        opts = asked(opts, timeout=timeout)
        flat = [tensor for row in rows for tensor in row]
        return self._work("allgather", _moves.allgather(self._channel, rows, tensors), flat, opts)

    def allgather_coalesced(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> DistrunWork:
        """outputs[r][i] becomes inputs[i] of member r."""
        return self.allgather([list(row) for row in zip(*outputs, strict=True)], inputs, opts)

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> DistrunWork:
        """output: the members' inputs one after the other; contiguous."""
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
        """outputs[i] becomes the reduction of inputs[i][this member], or a single output that of inputs[this member];
        all of one size."""
        rows, tensors = as_lists(inputs, outputs)
        opts = asked(opts, op, timeout=timeout)
        handle = _moves.reduce_scatter(self._channel, tensors, rows, reduction(opts))
        return self._work("reduce_scatter", handle, list(tensors), opts)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> DistrunWork:
        """output: this member's share of the reduced input, which is as large as all shares."""
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
        """inputs[r] goes to member r; outputs[r] becomes what it sends here."""
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
        """Like alltoall with rows of dimension 0; empty splits are equal shares."""
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
        """outputs: on the root a tensor for each member, in a list of lists if inputs is a list; elsewhere nothing."""
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
        """inputs: on the root a tensor for each member, in a list of lists if outputs is a list; elsewhere nothing."""
        rows, tensors = as_lists(inputs, outputs)
        opts = asked(opts, root=root, timeout=timeout)
        handle = _moves.scatter(self._channel, tensors[0], rows[0] if rows else [], self._root(opts))
        return self._work("scatter", handle, list(tensors), opts)

    def barrier(self, opts: Any = None, *, timeout: timedelta | None = None) -> DistrunWork:
        """Complete when all members have called it."""
        opts = asked(opts, timeout=timeout)
        return self._work("barrier", self._channel.barrier(), [], opts)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """A barrier that is waited for; its Timeout names the members that have not come, whether all are asked for or
        not. torch itself calls it where the group's backend goes by the name gloo."""
        self.barrier(timeout=timeout).wait()

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # Between two ranks

    def send(self, tensors: list[Tensor], dst: int, tag: int = 0) -> DistrunWork:
        """To member dst, whose recv has the same tag. Complete when it has arrived; until then the tensors stay as they
        are."""
        handle = self._messages.start(self._rank, dst, tag, _moves.send(tensors))
        return self._message(f"send to rank {dst} with tag {tag}", handle, tensors)

    def recv(self, tensors: list[Tensor], src: int, tag: int = 0) -> DistrunWork:
        """From member src, in the order of its sends with this tag; sizes and dtypes are equal on both."""
        handle = self._messages.start(src, self._rank, tag, _moves.receive(tensors))
        return self._message(f"recv from rank {src} with tag {tag}", handle, tensors)

    def recv_anysource(self, tensors: list[Tensor], tag: int = 0) -> NoReturn:
        """NotImplementedError."""
        raise NotImplementedError(
            "recv from any source: distrun matches messages by their senders; name it, recv(tensor, src=RANK), or "
            f"receive in a gloo group beside this one: {GLOO_BESIDE}."
        )

    def _root(self, opts: Any) -> int:
        return self._channel.place(root_rank(opts))

    def _message(self, what: str, handle: InFlight, tensors: list[Tensor]) -> DistrunWork:
        text = f"{what} in {self._channel}"
        return self._collect(DistrunWork(handle, text, tensors, self._timeout.total_seconds(), _EACH_ALONE))

    # Coalescing of any calls: torch's _coalescing_manager with a device

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
            # An exception may have ended the block: torch tells nobody, and goes on as if it were inside.
            if len(self._collected) >= self._look_at:
                self._collected = [one for one in self._collected if not one.ended_well()]
                self._look_at = _LOOK_AT + 2 * len(self._collected)
            self._collected.append(work)
        return work
