"""How TensorFlow loads the op library, and what init does. The argument selects the unusual condition; one rank."""

from __future__ import annotations

import ctypes
import importlib
import os
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

import tensorflow as tf

HOW = sys.argv[1]


def library() -> Path:
    from distrun._library import library_file

    return library_file().resolve().with_name("libdistrun_tensorflow.so")


def second_copy() -> None:
    """TensorFlow would load the second copy, and every operation would fail. init reports the mistake."""
    with tempfile.TemporaryDirectory() as folder:
        tf.load_op_library(shutil.copy(library(), folder))
    import distrun.tensorflow as hvd

    try:
        hvd.init()
    except ImportError as error:
        assert "another copy of distrun's TensorFlow library" in str(error)
    else:
        raise AssertionError("a second copy was accepted")


def loaded_too_early() -> None:
    """The library's constructor ran too early, so TensorFlow finds no operations in it. distrun takes the slower path,
    with one warning."""
    ctypes.CDLL(str(library()))
    import distrun.tensorflow as hvd
    from distrun.tensorflow import _execution

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hvd.init()
        assert float(hvd.allreduce(tf.constant(2.0))) == 2.0
    ours = [str(one.message) for one in caught if "distrun" in str(one.message)]
    assert len(ours) == 1 and "slower path" in ours[0] and "op library before TensorFlow" in ours[0], ours
    chosen = _execution.execution()
    assert type(chosen).__name__ == "PythonFunctions"
    hvd.shutdown()
    hvd.init()
    assert _execution.execution() is chosen


def gpu() -> None:
    """init's choice of the GPU among fake devices."""
    from distrun.tensorflow import _start

    class Device:
        def __init__(self, name: str) -> None:
            self.name = name

    devices = [Device("GPU:0"), Device("GPU:1")]
    visible = devices
    chosen: list[Device] = []
    tf.config.list_physical_devices = lambda kind: devices
    tf.config.get_visible_devices = lambda kind: list(visible)
    tf.config.set_visible_devices = lambda device, kind: chosen.append(device)
    import distrun.tensorflow as hvd

    hvd.init()
    _start.select_gpu([1])
    try:
        _start.select_gpu([2])
    except RuntimeError as error:
        assert "rank 0 has no GPU: it would use number 2 (counted from 0), but TensorFlow sees 2" in str(
            error
        ) and "Start 2 ranks" in str(error)
    else:
        raise AssertionError("a rank without a GPU was not refused")
    last = devices.pop()
    _start.select_gpu([2])  # a process that sees only one GPU uses this one
    devices.append(last)
    assert chosen == [devices[1]]
    visible = devices[:1]  # the program has chosen this before
    _start.select_gpu([2])
    visible = devices
    assert chosen == [devices[1]]

    def too_late(device: Device, kind: str) -> None:
        raise RuntimeError("Visible devices cannot be modified after being initialized.")

    tf.config.set_visible_devices = too_late
    try:
        _start.select_gpu([1])
    except RuntimeError as error:
        assert "cannot select its GPU (GPU:1)" in str(error) and "--gpu-visibility one" in str(error)
    else:
        raise AssertionError("nothing was raised")


def chosen_at_init() -> None:
    """init chooses the way to run operations, once per process. Calls that run no operation work before it."""
    import distrun
    import distrun.tensorflow as hvd
    from distrun.tensorflow import _execution, _native

    assert hvd.distrun_error(ValueError("mine")) is None
    for use in (_execution.execution, lambda: hvd.allreduce(tf.constant(1.0)), lambda: hvd.allgather([1.0])):
        try:
            use()
        except distrun.NotInitialized:
            pass
        else:
            raise AssertionError("nothing was raised")
    for _ in range(2):
        hvd.init()
        chosen = _execution.execution()
        assert isinstance(chosen, _native.NativeOps)
        assert float(hvd.allreduce(tf.constant(2.0))) == 2.0
        hvd.shutdown()
        assert _execution.execution() is chosen


def tf_config() -> None:
    """TF_CONFIG stays with --tf, and is removed without it."""
    import distrun.tensorflow as hvd

    for keep in (True, False):
        os.environ["TF_CONFIG"] = "{}"
        os.environ.pop("DISTRUN_TF", None)
        if keep:
            os.environ["DISTRUN_TF"] = "1"
        hvd.init()
        assert ("TF_CONFIG" in os.environ) == keep
        hvd.shutdown()


def tf_config_of_a_platform() -> None:
    """Without distrun's variables TF_CONFIG belongs to the platform. For one worker it stays; for several, init
    refuses."""
    import distrun
    import distrun.tensorflow as hvd

    ours = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("DISTRUN_")}
    one = '{"cluster": {"worker": ["h1:1"]}, "task": {"type": "worker", "index": 0}}'
    os.environ["TF_CONFIG"] = one
    hvd.init()
    assert hvd.size() == 1 and os.environ["TF_CONFIG"] == one
    hvd.shutdown()
    os.environ["TF_CONFIG"] = one.replace('"h1:1"', '"h1:1", "h2:1"')
    try:
        hvd.init()
    except distrun.InvalidArgument as error:
        assert "TF_CONFIG names 2 tasks" in str(error) and "unset TF_CONFIG" in str(error)
    else:
        raise AssertionError("nothing was raised")
    del os.environ["TF_CONFIG"]
    os.environ.update(ours)


def horovods_modules() -> None:
    """Horovod's modules at the paths that programs import. The Keras modules are loaded only when a program imports
    them."""
    import distrun.tensorflow as hvd
    from distrun.tensorflow.mpi_ops import Sum

    assert Sum is hvd.mpi_ops.Sum is hvd.Sum and "distrun.keras" not in sys.modules
    import distrun.tensorflow.keras as keras_hvd
    from distrun.tensorflow.keras import callbacks
    from distrun.tensorflow.keras.callbacks import MetricAverageCallback

    assert keras_hvd is sys.modules["distrun.keras"]
    assert callbacks.MetricAverageCallback is keras_hvd.callbacks.MetricAverageCallback is MetricAverageCallback
    for name in ("distrun.tensorflow.elastic", "distrun.tensorflow.keras.elastic"):
        try:
            _ = importlib.import_module(name).run
        except NotImplementedError as error:
            assert "Save checkpoints" in str(error)
        else:
            raise AssertionError("nothing was raised")


if HOW == "second":
    second_copy()
elif HOW == "early":
    loaded_too_early()
else:
    chosen_at_init()
    tf_config()
    tf_config_of_a_platform()
    gpu()
    horovods_modules()
print("all checks passed", flush=True)
