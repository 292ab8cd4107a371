"""Compares distrun.tensorflow with MultiWorkerMirroredStrategy (RING) and with processes that do not communicate.

    python bench/tensorflow_bench.py [--np 2] [--rounds 3] [--seconds 1] [--json FILE]

with a Python that has TensorFlow and distrun. Every round runs both, in turn. The table has medians over the rounds.
The ratios are medians of each round's ratio. The exit code is 1 if a target is missed. Each process has one TensorFlow
thread of each kind, so that processes do not compete for cores. distrun's processes also train `alone` and `in step`.
`in step` is alone, plus an all-reduce of 4 bytes after each step, which makes the ranks wait for each other. No library
can be faster than that.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from typing import Any

from rounds import (
    Agree,
    Results,
    Round,
    Target,
    as_rank_0,
    c_api,
    finish,
    median_time,
    one_run,
    parse_options,
    rates,
    say,
)

MIB = 1 << 20
SIZES = (4, 16 * MIB, 64 * MIB)
WHO = ("distrun", "mwms")  # each in separate processes
MWMS_REPEATS = 30  # it has no cheap way to agree on a number
CHAIN = 50  # operations in one function, so that the time of its call does not count
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", "CUDA_VISIBLE_DEVICES": ""}


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
    """Returns a function for one step of a model on random data."""
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
        "eager": median_time(seconds, lambda: hvd.allreduce(x, op=hvd.Sum, name="eager"), as_rank_0),
        "graph": median_time(seconds, lambda: chain(x), as_rank_0) / CHAIN,
    }


def allreduces(seconds: float, strategy: Any, reduce: Callable[[Any], Any], agree: Agree) -> Results:
    """Returns the times of all-reduces of each size.

    Small ones run one after the other in one function and share the time of its call. Values are halved in between, so
    that they do not overflow. A large one runs alone. TensorFlow's work with its 64 MiB afterwards is not counted.
    """
    import tensorflow as tf

    def several(value: Any, count: int) -> Any:
        value = tf.identity(value)
        value = reduce(value)
        for _ in range(count - 1):
            value = reduce(value * 0.5)
        return value[:1]

    found = {}
    for size in SIZES:
        count = CHAIN if size < MIB else 1
        arguments = (tf.ones([size // 4]), count)
        once = tf.function(lambda arguments=arguments: strategy.run(several, arguments))
        found[f"{size} B"] = median_time(seconds, once, agree) / count
    return found


def work_distrun(seconds: float) -> Round:
    """Runs one rank of distrun, and the two contenders that show the lower limits."""
    import tensorflow as tf

    begin = time.perf_counter()
    import distrun.tensorflow as hvd

    results: Results = {"import": time.perf_counter() - begin}
    hvd.init()
    strategy = tf.distribute.get_strategy()
    results |= distrun_latencies(seconds)
    results |= allreduces(seconds, strategy, lambda value: hvd.allreduce(value, op=hvd.Sum), as_rank_0)
    found: Round = {"distrun": results, "alone": {}, "in step": {}}
    nothing = tf.zeros([1])

    def in_step(once: Callable[[], Any]) -> None:
        once()
        hvd.allreduce(nothing, name="in step")

    for name, (make, batch) in models().items():
        ours = training(make, batch, strategy, hvd.DistributedGradientTape)
        alone = training(make, batch, strategy, lambda tape: tape)
        waiting = functools.partial(in_step, training(make, batch, strategy, lambda tape: tape))
        for who, rate in rates({"distrun": ours, "alone": alone, "in step": waiting}, seconds).items():
            found[who][name] = rate
    return found


def work_mwms(seconds: float) -> Round:
    """Runs one worker of MultiWorkerMirroredStrategy."""
    import tensorflow as tf

    ring = tf.distribute.experimental.CommunicationImplementation.RING
    options = tf.distribute.experimental.CommunicationOptions(implementation=ring)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)

    def agree(_: int) -> int:
        return MWMS_REPEATS

    results = allreduces(seconds, strategy, lambda x: tf.distribute.get_replica_context().all_reduce("SUM", x), agree)
    for name, (make, batch) in models().items():
        results[name] = 1.0 / median_time(seconds * 3, training(make, batch, strategy, lambda tape: tape), agree)
    return {"mwms": results}


def work(who: str, seconds: float) -> None:
    """Runs one rank of one contender. Rank 0 prints the results as one JSON line."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    say(work_distrun(seconds) if who == "distrun" else work_mwms(seconds))


def targets() -> list[Target]:
    ours = [
        ("us of an eager op over the C API", 15.0, lambda one: (one["eager"] - one["C API"]) * 1e6),
        ("us of an op in a graph over the C API", 8.0, lambda one: (one["graph"] - one["C API"]) * 1e6),
        ("ms to import distrun.tensorflow after TensorFlow", 50.0, lambda one: one["import"] * 1e3),
    ]
    made = [
        Target(text, limit, False, lambda one, value=value: value(one["distrun"]))  # type: ignore[misc]
        for text, limit, value in ours
    ]
    for size, limit in zip(SIZES, (50.0, 12.0, 12.0), strict=True):
        case = f"{size} B"

        def over_mwms(one: Round, case: str = case) -> float:
            return one["mwms"][case] / one["distrun"][case]

        made.append(Target(f"all-reduce, mwms / distrun, {case}", limit, True, over_mwms))
    for case, other, limit in (
        ("MLP", "mwms", 5.0),
        ("MLP", "alone", 0.85),
        ("CNN", "mwms", 2.0),
        ("CNN", "alone", 0.95),
    ):

        def steps(one: Round, case: str = case, other: str = other) -> float:
            return one["distrun"][case] / one[other][case]

        made.append(Target(f"steps/s, distrun / {other}, {case}", limit, True, steps))
    return made


def main() -> int:
    options = parse_options(__doc__, WHO)
    if options.who:
        work(options.who, options.seconds)
        return 0
    rounds = [one_run("distrun", options, QUIET) | one_run("mwms", options, QUIET) for _ in range(options.rounds)]
    return finish(rounds, targets(), options)


if __name__ == "__main__":
    sys.exit(main())
