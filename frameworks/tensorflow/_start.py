"""init: joins the job, chooses the Execution, selects this rank's GPU, and removes the launcher's TF_CONFIG."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from distrun import _session, basics, errors
from distrun.process_sets import ProcessSet

from . import _execution, _native


def init(
    comm: Any = None,
    process_sets: Sequence[ProcessSet] | str | None = None,
    *,
    settings: Mapping[str, object] | None = None,
) -> None:
    """Joins the job like distrun.init(), and hides all GPUs but this rank's own from TensorFlow.

    Call it before TensorFlow uses a GPU; RuntimeError otherwise, and if the host has fewer GPUs than ranks. In a rank
    of a job this removes TF_CONFIG from the environment, unless distrun --tf or --tf-roles set it for a tf.distribute
    strategy. With it, an Estimator would start another cluster.
    """
    basics.init(comm, process_sets, settings=settings)
    # Outside a job TF_CONFIG belongs to another program.
    if ("DISTRUN_RANK" in os.environ or basics.size() > 1) and "DISTRUN_TF" not in os.environ:
        os.environ.pop("TF_CONFIG", None)
    if basics.size() > 1:
        select_gpu(_session.world().gpus or (basics.local_rank(),))


def no_autograph() -> None:
    """Excludes this package from autograph. It has no data-dependent control flow, and conversion is slow."""
    try:
        from tensorflow.python.autograph.core import config
    except ImportError:
        return
    config.CONVERSION_RULES = (config.DoNotConvert("distrun"), *config.CONVERSION_RULES)


def select_gpu(own: Sequence[int]) -> None:
    """Hides all GPUs except the first of `own`, an index among the GPUs that TensorFlow sees."""
    gpus = tf.config.list_physical_devices("GPU")
    # There is no GPU, or only this rank's own; or the program has chosen one itself.
    if len(gpus) < 2 or len(tf.config.get_visible_devices("GPU")) < 2:
        return
    if own[0] >= len(gpus):
        raise RuntimeError(
            f"rank {basics.rank()} has no GPU: it would use number {own[0]} (counted from 0), but TensorFlow sees "
            f"{len(gpus)}. Start {len(gpus)} ranks on this host, or set CUDA_VISIBLE_DEVICES for each rank (empty: "
            "no GPU). distrun does this for the ranks that it starts."
        )
    try:
        tf.config.set_visible_devices(gpus[own[0]], "GPU")
    except RuntimeError as error:
        raise RuntimeError(
            f"rank {basics.rank()} cannot select its GPU ({gpus[own[0]].name}) any more: {error} Call hvd.init() "
            "before TensorFlow uses a GPU, or start with distrun --gpu-visibility one."
        ) from None


@functools.cache
def _choose() -> _execution.Execution:
    """Returns the native ops. If this version of TensorFlow cannot use them, warns and returns the Python functions."""
    try:
        return _native.load()
    except _native.Unavailable as reason:
        warnings.warn(
            f"distrun.tensorflow uses its slower path, Python functions, with TensorFlow {tf.__version__}: {reason}.",
            RuntimeWarning,
            stacklevel=2,
        )
    from ._fallback import PythonFunctions  # imported only when needed, to keep the import of this package fast

    return PythonFunctions()


class _Attachment(_session.Extension):
    """Passes each session to the chosen Execution while it is open."""

    packages = ("tensorflow",)

    def __init__(self) -> None:
        self._attached: _execution.Execution | None = None

    def attach(self, session: int) -> None:
        """Chooses the Execution. This happens at init, not at the import of the package."""
        chosen = _choose()
        chosen.attach(session)
        _execution.use(chosen)
        self._attached = chosen

    def detach(self) -> bool:
        """Returns when no operation uses the session any more; False if one still does."""
        if self._attached is not None and not self._attached.detach():
            return False
        self._attached = None
        return True

    def forget_numbers(self, process_set: int) -> None:
        """Restarts the numbers that the Execution counts itself."""
        if self._attached is not None:
            self._attached.forget_numbers(process_set)

    def error_of(self, failure: BaseException) -> errors.DistrunError | None:
        """Converts TensorFlow's own exceptions, as functions and sessions raise them."""
        return _execution.distrun_error(failure)


def extend() -> None:
    """Registers the attachment at import, so that it gets every session, whichever front end opens it."""
    _session.extend(_Attachment())
