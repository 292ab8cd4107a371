"""Measures distrun.jax: an operation in a compiled program, training, and the import of the front ends.

    python bench/jax_bench.py [--np 2] [--rounds 3] [--seconds 1] [--json FILE] [--torch-python .venv/bin/python]

with a Python that has JAX, optax, Keras and distrun. Training is compared with equally many processes that do not
communicate, without a target. The exit code is 1 if a target is missed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from rounds import Agree, Results, Round, Target, as_rank_0, c_api, finish, median_time, one_run, parse_options, say

WHO = ("distrun", "alone")
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
QUIET = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", "XLA_FLAGS": ONE_THREAD}
FRONT_ENDS = ("jax", "keras", "torch")
IMPORT = "import time, {0}; begin = time.perf_counter(); import distrun.{0}; print(time.perf_counter() - begin)"
BATCH = 64


def latencies(seconds: float) -> Results:
    """Returns the times of all-reduces of 4 bytes. The empty program shows the cost of any call of a compiled
    program."""
    import jax
    import jax.numpy as jnp

    import distrun.jax as hvd

    x = jnp.ones(1)
    reduce = jax.jit(lambda value: hvd.allreduce(value, op=hvd.Sum, name="in.program"))
    empty = jax.jit(lambda value: value + 1)
    cases: dict[str, Callable[[], Any]] = {
        "in a program": lambda: reduce(x).block_until_ready(),
        "empty program": lambda: empty(x).block_until_ready(),
        "outside": lambda: hvd.allreduce(x, op=hvd.Sum, name="outside").block_until_ready(),
    }
    return {"C API": c_api(seconds)} | {case: median_time(seconds, once, as_rank_0) for case, once in cases.items()}


def training(optimizer: Any) -> Callable[[], object]:
    """Returns a function for one step of a small network on random data."""
    import jax
    import jax.numpy as jnp
    import optax

    keys = jax.random.split(jax.random.key(0), 4)
    images, labels = jax.random.normal(keys[0], (BATCH, 784)), jax.random.randint(keys[1], (BATCH,), 0, 10)
    params = {
        "w1": jax.random.normal(keys[2], (784, 256)) * 0.05,
        "b1": jnp.zeros(256),
        "w2": jax.random.normal(keys[3], (256, 10)) * 0.1,
        "b2": jnp.zeros(10),
    }

    def loss_of(params: Any) -> Any:
        logits = jax.nn.relu(images @ params["w1"] + params["b1"]) @ params["w2"] + params["b2"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    def step(params: Any, state: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(params)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    compiled = jax.jit(step)
    at = [params, optimizer.init(params)]

    def once() -> None:
        *at[:], loss = compiled(*at)
        loss.block_until_ready()

    return once


def work(who: str, seconds: float) -> None:
    """Runs one rank of one contender."""
    import optax

    results: Results = {}
    optimizer: Any = optax.sgd(0.01)
    agree: Agree = lambda count: count  # noqa: E731
    if who == "distrun":
        import distrun.jax as hvd

        hvd.init()
        agree = as_rank_0
        results |= latencies(seconds)
        optimizer = hvd.DistributedOptimizer(optimizer)
    results["MLP"] = 1.0 / median_time(seconds * 3, training(optimizer), agree)
    say(results)


def imports(torch_python: str) -> Results:
    """Returns the seconds that each front end adds to the import of its framework."""
    found = {}
    environment = {**os.environ, **QUIET, "KERAS_BACKEND": "jax"}
    for name in FRONT_ENDS:
        python = torch_python if name == "torch" else sys.executable
        done = subprocess.run([python, "-c", IMPORT.format(name)], capture_output=True, text=True, env=environment)
        if done.returncode:
            print(f"not measured: the import of distrun.{name}: {done.stderr.splitlines()[-1]}")
        else:
            found[name] = float(done.stdout)
    return found


def targets(measured: Results) -> list[Target]:
    def op(one: Round) -> float:
        ours = one["distrun"]
        return (ours["in a program"] - ours["empty program"] - ours["C API"]) * 1e6

    made = [Target("us of an op in a program over an empty one and the C API", 20.0, False, op)]
    for name in measured:
        made.append(
            Target(f"ms to import distrun.{name}", 50.0, False, lambda one, name=name: one["import"][name] * 1e3)  # type: ignore[misc]
        )
    return made


def main() -> int:
    options = parse_options(__doc__, WHO, ("--torch-python", sys.executable, "a Python with torch and distrun"))
    if options.who:
        work(options.who, options.seconds)
        return 0
    rounds: list[Round] = []
    for _ in range(options.rounds):
        one = {who: one_run(who, options, QUIET) for who in WHO}
        rounds.append(one | {"import": imports(options.torch_python)})
    return finish(rounds, targets(rounds[0]["import"]), options)


if __name__ == "__main__":
    sys.exit(main())
