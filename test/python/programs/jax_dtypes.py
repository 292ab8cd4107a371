"""Every dtype in every operation that only moves data, and reductions of complex numbers. Any number of ranks."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from checks import raises, run
from jax_ops import WAYS, of

import distrun.jax as hvd


def check_every_dtype_is_moved() -> None:
    size = hvd.size()
    names = (
        "float8_e4m3fn",
        "float8_e5m2",
        "float8_e4m3fnuz",
        "float8_e5m2fnuz",
        "float8_e4m3b11fnuz",
        "float8_e8m0fnu",
    )
    names += ("float8_e3m4", "float8_e4m3")
    for dtype in (jnp.complex64, jnp.uint16, *(getattr(jnp, name) for name in names if hasattr(jnp, name))):
        parts = [np.asarray(of(rank, (size, 2)) + 1).astype(dtype) for rank in range(size)]
        mine = jnp.asarray(parts[hvd.rank()])
        for way in WAYS.values():
            for function, expected in (
                (functools.partial(hvd.broadcast, root_rank=size - 1), parts[-1]),
                (hvd.allgather, np.concatenate(parts)),
                (hvd.alltoall, np.stack([part[hvd.rank()] for part in parts])),
            ):
                found = way(function)(mine)
                assert found.dtype == dtype and np.asarray(found).tobytes() == expected.tobytes(), (dtype, function)
            if jnp.dtype(dtype).itemsize == 1:
                with raises(Exception, "weights", jnp.dtype(dtype).name, "can be moved"):
                    jax.block_until_ready(way(functools.partial(hvd.allreduce, name="weights"))(mine))


def check_complex_numbers() -> None:
    values = jnp.array([1 + 2j, 3 - 1j], jnp.complex64)
    mine, whole = values * (hvd.rank() + 1), sum(range(1, hvd.size() + 1))
    for way in WAYS.values():
        for op, expected in ((hvd.Sum, values * whole), (hvd.Average, values * whole / hvd.size())):
            np.testing.assert_allclose(way(functools.partial(hvd.allreduce, op=op))(mine), expected, rtol=1e-6)
        product = way(functools.partial(hvd.allreduce, op=hvd.Product))(values)
        np.testing.assert_allclose(product, values ** hvd.size(), rtol=1e-5)
        slope = way(jax.grad(lambda x: (jnp.abs(hvd.allreduce(x, op=hvd.Sum)) ** 2).sum()))(values)
        alone = jax.grad(lambda x: (jnp.abs(x) ** 2).sum())(values)
        np.testing.assert_allclose(slope, alone * hvd.size() ** 2, rtol=1e-5)
        with raises(Exception, "spectrum", "complex64", "no order"):
            jax.block_until_ready(way(functools.partial(hvd.allreduce, op=hvd.Max, name="spectrum"))(values))


if __name__ == "__main__":
    run(globals())
