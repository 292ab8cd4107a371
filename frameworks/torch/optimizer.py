"""DistributedOptimizer: a torch optimizer whose steps use the gradients of all ranks."""

from __future__ import annotations

import contextlib
import functools
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from distrun import _arguments, _collectives
from distrun._abi import ReduceOp
from distrun.process_sets import ProcessSet, global_process_set, has_peers, number_kept
from torch.utils.weak import WeakIdKeyDictionary

from . import _plain
from ._advice import FREEZE
from ._reducer import Reducer
from ._sharing import Options
from ._slot import too_late
from .compression import Compression, Compressor
from .ops import allreduce

Closure = Callable[[], Any]


@contextlib.contextmanager
def kept_groups(optimizer: Any) -> Iterator[None]:
    """Applies changes of the groups inside the context to the existing group objects, since a scheduler may hold
    them."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        yield
        return
    groups = optimizer.param_groups
    kept = list(groups)
    yield
    now = optimizer.param_groups
    for old, new in zip(kept, now, strict=False):
        if new is not old:
            old.clear()
            old.update(new)
    groups[:] = kept[: len(now)] + now[len(kept) :]
    optimizer.param_groups = groups


class InFront(torch.optim.Optimizer):
    """The base class put before the wrapped optimizer's class; never instantiated alone. See DistributedOptimizer."""

    _reducer: Reducer
    _active: bool
    _parameter_names: dict[torch.Tensor, str]  # Horovod's attribute, which programs read
    # The count of arrived gradients at the last reduction: by synchronize(), and for a scaler (with whether they were
    # finite). None once used. A gradient that arrives later invalidates both.
    _synchronized: int | None
    _reduced_for_scaler: tuple[int, torch.Tensor] | None
    _should_synchronize: bool
    _next_group: int  # never reused: gradients of parameters that have left may still be in flight
    _regrouped: bool  # add_param_group was called; parameters without a group are to be removed
    _left: WeakIdKeyDictionary  # the names of parameters that were removed

    def __init__(self, *_: Any, **__: Any) -> None:
        raise TypeError(
            "the class of a distributed optimizer cannot be used or derived from directly. Call "
            "hvd.DistributedOptimizer(optimizer, ...). To change what is sent, pass compression= a class with "
            "compress and decompress."
        )

    def _distribute(self, reducer: Reducer, names: dict[torch.Tensor, str], active: bool) -> None:
        self._reducer = reducer
        reducer.contested.owner = weakref.ref(self)
        self._parameter_names = names
        self._active = active
        self._synchronized = self._reduced_for_scaler = None
        self._should_synchronize = True
        self._next_group = len(self.param_groups)
        self._regrouped = False
        self._left = WeakIdKeyDictionary()

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """The wrapped optimizer's value. Reading it reduces the gradients first.

        GradScaler.step reads it before it checks the gradients, and Lightning before it unscales and clips them. All
        ranks must check the same gradients; otherwise an overflow would skip the step on some ranks only.
        """
        if self._active and self._reducer.arrived != self._synchronized and not self._is_reduced_for_scaler():
            self._finish()
            self._reduced_for_scaler = self._reducer.arrived, self._reducer.finite()
        own = getattr(super(), "_step_supports_amp_scaling", False)
        return bool(self.__dict__.get("_step_supports_amp_scaling", own))

    def _is_reduced_for_scaler(self) -> bool:
        if self._reduced_for_scaler is None:
            return False
        # A skipped step is not reported, and the next step's gradients need not come from backward. But a scaler takes
        # no step with gradients that are not finite. Ranks agree on that: if this is read twice, all ranks reduce
        # twice.
        arrived, finite = self._reduced_for_scaler
        return arrived == self._reducer.arrived and bool(finite)

    def _refuse_unscaling(self) -> None:
        if self._reducer.outstanding():
            raise too_late(self._reducer.first_outstanding(), "to be unscaled by GradScaler.unscale_")

    def synchronize(self) -> None:
        """Waits until the gradients of all ranks are reduced into the parameters' `grad`.

        Call it before reading gradients (clipping, GradScaler.unscale_), and then step inside skip_synchronize().
        Raises a DistrunError of the reduction.
        """
        if self._active and not self._is_reduced_for_scaler():
            self._finish()
        self._synchronized = self._reducer.arrived

    def _finish(self) -> None:
        self._take_in()
        self._reducer.use()
        self._reducer.finish()

    def _take_in(self) -> None:
        """Adds removed parameters again that the program has put back without add_param_group."""
        if self._left:
            for param in [param for options in self.param_groups for param in options["params"]]:
                if param in self._left:
                    self._add(param, self._left[param])

    def _let_go(self) -> None:
        """Removes parameters that are in no group any more. Only between steps, when no rank has their gradients in
        flight.

        Only after add_param_group. Without it, other parameters may replace them (apex's float32 copies), or they come
        back after some steps.
        """
        if self._regrouped and not self._reducer.outstanding():
            for param in self._reducer.keep([param for options in self.param_groups for param in options["params"]]):
                self._left[param] = self._parameter_names.pop(param)
            self._regrouped = False

    def _add(self, param: torch.Tensor, name: str) -> None:
        name = self._parameter_names.setdefault(param, self._left.pop(param, name))
        if self._active:
            self._reducer.add(param, name, None)

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """A step inside this context does not synchronize, because synchronize() was called before."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Closure | None = None) -> Any:
        """Synchronizes and steps. The gradients that a closure computes are synchronized each time it runs."""
        if closure is not None and self._active:
            return self._step_with(closure)
        arrived = self._reducer.arrived
        if self._should_synchronize and not self._is_reduced_for_scaler():
            if self._synchronized == arrived and self._active:
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize() context after "
                    "optimizer.synchronize(). Put the step into `with optimizer.skip_synchronize():`.",
                    stacklevel=2,
                )
            if self._synchronized != arrived:
                self.synchronize()
        self._synchronized = self._reduced_for_scaler = None
        result = super().step(closure)
        self._let_go()
        return result

    def _step_with(self, closure: Closure) -> Any:
        if self._reducer.outstanding():
            self.synchronize()

        def synchronized() -> Any:
            loss = closure()
            # A closure that clips has reduced them itself. If it computes nothing, earlier reductions remain valid.
            if self._synchronized != self._reducer.arrived:
                self.synchronize()
            self._synchronized = None
            # LBFGS chooses the number of evaluations by the loss, so all ranks must see the same number.
            if isinstance(self, torch.optim.LBFGS):
                options = self._reducer.options
                value = torch.as_tensor(loss, dtype=None if isinstance(loss, torch.Tensor) else torch.float64).detach()
                op = ReduceOp.SUM if options.op == ReduceOp.SUM else ReduceOp.AVERAGE
                return allreduce(value, op=op, process_set=options.process_set)
            return loss

        result = super().step(synchronized)
        self._synchronized = self._reduced_for_scaler = None
        self._let_go()
        return result

    # Not every optimizer accepts torch's argument.
    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Like the optimizer's own zero_grad. AssertionError while gradients are in flight."""
        if self._reducer.contested.in_use and self._reducer.outstanding():
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                "optimizer.synchronize(). This is prohibited as it can cause a race condition: the gradient of "
                f"{self._reducer.first_outstanding()} is on its way. {FREEZE}"
            )
        self._reducer.use()
        self._reducer.contested.drop()
        if self._reducer.options.passes > 1:  # the gradients of the passes so far are dropped
            self._reducer.reset()
        # Reduced gradients are gone, also those of a step that the scaler skipped.
        self._synchronized = self._reduced_for_scaler = None
        self._let_go()
        self._take_in()
        super().zero_grad(*args, **kwargs)

    @property
    def backward_passes_per_step(self) -> int:
        """The number of backward passes per step. Setting it calls set_backward_passes_per_step()."""
        return self._reducer.options.passes

    @backward_passes_per_step.setter
    def backward_passes_per_step(self, passes: int) -> None:
        self.set_backward_passes_per_step(passes)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Sends gradients after this many backward passes from now on. ValueError below 1."""
        if passes <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        if self._reducer.outstanding():
            self._finish()
            self._reduced_for_scaler = self._reducer.arrived, torch.tensor(True)  # so step() does not reduce them again
        self._reducer.reset(passes)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Like the optimizer's own load_state_dict. Also restarts the count of passes, and drops compression errors."""
        self._reducer.reset()
        self._reducer.forget_errors()
        self._synchronized = self._reduced_for_scaler = None
        self._should_synchronize = True
        self._load(state_dict)

    def _load(self, state_dict: dict[str, Any]) -> None:
        """Calls the wrapped optimizer's load_state_dict. distrun's state continues, as on the rank that sends its
        state."""
        with kept_groups(self):
            super().load_state_dict(state_dict)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Like the optimizer's own add_param_group. The new parameters are distributed too.

        From the next step on, parameters that are in no group then are no longer reduced.
        """
        super().add_param_group(param_group)
        self._regrouped = True
        for index, param in enumerate(self.param_groups[-1]["params"]):
            self._add(param, f"noname.{self._next_group}.{index}")
        self._reducer.use_new()
        self._next_group += 1

    def __reduce_ex__(self, _: Any) -> tuple[Any, ...]:
        """Copies and pickles as the wrapped optimizer does; the result is distributed again, with the same options.

        All members of the process set copy or load it in the same order, as they make optimizers. TypeError while
        gradients are in flight.
        """
        if self._reducer.outstanding():
            raise TypeError(
                f"a DistributedOptimizer cannot be copied now: the gradient of {self._reducer.first_outstanding()} is "
                "on its way. Copy it after optimizer.step() or optimizer.synchronize()."
            )
        kind = type(self).__bases__[0].__bases__[1]
        wrapped: torch.optim.Optimizer = object.__new__(kind)
        own = {"step", *InFront.__annotations__}
        wrapped.__dict__.update({name: value for name, value in self.__dict__.items() if name not in own})
        names = [(self._parameter_names[param], param) for options in self.param_groups for param in options["params"]]
        return _distributed_again, (wrapped, names, self._reducer.options._asdict(), self._reducer.groups())


def _look_at_unscaling() -> None:
    """Patches GradScaler.unscale_ to refuse gradients in flight, because torch does not count its changes of
    gradients."""
    unscale = torch.amp.GradScaler.unscale_

    @functools.wraps(unscale)
    def unscale_(self: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> None:
        if isinstance(optimizer, InFront) and self.is_enabled():
            optimizer._refuse_unscaling()
        unscale(self, optimizer)

    torch.amp.GradScaler.unscale_ = unscale_  # type: ignore[method-assign]


_look_at_unscaling()

_DistributedOptimizer = InFront  # programs import Horovod's name for annotations and isinstance

# Otherwise torch would wrap this step again when a state is loaded, and run the step hooks twice. The inner step has
# them.
InFront.step.hooked = True  # type: ignore[attr-defined]


def _named(
    optimizer: torch.optim.Optimizer, named_parameters: Iterable[tuple[str, torch.Tensor]] | None
) -> dict[torch.Tensor, str]:
    """Returns a name for each parameter of the optimizer. ValueError if the given names do not fit."""
    if named_parameters is None:
        return {
            param: f"noname.{group}.{index}"
            for group, options in enumerate(optimizer.param_groups)
            for index, param in enumerate(options["params"])
        }
    pairs = list(named_parameters)
    if any(not isinstance(pair, tuple) or len(pair) != 2 for pair in pairs):
        raise ValueError(
            "named_parameters should be a sequence of tuples (name, parameter), usually produced by "
            "model.named_parameters()."
        )
    names = [name for name, _ in pairs]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) != len(names) else []
    if twice:
        raise ValueError(f"Parameter names in named_parameters must be unique. Found duplicates: {', '.join(twice)}")
    result = {param: name for name, param in pairs}
    unnamed = [
        f"param_groups[{group}]['params'][{index}] of shape {tuple(param.shape)}"
        for group, options in enumerate(optimizer.param_groups)
        for index, param in enumerate(options["params"])
        if param not in result
    ]
    if unnamed:
        raise ValueError(
            f"named_parameters was specified, but one or more model parameters were not named: {', '.join(unnamed[:5])}"
        )
    return result


def _grouping(
    params: list[torch.Tensor], groups: int | Sequence[Sequence[torch.Tensor]] | None
) -> dict[torch.Tensor, int]:
    """Returns the group's number for each parameter in a group."""
    groups = _arguments.whole(groups)
    if groups is None or (isinstance(groups, int) and groups == 0):
        return {}
    if isinstance(groups, int):
        if groups < 0:
            raise ValueError("groups should be a non-negative integer or a list of lists of parameters.")
        size, longer = divmod(len(params), groups)
        _collectives.check_group(f"the first of groups={groups}", size + bool(longer))
        starts = [index * size + min(index, longer) for index in range(groups + 1)]
        return {param: group for group in range(groups) for param in params[starts[group] : starts[group + 1]]}
    if not isinstance(groups, list | tuple) or any(not isinstance(group, list | tuple) for group in groups):
        raise ValueError("groups should be a non-negative integer or a list of lists of parameters.")
    result: dict[torch.Tensor, int] = {}
    for number, group in enumerate(groups):
        for param in group:
            if not isinstance(param, torch.Tensor):
                raise ValueError(f"groups must consist of lists of torch.Tensor, not of {type(param).__name__}.")
            if param in result:
                raise ValueError("a parameter appears in more than one of the groups.")
            result[param] = number
    for number, size in Counter(result.values()).items():
        _collectives.check_group(f"groups[{number}]", size)
    return result


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = ReduceOp.AVERAGE,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[torch.Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns an optimizer like `optimizer`, with its parameters and state, that reduces gradients before each step.

    Gradients are sent while backward still computes others. compression: see Compression. backward_passes_per_step:
    send the sum of the gradients of this many local passes. gradient_predivide_factor: divide by this part of the
    average before the sum, for dtypes with a small range. groups: parameters whose gradients are reduced together, as a
    number of equal groups or as lists of parameters. sparse_as_dense: reduce sparse gradients as dense ones, which they
    stay for the step (except in SparseAdam). op: Average, Sum, Min, Max or Product.

    Start with equal parameters: broadcast_parameters(). ValueError for arguments that do not fit together.
    """
    if isinstance(optimizer, InFront):
        raise ValueError("the optimizer is already distributed.")
    active = has_peers(process_set)
    reduce = _collectives.reduce_op(op)
    gradient_predivide_factor = _arguments.predivide(gradient_predivide_factor)
    if gradient_predivide_factor != 1.0 and reduce != ReduceOp.AVERAGE:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    if num_groups not in (0, None):  # programs pass on an option of their own that was never set
        warnings.warn("num_groups is deprecated; use groups.", DeprecationWarning, stacklevel=2)
        if num_groups < 0:
            raise ValueError("num_groups must be a non-negative integer.")
        groups = num_groups if groups is None else groups
    names = _named(optimizer, named_parameters)
    params = [param for options in optimizer.param_groups for param in options["params"]]
    grouping = _grouping([param for param in params if param.requires_grad], groups)
    options = Options(
        compression,
        reduce,
        gradient_predivide_factor,
        backward_passes_per_step,
        sparse_as_dense,
        process_set,
        steps_sparse=isinstance(optimizer, torch.optim.SparseAdam),
    )
    reducer = Reducer(options, _prefix(process_set))
    if active:
        sets = {number: reducer.new_group(number) for number in sorted(set(grouping.values()))}
        for param in params:
            reducer.add(param, names[param], sets[grouping[param]] if param in grouping else None)
    _plain.forget(optimizer)
    reducer.use_new()
    return _wrap(optimizer, reducer, names, active)


def _distributed_again(
    optimizer: torch.optim.Optimizer,
    names: list[tuple[str, torch.Tensor]],
    options: dict[str, Any],
    groups: list[list[torch.Tensor]],
) -> Any:
    """Makes the copy of a DistributedOptimizer. A pickle has this function's name."""
    return DistributedOptimizer(
        optimizer,
        names,
        compression=options["compression"],
        backward_passes_per_step=options["passes"],
        op=options["op"],
        gradient_predivide_factor=options["predivide"],
        groups=groups or None,
        sparse_as_dense=options["sparse_as_dense"],
        process_set=options["process_set"],
    )


def _prefix(process_set: ProcessSet) -> str:
    """Returns the prefix that separates the optimizers of a set. All members create them in the same order."""
    number = number_kept("optimizer", process_set)
    return f"optimizer{number}." if number else ""


def _wrap(optimizer: torch.optim.Optimizer, reducer: Reducer, names: dict[torch.Tensor, str], active: bool) -> InFront:
    kind = type(optimizer)
    names_of = {"__module__": kind.__module__, "__doc__": kind.__doc__}
    # Two classes: Lightning 1.x builds its wrapper from the first base, and expects the wrapped class's methods there.
    front = type(kind.__name__, (InFront, kind), names_of)
    instance: InFront = object.__new__(type(kind.__name__, (front,), names_of))
    # __init__ is not called: parameters, state, options and hooks are the wrapped optimizer's own. A scheduler created
    # earlier has put its own `step` into the instance, which would hide the distributed one.
    instance.__dict__.update({name: value for name, value in optimizer.__dict__.items() if name != "step"})
    instance._distribute(reducer, names, active)
    # That scheduler checks the optimizer that it was made from, and would warn that it steps before the optimizer.
    optimizer._opt_called = True  # type: ignore[attr-defined]
    return instance
