"""Error texts for training loops that use a DistributedOptimizer in a way that cannot work."""

from __future__ import annotations

# Users may not notice that a second backward runs through the same parameter.
FREEZE = (
    "If another optimizer's backward runs through it (a GAN's discriminator), freeze it meanwhile with "
    "requires_grad_(False), or call its optimizer's synchronize() afterwards."
)

COMES_BACK = (
    "a signal handler or a Compressor has come back to the DistributedOptimizer in whose work it runs, by a call or by "
    "backward through its parameters. Set a flag there, and act on it after optimizer.step()."
)


def too_many(name: str) -> AssertionError:
    return AssertionError(
        "Gradients were computed more than backward_passes_per_step times before call to step(): that of "
        f"{name} comes again. {FREEZE} Increase backward_passes_per_step to accumulate gradients locally. A checkpoint "
        "of activations that computes it twice takes use_reentrant=False."
    )
