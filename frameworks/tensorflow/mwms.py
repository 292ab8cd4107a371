"""patch_keras_mwms(): makes Keras 3's fit() work under tf.distribute.MultiWorkerMirroredStrategy.

Two functions of Keras 3's TensorFlow trainer fail with several workers. `_maybe_symbolic_build` averages the first
batch over the replicas to get its shape, which raises for MultiWorkerMirroredStrategy's values. The part of one replica
has the same shape. `reduce_per_replica` averages losses along axis 0, which scalars do not have.
"""

from __future__ import annotations

import inspect
from typing import Any

import tensorflow as tf

_KNOWN_FAULTS = {
    "_maybe_symbolic_build": "self.distribute_strategy.reduce(",
    "reduce_per_replica": 'strategy.reduce("MEAN", v, axis=0)',
}


def patch_keras_mwms() -> bool:
    """Repairs fit(), evaluate() and predict() of the installed Keras under MultiWorkerMirroredStrategy, in this
    process.

    Call it before the model is created. Returns True if something was repaired, now or earlier. Returns False if the
    installed Keras does not have the faults (any more), or is Keras 2, which never had them. RuntimeError if the
    trainer differs from the tested one, Keras 3.15's.
    """
    try:
        from keras.src.backend.tensorflow import trainer
    except ImportError:
        return False
    if getattr(trainer, "distrun_patched", False):
        return True
    missing = [
        name
        for owner, name in ((trainer.TensorFlowTrainer, "_maybe_symbolic_build"), (trainer, "reduce_per_replica"))
        if not inspect.isfunction(getattr(owner, name, None))
    ]
    if missing or not hasattr(trainer, "_collective_all_reduce_multi_worker"):
        raise RuntimeError(
            f"patch_keras_mwms() does not know the TensorFlow trainer of this Keras ({', '.join(missing) or 'no'} "
            "multi-worker functions). Try fit() without it, or use Keras 3.15, a custom loop, or distrun.keras."
        )
    build, reduce = trainer.TensorFlowTrainer._maybe_symbolic_build, trainer.reduce_per_replica
    mended = False
    if _KNOWN_FAULTS["_maybe_symbolic_build"] in inspect.getsource(build):
        trainer.TensorFlowTrainer._maybe_symbolic_build = _build_from_one_replica
        mended = True
    if _KNOWN_FAULTS["reduce_per_replica"] in inspect.getsource(reduce):
        trainer.reduce_per_replica = _mean_of_scalars(trainer, reduce)
        mended = True
    trainer.distrun_patched = mended
    return mended


def _build_from_one_replica(self: Any, iterator: Any = None, data_batch: Any = None) -> None:
    if self._distribute_strategy is None:
        return

    def part(value: Any) -> Any:
        return value.values[0] if isinstance(value, tf.distribute.DistributedValues) else value

    if iterator is not None:
        for _, _, batches in iterator:
            data_batch = tf.nest.map_structure(part, next(batches))
            break
    with self.distribute_strategy.scope():
        self._symbolic_build(data_batch=data_batch)


def _mean_of_scalars(trainer: Any, original: Any) -> Any:
    def reduce_per_replica(values: Any, strategy: Any, reduction: str) -> Any:
        if reduction not in ("auto", "mean") or not trainer._collective_all_reduce_multi_worker(strategy):
            return original(values, strategy, reduction)
        return tf.nest.map_structure(lambda value: strategy.reduce("MEAN", value, axis=None), values)

    return reduce_per_replica
