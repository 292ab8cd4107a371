"""Limits JAX to this rank's own GPUs. JAX takes all visible GPUs when its backends start, so this must come first."""

from __future__ import annotations

import warnings

import jax
from distrun import _session


def select() -> None:
    """Limits JAX to the GPUs that the launcher gave to this rank. Does nothing if it gave none."""
    own = _session.world().gpus
    if not own:
        return
    if not _started():
        jax.config.update("jax_cuda_visible_devices", ",".join(map(str, own)))
    elif jax.default_backend() == "gpu" and len(jax.local_devices()) != len(own):
        raise RuntimeError(
            f"JAX has already started with {len(jax.local_devices())} GPUs, but this rank has GPU "
            f"{', '.join(map(str, own))}. Call hvd.init() before anything that makes JAX look for devices, or start "
            "with distrun --gpu-visibility one."
        )


def _started() -> bool:
    try:
        from jax._src import xla_bridge

        started: bool = xla_bridge.backends_are_initialized()
        return started
    except (ImportError, AttributeError):
        warnings.warn(
            "this version of JAX does not tell whether it has started. Call hvd.init() before you use JAX.",
            stacklevel=3,
        )
        return False
