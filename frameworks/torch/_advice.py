"""Error texts for training loops that use a DistributedOptimizer in a way that cannot work."""

from __future__ import annotations

# Users may not notice that a second backward runs through the same parameter.
FREEZE = (
    "If another optimizer's backward runs through it (a GAN's discriminator), freeze it with requires_grad_(False), "
    "or call that optimizer's synchronize() afterwards."
)

COMES_BACK = (
    "a signal handler or a Compressor has called the DistributedOptimizer that is running it, directly or by "
    "backward through its parameters. Set a flag there, and act on it after optimizer.step()."
)


def too_many(name: str) -> AssertionError:
    return AssertionError(
        f"Gradients were computed more than backward_passes_per_step times before call to step(): that of {name} "
        f"comes again. Increase backward_passes_per_step to accumulate gradients locally. {FREEZE} For a checkpoint "
        "of activations, pass use_reentrant=False."
    )
