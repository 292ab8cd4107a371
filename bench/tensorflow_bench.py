"""Compares distrun.tensorflow with MultiWorkerMirroredStrategy (RING) and with processes that do not communicate.

    python bench/tensorflow_bench.py [--np 2] [--rounds 3] [--seconds 1] [--json FILE]

with a Python that has TensorFlow and distrun. Every round runs each of them once, in turn; the table has medians over
the rounds, the ratios are medians of each round's ratio. Exit code 1 when a target is missed. One TensorFlow thread for
each purpose in each process, so that processes do not fight for cores.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

MIB = 1 << 20
SIZES = (4, 16 * MIB, 64 * MIB)
WHO = ("distrun", "mwms", "alone")
CHAIN = 50  # operations in one function: what the call of a function costs must not count
Results = dict[str, float]


def median_time(seconds: float, once: Callable[[], object], times: int = 0) -> float:
    """Of `once`, run equally often on every rank: `times`, or so often as rank 0 finds right."""
    once()
    begin = time.perf_counter()
    for _ in range(3):
        once()
    each = (time.perf_counter() - begin) / 3
    found = []
    for _ in range(times or agreed(max(5, min(3000, int(seconds / each))))):
        begin = time.perf_counter()
        once()
        found.append(time.perf_counter() - begin)
    return statistics.median(found)


def agreed(count: int) -> int:
    """Rank 0's number. Alone and with MultiWorkerMirroredStrategy all take the same few."""
    hvd: Any = sys.modules.get("distrun.tensorflow")
    return int(hvd.broadcast_object(count, 0)) if hvd is not None and hvd.is_initialized() else 30


def models() -> dict[str, tuple[Callable[[], Any], int]]:
    import tensorflow as tf

    layers = tf.keras.layers

    def mlp() -> Any:
        return tf.keras.Sequential([layers.Input([784]), layers.Dense(256, activation="relu"), layers.Dense(10)])

    def cnn() -> Any:
        return tf.keras.Sequential(
            [
                layers.Input([784]),
                layers.Reshape([28, 28, 1]),
                layers.Conv2D(32, 3, activation="relu"),
                layers.Conv2D(64, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dense(128, activation="relu"),
                layers.Dense(10),
            ]
        )

    return {"MLP": (mlp, 64), "CNN": (cnn, 32)}


def training(make: Callable[[], Any], batch: int, strategy: Any, distribute: Callable[[Any], Any]) -> Callable[[], Any]:
    """One step of a model on made-up data."""
    import tensorflow as tf

    images, labels = tf.random.normal([batch, 784]), tf.random.uniform([batch], 0, 10, tf.int64)
    with strategy.scope():
        model = make()
        optimizer = tf.keras.optimizers.SGD(0.01)
        optimizer.build(model.trainable_variables)

    def replica() -> Any:
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        gradients = distribute(tape).gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    step = tf.function(lambda: strategy.run(replica))
    return lambda: strategy.experimental_local_results(step())[0].numpy()


def c_api(seconds: float) -> float:
    """A blocking all-reduce of 4 bytes by the C API, called through ctypes."""
    from distrun import _abi, _operations, _session
    from distrun._library import library

    data = (ctypes.c_float * 1)(1.0)
    struct, handle = (_abi.OpStruct * 1)(), (ctypes.c_void_p * 1)()
    address = ctypes.addressof(data)
    _operations.fill(
        struct[0], _operations.Op(_abi.Kind.ALLREDUCE, "c.api", int(_abi.DType.float32), (1,), address, address)
    )
    native, session = library(), _session.current().pointer

    def once() -> None:
        native.distrun_enqueue(session, struct, 1, handle)
        native.distrun_wait(handle[0], -1.0)
        native.distrun_release(handle[0])

    return median_time(seconds, once)


def distrun_latencies(seconds: float) -> Results:
    import tensorflow as tf

    import distrun.tensorflow as hvd

    x = tf.constant([1.0])

    def several(value: Any) -> Any:
        for number in range(CHAIN):
            value = hvd.allreduce(value, op=hvd.Sum, name=f"chain.{number}")
        return value

    chain = tf.function(several)

    return {
        "C API": c_api(seconds),
        "eager": median_time(seconds, lambda: hvd.allreduce(x, op=hvd.Sum, name="eager")),
        "graph": median_time(seconds, lambda: chain(x)) / CHAIN,
    }


def allreduces(seconds: float, strategy: Any, reduce: Callable[[Any], Any]) -> Results:
    """Of each size; small ones one after the other in one function, of whose call they take a share."""
    import tensorflow as tf

    def several(value: Any, count: int) -> Any:
        value = tf.identity(value)
        for _ in range(count):
            value = reduce(value) * 0.5
        return value[:1]

    found = {}
    for size in SIZES:
        count = CHAIN if size < MIB else 1
        arguments = (tf.ones([size // 4]), count)
        once = tf.function(lambda arguments=arguments: strategy.run(several, arguments))
        found[f"{size} B"] = median_time(seconds, once) / count
    return found


def work(who: str, seconds: float) -> None:
    """One rank of one of them; rank 0 prints the results as one JSON line."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    results: Results = {}
    strategy, reduce, distribute = tf.distribute.get_strategy(), lambda value: value, lambda tape: tape
    if who == "distrun":
        begin = time.perf_counter()
        import distrun.tensorflow as hvd

        results["import"] = time.perf_counter() - begin
        hvd.init()
        results |= distrun_latencies(seconds)
        reduce, distribute = lambda value: hvd.allreduce(value, op=hvd.Sum), hvd.DistributedGradientTape
    elif who == "mwms":
        ring = tf.distribute.experimental.CommunicationImplementation.RING
        options = tf.distribute.experimental.CommunicationOptions(implementation=ring)
        strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
        reduce = lambda value: tf.distribute.get_replica_context().all_reduce("SUM", value)  # noqa: E731
    if who != "alone":
        results |= allreduces(seconds, strategy, reduce)
    for name, (make, batch) in models().items():
        results[name] = 1.0 / median_time(seconds * 3, training(make, batch, strategy, distribute))
    if os.environ["RANK"] == "0":
        print(json.dumps(results), flush=True)


def one_run(who: str, options: argparse.Namespace) -> Results:
    command = [options.distrun, "-np", str(options.np), "--oversubscribe", "--tag", "none", "--timeout", "300"]
    command += [sys.executable, __file__, "--who", who, "--seconds", str(options.seconds)]
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **quiet})
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        sys.exit(f"{who} gave no result:\n{done.stdout}\n{done.stderr}")
    found: Results = json.loads(lines[-1])
    return found


def report(rounds: list[dict[str, Results]]) -> bool:
    """Prints the table and the ratios; True if every target is met."""
    for who in WHO:
        for case in rounds[0][who]:
            value = statistics.median(one[who][case] for one in rounds)
            shown = f"{value:10.1f} steps/s" if case in models_names() else f"{value * 1e6:10.1f} us"
            print(f"{who:8} {case:12} {shown}")
    fine = True
    for text, limit, at_least, of_round in targets():
        ratio = statistics.median(of_round(one) for one in rounds)
        met = ratio >= limit if at_least else ratio <= limit
        fine = fine and met
        print(f"{'met   ' if met else 'MISSED'} {text}: {ratio:.2f} ({'>=' if at_least else '<='} {limit:g})")
    return fine


def models_names() -> tuple[str, ...]:
    return ("MLP", "CNN")


def targets() -> list[tuple[str, float, bool, Callable[[dict[str, Results]], float]]]:
    """Text, limit, whether it is a lower one, and the value of a round."""
    ours = [
        ("us of an eager op over the C API", 15.0, False, lambda one: (one["eager"] - one["C API"]) * 1e6),
        ("us of an op in a graph over the C API", 8.0, False, lambda one: (one["graph"] - one["C API"]) * 1e6),
        ("ms to import distrun.tensorflow after TensorFlow", 50.0, False, lambda one: one["import"] * 1e3),
    ]
    made: list[Any] = [(*rest, lambda one, value=value: value(one["distrun"])) for *rest, value in ours]
    for size, limit in zip(SIZES, (50.0, 12.0, 12.0), strict=True):
        case = f"{size} B"
        made.append((f"all-reduce, mwms / distrun, {case}", limit, True,
                     lambda one, case=case: one["mwms"][case] / one["distrun"][case]))  # fmt: skip
    for case, over_mwms, of_alone in (("MLP", 5.0, 0.85), ("CNN", 2.0, 0.95)):
        for other, limit in (("mwms", over_mwms), ("alone", of_alone)):
            made.append((f"steps/s, distrun / {other}, {case}", limit, True,
                         lambda one, case=case, other=other: one["distrun"][case] / one[other][case]))  # fmt: skip
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--np", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="per measurement")
    parser.add_argument("--distrun", default=shutil.which("distrun") or "distrun", help="the command")
    parser.add_argument("--json", help="write all rounds there")
    parser.add_argument("--who", choices=WHO, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.who:
        work(options.who, options.seconds)
        return 0
    rounds = [{who: one_run(who, options) for who in WHO} for _ in range(options.rounds)]
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rounds, file, indent=1)
    return 0 if report(rounds) else 1


if __name__ == "__main__":
    sys.exit(main())
