"""Local SGD: ranks train alone for a while, then average what they have learned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import torch
from distrun import _parameters, errors
from distrun._abi import Kind, ReduceOp
from distrun._collectives import batch_call
from distrun._objects import allgather_object
from distrun.process_sets import ProcessSet, checked, global_process_set, number_kept, registered_id

from ._adapter import collective, is_dense

Parameters: TypeAlias = torch.nn.Module | Mapping[str, torch.Tensor] | Iterable[Any]
Named: TypeAlias = list[tuple[str, torch.Tensor]]


class PeriodicAverage:
    """Counts steps, and averages when it is time. Made by periodic_average."""

    def __init__(
        self,
        parameters: Callable[[], Named],
        buffers: Callable[[], Named],
        period: int,
        warmup_steps: int,
        optimizer: torch.optim.Optimizer | None,
        process_set: ProcessSet,
    ) -> None:
        self.period = period
        self.warmup_steps = warmup_steps
        self.steps = 0
        self._parameters = parameters
        self._buffers = buffers
        self._optimizer = optimizer
        self._process_set = checked(process_set)
        self._prefix: str | None = None

    def step(self) -> bool:
        """Call it after each optimizer.step(), on every rank of the set. True if it has averaged."""
        self.steps += 1
        later = self.steps - self.warmup_steps
        due = later <= 0 or later % self.period == 0
        if due:
            self.average()
        return due

    @torch.no_grad()
    def average(self) -> None:
        """Averages now, whatever the count: before an evaluation, a checkpoint, at the end."""
        registered_id(self._process_set)
        self._process_set.rank()
        if self._process_set.size() == 1:
            return
        pairs = self._agree()
        what = batch_call(Kind.ALLREDUCE, [self._name(name) for name, _ in pairs], self._process_set)
        tensors = [torch.view_as_real(tensor) if tensor.is_complex() else tensor for _, tensor in pairs]
        collective.same_size(tensors, what._replace(reduce=ReduceOp.AVERAGE), in_place=True).wait()

    def state_dict(self) -> dict[str, int]:
        """How many steps there were: a resumed run averages at the same ones."""
        return {"steps": self.steps}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Goes on from there."""
        self.steps = state["steps"]

    def _name(self, name: str) -> str:
        if self._prefix is None:
            self._prefix = f"periodic_average{number_kept('periodic_average', self._process_set)}"
        return f"{self._prefix}.{name}"

    def _agree(self) -> Named:
        """The parameters, and what every rank has alike of buffers and _state(): a parameter that has had no gradient
        on some rank has none there, and a buffer may have come later or follow the rank's own data.

        Also without any of them: who has joined answers nothing, and its weights would count as zero.
        """
        parameters = self._parameters()
        state = [] if self._optimizer is None else self._state(self._optimizer)
        pairs = _once([pair for pair in (*parameters, *self._buffers(), *state) if _has_average(pair[1])])
        always = {name for name, _ in parameters}
        own = {(name, str(tensor.dtype), *tensor.shape): name for name, tensor in pairs if name not in always}
        everybodys = allgather_object(list(own), self._name("state"), self._process_set)
        if len(everybodys) != self._process_set.size():
            raise errors.InvalidArgument(
                f"periodic_average: only {len(everybodys)} of the {self._process_set.size()} ranks average, the others "
                "have called join() and would count as zero. Make the same number of steps on all ranks, or average() "
                "on all of them before join() and not again."
            )
        common = always.union(own[what] for what in set(own).intersection(*everybodys))
        return [(name, tensor) for name, tensor in pairs if name in common]

    def _state(self, optimizer: torch.optim.Optimizer) -> Named:
        """The optimizer's tensors of a parameter's shape, which begin to exist with its first step."""
        params = [param for options in optimizer.param_groups for param in options["params"]]
        return [
            (f"state.{index}.{key}", value)
            for index, param in enumerate(params)
            for key, value in optimizer.state.get(param, {}).items()
            if isinstance(value, torch.Tensor) and _has_average(value) and value.shape == param.shape
        ]


def _has_average(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _listed(model: Parameters) -> tuple[Callable[[], Named], Callable[[], Named]]:
    """Its parameters and its buffers: a module may have put another tensor in the place of one since."""
    if isinstance(model, torch.nn.Module):
        return lambda: list(model.named_parameters()), lambda: list(model.named_buffers())
    given = _parameters.named(model, torch.Tensor)
    return lambda: given, lambda: []


def _once(pairs: Named) -> Named:
    """Without tied tensors' other names: what is in flight twice would be averaged with half a result."""
    result: dict[tuple[Any, ...], tuple[str, torch.Tensor]] = {}
    for name, tensor in pairs:
        # In whatever shape its memory is seen.
        form = (tensor.numel(),) if is_dense(tensor.shape, tensor.stride()) else (tensor.shape, tensor.stride())
        result.setdefault((tensor.data_ptr() or name, tensor.dtype, *form), (name, tensor.detach()))
    return list(result.values())


def periodic_average(
    model: Parameters,
    period: int,
    warmup_steps: int = 0,
    optimizer: torch.optim.Optimizer | None = None,
    process_set: ProcessSet = global_process_set,
) -> PeriodicAverage:
    """Averages the model's parameters over the ranks after every `period` steps. Use an ordinary optimizer with it.

    model: a module (of its buffers, but for whole numbers, what all ranks then have in the same shape is averaged too),
    or tensors as broadcast_parameters takes them. warmup_steps: so many steps first with an average after each; for
    SGD, with momentum or without, that is training with averaged gradients, so this is post-local SGD. optimizer: its
    momenta are averaged too, those that all ranks have. All ranks begin with the same parameters: broadcast_parameters.
    """
    if period < 1:
        raise ValueError(f"period is a number of steps from 1, not {period!r}.")
    if warmup_steps < 0:
        raise ValueError(f"warmup_steps is a number of steps from 0, not {warmup_steps!r}.")
    return PeriodicAverage(*_listed(model), period, warmup_steps, optimizer, process_set)
