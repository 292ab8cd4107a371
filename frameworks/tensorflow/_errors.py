"""Exceptions of eager operations: distrun's classes, and those of `tf.errors` at the same time.

Programs for Horovod, and code that runs both eagerly and in a graph, catch TensorFlow's classes.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from distrun._abi import Code
from distrun.errors import DistrunError

# As the kernels report them to TensorFlow in a graph. All others are internal errors.
_CLASSES: dict[Code, type[Exception]] = {
    Code.MISMATCH: tf.errors.FailedPreconditionError,
    Code.NOT_INITIALIZED: tf.errors.FailedPreconditionError,
    Code.SHUT_DOWN: tf.errors.FailedPreconditionError,
    Code.INVALID_ARGUMENT: tf.errors.InvalidArgumentError,
    Code.DUPLICATE_NAME: tf.errors.InvalidArgumentError,
    Code.RANK_LOST: tf.errors.UnknownError,
    Code.RANK_LEFT: tf.errors.UnknownError,
    Code.ABORTED: tf.errors.UnknownError,
    Code.TIMEOUT: tf.errors.DeadlineExceededError,
    Code.UNSUPPORTED: tf.errors.UnimplementedError,
    Code.OUT_OF_MEMORY: tf.errors.ResourceExhaustedError,
}


def as_tensorflows(error: DistrunError) -> DistrunError:
    """Makes the exception an instance of the class of `tf.errors` that a graph would raise, and returns it."""
    if isinstance(error, tf.errors.OpError):
        return error
    theirs = _CLASSES.get(error.code, tf.errors.InternalError)
    # The attributes that TensorFlow's properties and its __str__ read.
    vars(error).update(
        _node_def=None,
        _op=None,
        _message=Exception.__str__(error),
        _error_code=theirs(None, None, "").error_code,
        _experimental_payloads={},
    )
    error.__class__ = _both(type(error), theirs)
    return error


_made: dict[tuple[object, object], Any] = {}


def _both(ours: Any, theirs: Any) -> Any:
    if (ours, theirs) not in _made:
        _made[ours, theirs] = _class_of_both(ours, theirs)
    return _made[ours, theirs]


def _class_of_both(ours: Any, theirs: Any) -> Any:
    def reduced(self: DistrunError) -> tuple[object, ...]:
        # This class has no name to find it by. distrun's own class is restored.
        maker, *rest = ours.__reduce__(self)
        return (ours if maker is type(self) else maker, *rest)

    body: dict[str, Any] = {"__doc__": ours.__doc__, "__module__": ours.__module__, "__reduce__": reduced}
    return type(ours.__name__, (ours, theirs), body)
