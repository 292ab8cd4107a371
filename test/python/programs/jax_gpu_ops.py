"""distrun.jax on NVIDIA's GPUs, on any number of ranks. Compiled programs use the handler that takes arrays in place.
The checks of jax_ops.py run for them and for eager operations."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax_ops
from checks import run
from jax_ops import everybody, of, same

import distrun.jax as hvd
from distrun.jax import _native

AS_ON_CPUS = (
    "check_allreduce_of_every_type",
    "check_allreduce_scales_and_compresses",
    "check_unsigned_integers_and_random_keys",
    "check_allgather",
    "check_sizes_that_differ_are_refused_in_a_compiled_program",
    "check_broadcast",
    "check_alltoall",
    "check_reducescatter",
    "check_groups",
    "check_gradients",
    "check_transformations",
    "check_many_operations_in_one_program",
    "check_programs_in_flight_at_once",
    "check_one_rank_traces_again_what_calls_kept_functions",
    "check_mismatches_are_everybodys_errors",
    "check_elements_that_one_rank_lacks",
    "check_only_the_members_of_a_set_have_its_operations",
    "check_nan_travels",
    "check_join",
    "check_a_second_session",
)


def check_the_handler_is_used() -> None:
    assert jax.default_backend() == "gpu" and len(jax.local_devices()) == 1, jax.local_devices()
    assert hvd.nccl_enabled() and _native.ready(hvd.global_process_set)
    text = jax.jit(hvd.allreduce).lower(jnp.ones(2)).as_text()
    assert "custom_call @distrun_collective" in text and "callback" not in text, text


def check_inputs_that_are_late_and_results_that_are_used_at_once() -> None:
    """The stream has much work to do before and after."""

    @jax.jit
    def step(x: jax.Array, busy: jax.Array) -> jax.Array:
        for _ in range(20):
            busy = jnp.tanh(busy @ busy)
        x = x + 0 * busy[0, 0]
        for _ in range(5):
            x = 2 * hvd.allreduce(x, op=hvd.Sum) - hvd.allgather(x).reshape(hvd.size(), -1).sum(0)
        return x

    x, busy = of(hvd.rank(), (1000,)), jnp.full((1024, 1024), 1e-3)
    expected = sum(everybody((1000,))) * float(hvd.size()) ** 4
    for result in [step(x, busy) for _ in range(20)]:
        same(result, expected)


def check_the_replicas_of_a_training_stay_equal() -> None:
    @jax.jit
    def step(w: jax.Array, batch: jax.Array) -> jax.Array:
        gradient = jax.grad(lambda w: ((batch @ w - batch.sum(1)) ** 2).mean())(w)
        return w - 0.05 * hvd.allreduce(gradient)

    w = hvd.broadcast_parameters(jax.random.normal(jax.random.key(hvd.rank()), (50,)))
    for number in range(20):
        w = step(w, jax.random.normal(jax.random.key(100 * hvd.rank() + number), (16, 50)))
    rows = jax.jit(hvd.allgather)(w[None])
    assert all(bool((rows[0] == row).all()) for row in rows), "the replicas differ"


if __name__ == "__main__":
    hvd.init()  # selects the rank's GPU, which distrun.init() does not do
    own = {name: check for name, check in globals().items() if name.startswith("check_")}
    run({**own, **{name: getattr(jax_ops, name) for name in AS_ON_CPUS}})
