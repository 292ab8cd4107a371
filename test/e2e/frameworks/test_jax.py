"""distrun.jax; and jax.distributed, which finds the job by it, or unmodified with --mimic. With the real JAX."""

from __future__ import annotations

import re
import subprocess

import pytest

from ..conftest import PROGRAMS, ROOT, StartJob
from .conftest import RunFramework


@pytest.mark.parametrize(
    ("options", "word"), [((), "ours"), (("--mimic", "openmpi"), "theirs"), (("--mimic", "slurm"), "theirs")]
)
def test_processes_find_each_other(run_framework: RunFramework, options: tuple[str, ...], word: str) -> None:
    done = run_framework("-np", "2", *options, program="jax_psum.py", words=(word,))
    assert done.returncode == 0, done.stderr
    # Gloo, which JAX uses between CPUs, says that it is connected.
    lines = [line for line in done.stdout.splitlines() if "[Gloo]" not in line]
    assert sorted(lines) == ["[0] process 0 of 2: 3.0", "[1] process 1 of 2: 3.0"]


def test_without_the_launcher_the_cure_is_named(framework_python: str) -> None:
    done = subprocess.run(
        [framework_python, "-c", "import distrun.jax; distrun.jax.initialize_distributed()"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "start the program with distrun -np N" in done.stderr


@pytest.mark.parametrize(("ranks", "options"), [(1, ()), (2, ()), (3, ("--oversubscribe",)), (2, ("--backend", "tcp"))])
def test_operations(run_framework: RunFramework, ranks: int, options: tuple[str, ...]) -> None:
    """At once, in compiled programs, their gradients and errors: jax_ops.py says which."""
    program = str(ROOT / "test/python/programs/jax_ops.py")
    done = run_framework("-np", str(ranks), *options, program=program)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all checks passed") == ranks


def test_mnist(run_framework: RunFramework) -> None:
    done = run_framework("-np", "2", program=str(ROOT / "examples/jax_mnist.py"))
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^\[0\] epoch \d: loss \d\.\d+, \d+ samples/s$", done.stdout, re.MULTILINE)) == 8
    found = re.search(r"^\[0\] accuracy: (0\.\d+)$", done.stdout, re.MULTILINE)
    assert found and float(found[1]) > 0.88, done.stdout


def test_next_to_jax_distributed(run_framework: RunFramework) -> None:
    done = run_framework("-np", "2", program="jax_both.py")
    assert done.returncode == 0, done.stderr
    assert sum("both agree: 3.0" in line for line in done.stdout.splitlines()) == 2


def test_a_rank_that_dies_in_a_step(start_job: StartJob, framework_python: str) -> None:
    """The other rank's compiled program ends with an error that names it, at once."""
    job = start_job("-np", "2", framework_python, PROGRAMS / "jax_killed.py")
    assert job.finish(120) == 137, job.text
    told = re.search(r"told after (\d+\.\d+) s: (.*)", job.text)
    assert told and float(told[1]) < 2, job.text
    assert "RankLost" in told[2] and "ranks=(1,)" in told[2] and "SIGKILL" in told[2], job.text


def test_a_rank_with_fewer_batches_leaves(start_job: StartJob, framework_python: str) -> None:
    """What the other waits for then fails at once, and says for whom it waited."""
    job = start_job("-np", "2", framework_python, PROGRAMS / "jax_leaves.py")
    assert job.finish(120) == 76, job.text
    left, told = re.search(r"leaves (\S+)", job.text), re.search(r"told (\S+) (.*)", job.text)
    assert left and told and float(told[1]) - float(left[1]) < 2, job.text
    assert "RankLeft ranks=(0,)" in told[2] and "allreduce.gradient" in told[2], job.text
