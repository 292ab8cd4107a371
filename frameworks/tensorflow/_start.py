"""init: the job, the way to run operations, this rank's GPU, and no TF_CONFIG of the launcher's."""

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
    """Joins the job (see distrun.init) and lets TensorFlow see this rank's own GPU only, among those it could see.

    Call it before TensorFlow uses a GPU. In a rank of a job TF_CONFIG is taken out of the environment, unless
    distrun --tf or --tf-roles set it for a tf.distribute strategy: an Estimator would start another cluster
    with it.
    """
    basics.init(comm, process_sets, settings=settings)
    # In a process without a job the variable is another program's.
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


@functools.cache
def _choose() -> _execution.Execution:
    """The native ops; Python functions, after one warning, where this TensorFlow cannot use them."""
    try:
        return _native.load()
    except _native.Unavailable as reason:
        warnings.warn(
            f"distrun.tensorflow uses its slower path, Python functions, with TensorFlow {tf.__version__}: {reason}.",
            RuntimeWarning,
            stacklevel=2,
        )
    from ._fallback import PythonFunctions  # seldom needed, and import time is everybody's

    return PythonFunctions()


class _Attachment(_session.Extension):
    """Gives each session to the chosen Execution while it is open."""

    packages = ("tensorflow",)

    def __init__(self) -> None:
        self._attached: _execution.Execution | None = None

    def attach(self, session: int) -> None:
        """The choice is made here, at init, and not when the package is imported."""
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
        """Those that the chosen one counts by itself."""
        if self._attached is not None:
            self._attached.forget_numbers(process_set)

    def error_of(self, failure: BaseException) -> errors.DistrunError | None:
        """TensorFlow's own classes are raised by functions and sessions."""
        return _execution.distrun_error(failure)


def extend() -> None:
    """At import: every session is attached, whichever front end opens it."""
    _session.extend(_Attachment())
