"""init: the job, this rank's GPU, and no TF_CONFIG of the launcher's."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from distrun import _session, basics
from distrun.process_sets import ProcessSet


def init(
    comm: Any = None,
    process_sets: Sequence[ProcessSet] | str | None = None,
    *,
    settings: Mapping[str, object] | None = None,
) -> None:
    """Joins the job (see distrun.init) and lets TensorFlow see this rank's own GPU only, among those it could see.

    Call it before TensorFlow uses a GPU. In a rank of a job TF_CONFIG is taken out of the environment, unless
    distrun --tf or --tf-roles set it for a tf.distribute strategy: an Estimator would start a cluster of its own with
    it.
    """
    basics.init(comm, process_sets, settings=settings)
    # What somebody else has set for a process alone is not ours to take.
    if ("DISTRUN_RANK" in os.environ or basics.size() > 1) and "DISTRUN_TF" not in os.environ:
        os.environ.pop("TF_CONFIG", None)
    if basics.size() > 1:
        select_gpu(_session.world().gpus or (basics.local_rank(),))


def no_autograph() -> None:
    """Keeps autograph from rewriting this package: it holds no data-dependent control flow, and conversion is slow."""
    try:
        from tensorflow.python.autograph.core import config
    except ImportError:
        return
    config.CONVERSION_RULES = (config.DoNotConvert("distrun"), *config.CONVERSION_RULES)


def select_gpu(own: Sequence[int]) -> None:
    """Hides all GPUs but the first of `own`, which are numbered among those that TensorFlow sees."""
    gpus = tf.config.list_physical_devices("GPU")
    # None, or this rank's own; or the program has chosen for itself.
    if len(gpus) < 2 or len(tf.config.get_visible_devices("GPU")) < 2:
        return
    if own[0] >= len(gpus):
        raise RuntimeError(
            f"rank {basics.rank()} has no GPU of its own: TensorFlow sees {len(gpus)}, and this rank's would be number "
            f"{own[0]}, counted from 0. Start {len(gpus)} ranks on this host, set CUDA_VISIBLE_DEVICES for each rank "
            "(empty: no GPU), or start them with distrun, which shares the GPUs out."
        )
    try:
        tf.config.set_visible_devices(gpus[own[0]], "GPU")
    except RuntimeError as error:
        raise RuntimeError(
            f"rank {basics.rank()} cannot select its GPU ({gpus[own[0]].name}) any more: {error} Call hvd.init() "
            "before TensorFlow uses a GPU, or start with distrun --gpu-visibility one."
        ) from None
