"""SyncBatchNorm: batch normalization with the mean and variance of all ranks' batches together."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from distrun._abi import Kind, ReduceOp
from distrun._collectives import call
from distrun.process_sets import ProcessSet, checked, global_process_set, number_kept, registered_id
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from ._adapter import collective


class _Statistics(NamedTuple):
    """Statistics of each channel over all ranks' batches. squares: the sum of squared distances from the mean."""

    mean: torch.Tensor
    squares: torch.Tensor
    samples: int


class _Ranks(NamedTuple):
    """The ranks that normalize together, and the name of their operations."""

    process_set: ProcessSet
    name: str

    def gather(self, row: torch.Tensor) -> torch.Tensor:
        """Returns the rows of all ranks that have not joined."""
        what = call(Kind.ALLGATHER, f"{self.name}.statistics", self.process_set)
        rows: torch.Tensor = collective.allgather([row[None]], what).wait()
        return rows

    def total(self, tensor: torch.Tensor) -> torch.Tensor:
        what = call(Kind.ALLREDUCE, f"{self.name}.grad", self.process_set, reduce=ReduceOp.SUM)
        result: torch.Tensor = collective.same_size([tensor], what, in_place=False).wait()
        return result


def _all_but_channels(tensor: torch.Tensor) -> list[int]:
    return [dim for dim in range(tensor.dim()) if dim != 1]


def _by_channel(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return values.reshape([1, -1, *[1] * (like.dim() - 2)])


def _own_row(tensor: torch.Tensor) -> torch.Tensor:
    """Returns this rank's means, sums of squared distances and count. In float64, to keep the digits when merged."""
    channels = tensor.shape[1]
    count = tensor.numel() // max(1, channels)
    if count == 0:
        return tensor.new_zeros(2 * channels + 1, dtype=torch.float64)
    wide = tensor.float() if tensor.dtype.itemsize < 4 else tensor
    variance, mean = torch.var_mean(wide, _all_but_channels(tensor), correction=0)
    return torch.cat([mean.double(), variance.double() * count, mean.new_tensor([count], dtype=torch.float64)])


def _merged(rows: torch.Tensor) -> _Statistics:
    """Merges the ranks' statistics into those of all values (Chan, Golub and LeVeque's formula)."""
    channels = rows.shape[1] // 2
    means, squares, counts = rows[:, :channels], rows[:, channels:-1], rows[:, -1:]
    count = counts.sum()
    mean = (means * counts).sum(0) / count
    between = (counts * (means - mean).square()).sum(0)
    return _Statistics(mean, squares.sum(0) + between, int(count.item()))


class _Normalize(torch.autograd.Function):
    """Computes the layer's output from statistics that depend on the inputs of all ranks."""

    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        statistics: _Statistics,
        eps: float,
        ranks: _Ranks,
    ) -> torch.Tensor:
        # One dtype for all values per channel, and no narrow one, because statistics need the digits.
        dtype = torch.promote_types(tensor.dtype if weight is None else weight.dtype, torch.float32)
        wide_weight, wide_bias = (None if one is None else one.to(dtype) for one in (weight, bias))
        mean, variance = statistics.mean, statistics.squares / statistics.samples
        ctx.save_for_backward(tensor, weight, mean, (variance + eps).rsqrt())
        ctx.ranks, ctx.samples = ranks, statistics.samples
        return torch.nn.functional.batch_norm(
            tensor, mean.to(dtype), variance.to(dtype), wide_weight, wide_bias, False, 0.0, eps
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        tensor, weight, mean, scale = ctx.saved_tensors
        dtype = torch.promote_types(tensor.dtype, torch.float32)
        centred = (tensor.to(dtype) - _by_channel(mean.to(dtype), tensor)) * _by_channel(scale.to(dtype), tensor)
        wide, dims = gradient.to(dtype), _all_but_channels(tensor)
        sums = torch.stack([wide.sum(dims), (wide * centred).sum(dims)])
        of_input = None
        if ctx.needs_input_grad[0]:
            over_all = (ctx.ranks.total(sums.double()) / ctx.samples).to(dtype)
            factor = scale.to(dtype) if weight is None else scale.to(dtype) * weight.to(dtype)
            of_input = wide - _by_channel(over_all[0], tensor) - centred * _by_channel(over_all[1], tensor)
            of_input = (of_input * _by_channel(factor, tensor)).to(tensor.dtype)
        # From this rank's rows only, like the gradient of every parameter: the optimizer reduces them.
        of_weight = sums[1].to(weight.dtype) if ctx.needs_input_grad[1] else None
        of_bias = sums[0] if ctx.needs_input_grad[2] else None
        return of_input, of_weight, of_bias, None, None, None


class SyncBatchNorm(_BatchNorm):
    """Batch normalization for inputs of two or more dimensions. In training it uses all batches of the set's ranks.

    Ranks may have batches of different sizes, or empty ones. In eval mode, and on one rank, it works like torch's
    layer. The arguments are those of torch's layer and the process set. Every rank of the set must call it in training.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_set: ProcessSet = global_process_set,
        *,
        device: Any = None,
        dtype: torch.dtype | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device=device, dtype=dtype)
        if not bias:
            self.register_parameter("bias", None)  # not passed on: layers of older PyTorch lack this argument
        self.process_set = checked(process_set)
        self._number: int | None = None

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Returns the normalized input. In training it waits for the other ranks' statistics."""
        self._check_input_dim(input)
        if not self.training or self._members() == 1:
            output: torch.Tensor = super().forward(input)
            return output
        ranks = _Ranks(self.process_set, self._name())
        statistics = _merged(ranks.gather(_own_row(input.detach())))
        if statistics.samples <= 1:
            raise ValueError(f"Expected more than 1 value per channel when training, got input size {input.size()}")
        self._track(statistics)
        result: torch.Tensor = _Normalize.apply(input, self.weight, self.bias, statistics, self.eps, ranks)
        return result

    @classmethod
    def convert_sync_batchnorm(
        cls, module: torch.nn.Module, process_set: ProcessSet = global_process_set
    ) -> torch.nn.Module:
        """Replaces every BatchNorm layer in `module` by a SyncBatchNorm with the same parameters, and returns the
        module.

        The parameters and statistics stay the same objects, so the optimizer may be created before or after.
        """
        if isinstance(module, _BatchNorm):
            return cls._from(module, process_set)
        for name, child in module.named_children():
            setattr(module, name, cls.convert_sync_batchnorm(child, process_set))
        return module

    @classmethod
    def _from(cls, layer: _BatchNorm, process_set: ProcessSet) -> SyncBatchNorm:
        made = cls(layer.num_features, layer.eps, layer.momentum, False, layer.track_running_stats, process_set)
        made.affine, made.weight, made.bias = layer.affine, layer.weight, layer.bias
        made.running_mean, made.running_var = layer.running_mean, layer.running_var
        made.num_batches_tracked = layer.num_batches_tracked
        return made.train(layer.training)

    def _members(self) -> int:
        registered_id(self.process_set)
        self.process_set.rank()
        return self.process_set.size() or 1

    def _name(self) -> str:
        # By the order of the layers' first use, which is the same on all ranks. The order of their creation may differ.
        if self._number is None:
            self._number = number_kept("sync_batch_norm", self.process_set)
        return f"sync_batch_norm.{self._number}"

    @torch.no_grad()
    def _track(self, statistics: _Statistics) -> None:
        """Updates the running statistics like torch's layer with the whole batch."""
        if self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        share = self.momentum if self.momentum is not None else 1.0 / float(self.num_batches_tracked)
        unbiased = statistics.squares / (statistics.samples - 1)
        self.running_mean.lerp_(statistics.mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), share)
