"""Local SGD: ranks train alone for some steps, then average their parameters."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import torch
from distrun import _parameters, errors
from distrun._abi import Kind, ReduceOp
from distrun._collectives import batch_call
from distrun._objects import allgather_object
from distrun.process_sets import ProcessSet, checked, global_process_set, number_kept, registered_id
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.spectral_norm import SpectralNorm

from ._adapter import CODES, collective, is_dense

Parameters: TypeAlias = torch.nn.Module | Mapping[str, torch.Tensor] | Iterable[Any]
Named: TypeAlias = list[tuple[str, torch.Tensor]]

# The treatment of a buffer: average over the ranks, copy from the set's lowest rank, or keep the rank's own.
_AVERAGE, _FIRST, _OWN = "average", "first", "own"
_HOW = (_AVERAGE, _FIRST, _OWN)

_POWER_ITERATIONS = 15  # as in torch for a new layer


class Buffers:
    """The treatment of each buffer.

    Running statistics are averaged. The average of other buffers (unit vectors, counts, masks) has no meaning.
    """

    def __init__(self, given: Mapping[str, str] | None) -> None:
        if given is not None and not isinstance(given, Mapping):
            raise TypeError(f"buffers={given!r}: pass a dict of names to 'average', 'first' or 'own'.")
        self.given = dict(given or {})
        for key, how in self.given.items():
            if not isinstance(key, str) or not key or how not in _HOW:
                raise ValueError(
                    f"buffers={{{key!r}: {how!r}}}: pass the name of a buffer, or its end, and 'average', 'first' "
                    "(the lowest rank's) or 'own' (each rank keeps its own)."
                )

    def key_of(self, name: str) -> str | None:
        """Returns the longest key that is the name, or its end."""
        fitting = [key for key in self.given if name.endswith(key)]
        return max(fitting, key=len, default=None)

    def how(self, name: str, tensor: torch.Tensor | None = None) -> str:
        """Returns the treatment of this buffer. Without a tensor, that of a buffer that has no average."""
        key = self.key_of(name)
        if key is not None:
            return self.given[key]
        running = name.rpartition(".")[2].startswith("running_")
        return _AVERAGE if running and tensor is not None and _has_average(tensor) else _FIRST

    def check(self, parameters: Named, buffers: Named) -> None:
        """Raises ValueError for a key that matches no buffer, or requests an average for a buffer without one."""
        used = {self.key_of(name) for name, _ in buffers}
        for key in self.given:
            if key in used:
                continue
            if any(name.endswith(key) for name, _ in parameters):
                raise ValueError(f"buffers={{{key!r}: ...}}: this is a parameter, and parameters are averaged.")
            names = ", ".join(name for name, _ in buffers[:10]) or "none"
            raise ValueError(
                f"buffers={{{key!r}: ...}}: no buffer has this name, or a name with this end. The buffers are: {names}."
            )
        for name, tensor in buffers:
            if self.how(name, tensor) == _AVERAGE and not _has_average(tensor):
                raise ValueError(
                    f"buffers={{{self.key_of(name)!r}: 'average'}}: {name} is {tensor.dtype}, which cannot be "
                    "averaged. Use 'first' or 'own'."
                )


class _Common(NamedTuple):
    """The tensors that all ranks have."""

    averaged: Named
    of_first: Named


class _Tensors:
    """Tensors as the program passed them. Only the program knows their meaning."""

    def __init__(self, parameters: Named, buffers: Named) -> None:
        self._parameters = parameters
        self._buffers = buffers

    def parameters(self) -> Named:
        """Returns the present parameters."""
        return self._parameters

    def buffers(self) -> Named:
        """Returns the present buffers."""
        return self._buffers

    def follow_weights(self, kinds: Buffers) -> None:
        """Recomputes the buffers that depend on the weights alone."""


class _Module(_Tensors):
    """A module. It may have replaced some of its tensors since the last step."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module

    def parameters(self) -> Named:
        return list(self._module.named_parameters())

    def buffers(self) -> Named:
        return list(self._module.named_buffers())

    def follow_weights(self, kinds: Buffers) -> None:
        """Recomputes the unit vectors of spectral_norm. Those of one rank's weights are far from those of the
        average."""
        for name, iterate in _power_iterations(self._module):
            if kinds.how(name) != _OWN:
                for _ in range(_POWER_ITERATIONS):
                    iterate()


class PeriodicAverage:
    """Counts steps, and averages when it is time. Made by periodic_average()."""

    def __init__(
        self,
        model: _Tensors,
        kinds: Buffers,
        period: int,
        warmup_steps: int,
        optimizer: torch.optim.Optimizer | None,
        process_set: ProcessSet,
    ) -> None:
        self.period = period
        self.warmup_steps = warmup_steps
        self.steps = 0
        self._model = model
        self._kinds = kinds
        self._optimizer = optimizer
        self._process_set = checked(process_set)
        self._prefix: str | None = None

    def step(self) -> bool:
        """Counts a step, and averages if it is time. Returns True if it has averaged.

        Call it after each optimizer.step(), on every rank of the set. It blocks when it averages.
        """
        self.steps += 1
        later = self.steps - self.warmup_steps
        due = later <= 0 or later % self.period == 0
        if due:
            self.average()
        return due

    @torch.no_grad()
    def average(self) -> None:
        """Averages now, independently of the count: before an evaluation or a checkpoint, or at the end. Collective;
        blocks."""
        registered_id(self._process_set)
        self._process_set.rank()
        if self._process_set.size() == 1:
            return
        averaged, of_first = self._agree()
        what = batch_call(Kind.ALLREDUCE, [self._name(name) for name, _ in averaged], self._process_set)
        tensors = [_real(tensor) for _, tensor in averaged]
        collective.same_size(tensors, what._replace(reduce=ReduceOp.AVERAGE), in_place=True).wait()
        self._model.follow_weights(self._kinds)
        what = batch_call(Kind.BROADCAST, [self._name(name) for name, _ in of_first], self._process_set)
        lowest = min(self._process_set.ranks or [0])
        tensors = [_as_it_travels(tensor) for _, tensor in of_first]
        collective.same_size(tensors, what._replace(root=lowest), in_place=True).wait()

    def state_dict(self) -> dict[str, int]:
        """Returns the number of steps, so that a resumed run averages at the same steps."""
        return {"steps": self.steps}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continues from a state of state_dict()."""
        self.steps = state["steps"]

    def _name(self, name: str) -> str:
        if self._prefix is None:
            self._prefix = f"periodic_average{number_kept('periodic_average', self._process_set)}"
        return f"{self._prefix}.{name}"

    def _agree(self) -> _Common:
        """Returns the parameters, and those buffers and tensors of _state() that every rank has.

        The state of a parameter without a gradient does not exist on that rank. A buffer may be created later, or
        depend on the rank's own data. The exchange takes place even without such tensors: it detects ranks that have
        joined, whose weights would count as zero.
        """
        parameters, buffers = self._model.parameters(), self._model.buffers()
        state = [] if self._optimizer is None else self._state(self._optimizer)
        how = {name: self._kinds.how(name, tensor) for name, tensor in buffers}
        buffers = [pair for pair in buffers if how[pair[0]] != _OWN and _travels(pair[1])]
        parameters, state = ([pair for pair in pairs if _has_average(pair[1])] for pairs in (parameters, state))
        pairs = _once([*parameters, *buffers, *state])
        always = {name for name, _ in parameters}
        own = {
            (how.get(name, _AVERAGE), name, str(tensor.dtype), *tensor.shape): name
            for name, tensor in pairs
            if name not in always
        }
        by_rank = allgather_object(list(own), self._name("state"), self._process_set)
        if len(by_rank) != self._process_set.size():
            raise errors.InvalidArgument(
                f"periodic_average: only {len(by_rank)} of the {self._process_set.size()} ranks average, because "
                "the others have called join(). Make the same number of steps on all ranks, or call average() on all "
                "ranks before join()."
            )
        _same_ways(by_rank)
        common = always.union(own[what] for what in set(own).intersection(*by_rank))
        both: tuple[Named, Named] = [], []
        for name, tensor in pairs:
            if name in common:
                both[how.get(name) == _FIRST and name not in always].append((name, tensor))
        return _Common(*both)

    def _state(self, optimizer: torch.optim.Optimizer) -> Named:
        """Returns the optimizer's tensors with the shape of their parameter. They exist from its first step on."""
        params = [param for options in optimizer.param_groups for param in options["params"]]
        return [
            (f"state.{index}.{key}", value)
            for index, param in enumerate(params)
            for key, value in optimizer.state.get(param, {}).items()
            if isinstance(value, torch.Tensor) and _has_average(value) and value.shape == param.shape
        ]


def _has_average(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _travels(tensor: torch.Tensor) -> bool:
    """False for tensors that stay the rank's own, for instance those of lazy modules."""
    return not torch.nn.parameter.is_lazy(tensor) and tensor.layout == torch.strided and not tensor.is_quantized


_BYTES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _as_it_travels(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the same memory; a dtype that distrun lacks is viewed as integers of the same size, which can be
    copied."""
    real = _real(tensor)
    return real if real.dtype in CODES else real.view(_BYTES[real.itemsize])


def _same_ways(by_rank: list[list[tuple[Any, ...]]]) -> None:
    ways: dict[str, str] = {}
    for how, name, *_ in (one for rows in by_rank for one in rows):
        if ways.setdefault(name, how) != how:
            raise errors.InvalidArgument(
                f"periodic_average: the buffer {name} is {ways[name]!r} on one rank and {how!r} on another. Pass the "
                "same buffers= on all ranks."
            )


def _power_iterations(model: torch.nn.Module) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yields a buffer's name for each spectral_norm (torch's older one and the parametrization), and its in-place
    update.
    """
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.utils.parametrize.ParametrizationList):
            for place, one in enumerate(module):
                if isinstance(one, _SpectralNorm):
                    yield f"{name}.{place}._u", functools.partial(_as_in_training, one, module)
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, SpectralNorm):
                iterate = functools.partial(hook.compute_weight, module, do_power_iteration=True)
                yield ".".join(filter(None, (name, f"{hook.name}_u"))), iterate


def _as_in_training(part: torch.nn.Module, whole: torch.nn.Module) -> None:
    training, part.training = part.training, True
    try:
        whole()
    finally:
        part.training = training


def _given(model: Parameters, kinds: Buffers) -> _Tensors:
    if isinstance(model, torch.nn.Module):
        module = _Module(model)
        kinds.check(module.parameters(), module.buffers())
        return module
    pairs = _parameters.named(model, torch.Tensor)
    buffers = [pair for pair in pairs if kinds.key_of(pair[0]) is not None]
    kinds.check([], buffers or pairs)
    return _Tensors([pair for pair in pairs if kinds.key_of(pair[0]) is None], buffers)


def _once(pairs: Named) -> Named:
    """Removes tied tensors' other names. A tensor that is in flight twice would be averaged with a partial result."""
    result: dict[tuple[Any, ...], tuple[str, torch.Tensor]] = {}
    for name, tensor in pairs:
        # The same memory, viewed in any shape, counts as one.
        form = (tensor.numel(),) if is_dense(tensor.shape, tensor.stride()) else (tensor.shape, tensor.stride())
        result.setdefault((tensor.data_ptr() or name, tensor.dtype, *form), (name, tensor.detach()))
    return list(result.values())


def periodic_average(
    model: Parameters,
    period: int,
    warmup_steps: int = 0,
    optimizer: torch.optim.Optimizer | None = None,
    process_set: ProcessSet = global_process_set,
    buffers: Mapping[str, str] | None = None,
) -> PeriodicAverage:
    """Averages the model's parameters over the ranks after every `period` steps. Use an ordinary optimizer with it.

    Broadcast the parameters first, so that all ranks begin with the same ones. Returns an object; call its step() after
    each optimizer.step().

    model: a module, or tensors in the forms of broadcast_parameters, which all count as parameters. Of a module's
    buffers, running statistics (`running_*`) are averaged too. Others are copied from the set's lowest rank, if all
    ranks have them in the same shape. buffers: "average", "first" (the lowest rank's) or "own" (each rank keeps its
    own) for a buffer's name, or for the end of names: {"queue": "own"}.

    warmup_steps: the number of first steps with an average after each one. For SGD, with or without momentum, these are
    steps with averaged gradients, so the whole is post-local SGD. optimizer: average its momenta too, if all ranks have
    them. ValueError for wrong arguments.
    """
    if period < 1:
        raise ValueError(f"period must be a number of steps, at least 1, not {period!r}.")
    if warmup_steps < 0:
        raise ValueError(f"warmup_steps must be a number of steps, at least 0, not {warmup_steps!r}.")
    kinds = Buffers(buffers)
    return PeriodicAverage(_given(model, kinds), kinds, period, warmup_steps, optimizer, process_set)
