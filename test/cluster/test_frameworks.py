"""Unmodified scripts of TensorFlow and JAX across hosts. test/e2e/frameworks has the same on one host."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from environments import environment_python

from .conftest import MakeCluster
from .jobs import EXAMPLES, assert_nothing_left, package_folders, run
from .rig import ROOT, Cluster

PROGRAMS = ROOT / "test/e2e/programs"
# TensorFlow generates files in /tmp and imports them. It removes these files, but not Python's bytecode of them.
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "JAX_PLATFORMS": "cpu", "PYTHONDONTWRITEBYTECODE": "1"}
TWO_EPOCHS = ("--epochs", "2")
# Limits of a job and of the launcher, in seconds. Only a hang reaches them. Alone on two slow cores, the job of the
# parameter servers takes 30 s, mostly for four imports of TensorFlow. Beside three other jobs it takes 85 s.
TIME_LIMIT = ("--timeout", "300")
LONGEST = 330
SUMS = ["[0] process 0 of 2: 3.0", "[1] process 1 of 2: 3.0"]

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(LONGEST + 60)]


def lines(cluster: Cluster, *options: str, program: str, words: tuple[str, ...] = ()) -> list[str]:
    command: tuple[str | Path, ...] = (
        environment_python("jax" if program.startswith("jax") else "tensorflow"),
        PROGRAMS / program,
        *words,
    )
    done = run(cluster.head, *options, *TIME_LIMIT, *command, env=QUIET, timeout=LONGEST)
    assert done.returncode == 0, done.stdout + done.stderr
    # JAX uses Gloo between CPUs, and Gloo prints that it is connected.
    return sorted(line for line in done.stdout.splitlines() if "[Gloo]" not in line)


def test_workers_of_a_mirrored_strategy(cluster: Cluster) -> None:
    found = lines(cluster, "-np", "2", "-H", "h1:1,h2:1", program="tf_mirrored.py")
    assert found == ["[0] task worker 0 of 2: 3.0", "[1] task worker 1 of 2: 3.0"]


def learned(cluster: Cluster, *options: str | Path) -> None:
    """A short training on two hosts is one job: if ranks ran alone, each one would report."""
    done = run(cluster.head, *TIME_LIMIT, *options, env=QUIET, timeout=LONGEST)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\[0\] epoch 2: loss \d\.\d+, \d+ samples/s$", done.stdout, re.MULTILINE), done.stdout
    accuracies = re.findall(r"^\[\d+\] accuracy: (\d\.\d+)$", done.stdout, re.MULTILINE)
    assert len(accuracies) == 1 and float(accuracies[0]) > 0.75, done.stdout


def test_a_parameter_server_cluster(cluster: Cluster) -> None:
    roles = ("-np", "4", "-H", "h1:2,h2:2", "--tf-roles", "chief=1,worker=2,ps=1")
    learned(
        cluster, *roles, environment_python("tensorflow"), EXAMPLES / "tf_distribute/parameter_server.py", *TWO_EPOCHS
    )
    assert_nothing_left(cluster["h1"], cluster["h2"])


@pytest.mark.parametrize(
    ("environment", "example", "words"),
    [
        ("tensorflow", "tensorflow_v1_mnist.py", ("--steps", "300")),
        ("tensorflow", "tensorflow_mnist.py", TWO_EPOCHS),
        ("tensorflow", "keras_mnist.py", TWO_EPOCHS),
        ("jax", "jax_mnist.py", TWO_EPOCHS),
        (".venv", "pytorch_mnist.py", TWO_EPOCHS),
        pytest.param("tensorflow-2.15", "estimator_mnist.py", TWO_EPOCHS, marks=pytest.mark.full),
    ],
)
def test_the_mnist_examples(cluster: Cluster, environment: str, example: str, words: tuple[str, ...]) -> None:
    if environment == ".venv":
        pytest.importorskip("mlxtend", reason="mlxtend is not installed beside torch: scripts/test does that")
    python = sys.executable if environment == ".venv" else environment_python(environment)
    learned(cluster, "-np", "2", "-H", "h1:1,h2:1", python, EXAMPLES / example, *words)


def test_jax_where_a_hosts_own_name_is_127_0_1_1(cluster: Cluster) -> None:
    assert lines(cluster, "-np", "2", "-H", "h1:1,h2:1", program="jax_psum.py", words=("ours",)) == SUMS


def test_unmodified_jax(make_cluster: MakeCluster) -> None:
    """JAX offers its Gloo only the address of the host's own name, so this must not be a loopback address."""
    cluster = make_cluster(2, loopback_alias=False, share=package_folders())
    mimic = ("--mimic", "slurm")
    assert lines(cluster, "-np", "2", "-H", "h1:1,h2:1", *mimic, program="jax_psum.py", words=("theirs",)) == SUMS
