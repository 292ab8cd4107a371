"""Optimizers and trainers that use the gradients of all ranks."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import mxnet as mx
from distrun import _arguments, _compression
from distrun._abi import Kind, ReduceOp
from distrun._collectives import Call, batch_call
from distrun._compression import Compressor
from distrun.process_sets import ProcessSet, checked, global_process_set, has_peers, registered_id

from ._adapter import Array, collective
from .compression import Compression


def _averaging(names: Sequence[str], process_set: ProcessSet, predivide: float) -> Call:
    """Returns the call that averages gradients: it divides by `predivide` before the sum, and by the rest after it."""
    what = batch_call(Kind.ALLREDUCE, names, process_set)
    if predivide == 1.0:
        return what._replace(reduce=ReduceOp.AVERAGE)
    members = process_set.size() or 1
    return what._replace(reduce=ReduceOp.SUM, prescale=1.0 / predivide, postscale=predivide / members)


# Attributes of DistributedOptimizer. All others belong to the wrapped optimizer.
_OWN = frozenset({"_optimizer", "_predivide", "_process_set"})


class DistributedOptimizer(mx.optimizer.Optimizer):
    """An optimizer that averages the gradients over the ranks before each update; for Module and for your own loops.

    gradient_predivide_factor: divide by this factor before the sum, and by the rest after it. num_groups is Horovod's
    and has no effect: all gradients of one update are one batch. ValueError if `optimizer` is distributed already,
    TypeError if it is no optimizer of MXNet.
    """

    def __init__(
        self,
        optimizer: Any,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        _arguments.count("num_groups", num_groups)
        if isinstance(optimizer, DistributedOptimizer):
            raise ValueError("the optimizer is already distributed.")
        if not isinstance(optimizer, mx.optimizer.Optimizer):
            name = optimizer if isinstance(optimizer, str) else "sgd"
            raise TypeError(
                f"optimizer must be one of mx.optimizer, such as mx.optimizer.create({name!r}), not {optimizer!r:.60}."
            )
        self._optimizer = optimizer
        self._predivide = _arguments.predivide(gradient_predivide_factor)
        self._process_set = checked(process_set)

    def __getattr__(self, item: str) -> Any:
        if "_optimizer" not in self.__dict__:  # a copy without attributes yet
            raise AttributeError(item)
        return getattr(self._optimizer, item)

    def __setattr__(self, item: str, value: Any) -> None:
        if item in _OWN:
            super().__setattr__(item, value)
        else:  # learning rate, factors and attributes that MXNet's Trainer and Module set
            setattr(self._optimizer, item, value)

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def create_state_multi_precision(self, index: Any, weight: Any) -> Any:
        """Calls the wrapped optimizer."""
        return self._optimizer.create_state_multi_precision(index, weight)

    def create_state(self, index: Any, weight: Any) -> Any:
        """Calls the wrapped optimizer."""
        return self._optimizer.create_state(index, weight)

    def set_learning_rate(self, lr: float) -> None:
        """Calls the wrapped optimizer."""
        self._optimizer.set_learning_rate(lr)

    def set_lr_mult(self, args_lr_mult: Any) -> None:
        """Calls the wrapped optimizer."""
        self._optimizer.set_lr_mult(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: Any) -> None:
        """Calls the wrapped optimizer."""
        self._optimizer.set_wd_mult(args_wd_mult)

    def _reduce(self, index: Any, gradient: Any) -> None:
        if not has_peers(self._process_set):
            return
        indices, gradients = (index, gradient) if isinstance(index, list | tuple) else ([index], [gradient])
        what = _averaging([f"gradient.{one}" for one in indices], self._process_set, self._predivide)
        collective.same_size(gradients, what, in_place=True).wait()

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Averages the gradients over the ranks, then updates the weights."""
        self._reduce(index, grad)
        self._optimizer.update(index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Averages the gradients over the ranks, then updates the weights."""
        self._reduce(index, grad)
        self._optimizer.update_multi_precision(index, weight, grad, state)


class DistributedTrainer(mx.gluon.Trainer):
    """A gluon.Trainer that uses the average of all ranks' gradients.

    `step(batch_size)` takes this rank's batch size. After `allreduce_grads()` the gradients are the sum over the ranks
    (divided by gradient_predivide_factor), as in Horovod; `update(batch_size)` then divides by the number of ranks. So
    clipping between the two calls clips the sum.

    num_groups is Horovod's and has no effect: all gradients are one batch. prefix: a text before the names, for two
    trainers that train parameters of the same names.
    """

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: dict[str, Any] | None = None,
        compression: type[Compressor] = Compression.none,
        gradient_predivide_factor: float = 1.0,
        prefix: str | None = None,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        _arguments.count("num_groups", num_groups)
        predivide = _arguments.predivide(gradient_predivide_factor)
        if isinstance(optimizer, DistributedOptimizer):
            warnings.warn(
                "DistributedTrainer averages the gradients itself, so it uses the optimizer inside this one.",
                stacklevel=2,
            )
            optimizer = optimizer._optimizer
        if not isinstance(optimizer, str | mx.optimizer.Optimizer):
            raise TypeError(
                f"optimizer must be a name or one of mx.optimizer, such as mx.optimizer.SGD(), not {optimizer!r:.60}."
            )
        registered_id(process_set)
        _compression.check(compression)
        super().__init__(params, optimizer, optimizer_params, kvstore=None)
        self._compression = compression
        self._predivide = predivide
        self._prefix = _arguments.name(prefix, "prefix") or ""
        self._process_set = process_set
        if process_set.included():
            self._scale *= predivide / (process_set.size() or 1)

    def _allreduce_grads(self) -> None:
        if not self._process_set.included():
            return
        trained = [one for one in self._params if one.grad_req != "null"]
        names = [f"gradient.{self._prefix}{one.name}" for one in trained]
        gradients: list[Array] = []
        for one in trained:
            gradients += one.list_grad()
        if len(gradients) != len(trained):
            raise ValueError("each rank has its parameters on one device. Start one rank for each device.")
        small = [self._compression.compress(one) for one in gradients]
        what = batch_call(Kind.ALLREDUCE, names, self._process_set)
        what = what._replace(reduce=ReduceOp.SUM, prescale=1.0 / self._predivide)
        later = 1.0
        if self._compression is not Compression.none:  # a sum may overflow where the average does not
            what = _averaging(names, self._process_set, self._predivide)
            later = (self._process_set.size() or 1) / self._predivide
        results = collective.same_size([one for one, _ in small], what, in_place=True).wait()
        for gradient, result, (_, context) in zip(gradients, results, small, strict=True):
            if result is not gradient or later != 1.0:
                gradient[:] = self._compression.decompress(result, context) * later
