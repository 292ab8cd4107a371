"""Unmodified tf.distribute scripts find their cluster: with the real TensorFlow."""

from __future__ import annotations

import re
import time

import pytest

from ..conftest import PROGRAMS, StartJob
from .conftest import RunFramework

PS_ROLES = ("-np", "5", "--tf-roles", "chief=1,worker=2,ps=1,evaluator=1")


@pytest.mark.parametrize(
    ("options", "tasks"),
    [((), ["worker 0", "worker 1"]), (("--tf-roles", "chief=1,worker=1"), ["chief 0", "worker 0"])],
)
def test_workers_of_a_mirrored_strategy(
    run_framework: RunFramework, options: tuple[str, ...], tasks: list[str]
) -> None:
    done = run_framework("-np", "2", *options, program="tf_mirrored.py")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] task {task} of 2: 3.0" for rank, task in enumerate(tasks)]


def test_a_parameter_server_cluster(run_framework: RunFramework) -> None:
    """Only chief and evaluator run the program; the servers end with the chief, and nothing is left."""
    started = time.monotonic()
    done = run_framework("-v", *PS_ROLES, program="tf_parameter_server.py")
    assert done.returncode == 0, done.stderr
    assert sorted(re.sub(r" on /job:ps.*", " on ps", line) for line in done.stdout.splitlines()) == [
        "[0] count 20 on ps",
        "[0] program runs as chief 0",
        "[4] evaluating",
    ]
    assert "ranks 1-3 run a TensorFlow server instead of the program, and end with the chief, rank 0" in done.stderr
    assert time.monotonic() - started < 100


def test_the_chiefs_failure_is_the_jobs(run_framework: RunFramework) -> None:
    done = run_framework("-np", "3", "--tf-roles", "chief=1,worker=1,ps=1", program="tf_parameter_server.py",
                         words=("fail",))  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert "rank 0" in done.stderr


def test_a_server_that_cannot_start_ends_the_job(start_job: StartJob, python: str) -> None:
    """The Python of these tests has no TensorFlow, and the chief's program does not need it."""
    job = start_job("-np", "3", "--tf-roles", "chief=1,worker=1,ps=1", python, "-c", "import time; time.sleep(60)")
    assert job.finish(30) == 1
    assert "ps and worker ranks run a TensorFlow server, but" in job.text


def test_a_layout_that_would_hang_is_refused(start_job: StartJob, python: str) -> None:
    job = start_job("-np", "3", "--tf-roles", "chief=1,worker=1,ps=1", python, PROGRAMS / "tf_mirrored.py")
    assert job.finish(10) == 64
    assert "leave out ps, or use ParameterServerStrategy" in job.text
