"""Unmodified tf.distribute scripts find their cluster, with the real TensorFlow."""

from __future__ import annotations

import json
import os
import re
import subprocess

import pytest

from ..conftest import PROGRAMS, ROOT, StartJob
from .conftest import TWO_JOBS, RunFramework


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


@pytest.mark.timeout(TWO_JOBS)
def test_keras_3_fit_of_a_mirrored_strategy(run_framework: RunFramework, framework_python: str) -> None:
    """After fit(), losses, metrics, predictions and weights of three models equal those of one process."""
    program = "tf_keras_mwms.py"
    done = run_framework("-np", "2", "--tf-keras3-mwms", "--tag", "none", program=program)
    assert done.returncode == 0, done.stderr
    alone = subprocess.run(
        [framework_python, str(PROGRAMS / program), "alone"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert alone.returncode == 0, alone.stderr
    (expected,) = map(json.loads, alone.stdout.splitlines())
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == 2 and len(expected) == 3
    for one in found:
        for name, values in expected.items():
            assert one[name] == pytest.approx(values, rel=1e-5), name


def test_the_keras_3_example_of_a_mirrored_strategy(run_framework: RunFramework) -> None:
    program = str(ROOT / "examples/tf_distribute/mwms_keras_fit.py")
    done = run_framework("-np", "2", "--tf", program=program, words=("--epochs", "3"))
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^\[0\] epoch (\d):", done.stdout, re.MULTILINE) == ["1", "2", "3"], done.stdout
    accuracy = re.search(r"^\[0\] accuracy: (0\.\d+)$", done.stdout, re.MULTILINE)
    assert accuracy and float(accuracy[1]) > 0.85, done.stdout


def test_keras_3_is_mended_in_python_programs_only(start_job: StartJob) -> None:
    job = start_job("-np", "2", "--tf-keras3-mwms", "sh", "train.sh")
    assert job.finish(10) == 64
    assert "this is neither: sh train.sh" in job.text


def test_the_chiefs_failure_is_the_jobs(run_framework: RunFramework) -> None:
    done = run_framework("-np", "3", "--tf-roles", "chief=1,worker=1,ps=1", program="tf_parameter_server.py")
    assert done.returncode == 3, done.stderr
    assert "rank 0" in done.stderr


def test_a_server_that_cannot_start_ends_the_job(start_job: StartJob, python: str) -> None:
    """The Python of these tests has no TensorFlow. The chief's program does not need it."""
    job = start_job("-np", "3", "--tf-roles", "chief=1,worker=1,ps=1", python, "-c", "import time; time.sleep(60)")
    assert job.finish(30) == 1
    assert "ps and worker ranks run a TensorFlow server, but" in job.text


def test_a_layout_that_would_hang_is_refused(start_job: StartJob, python: str) -> None:
    job = start_job("-np", "3", "--tf-roles", "chief=1,worker=1,ps=1", python, PROGRAMS / "tf_mirrored.py")
    assert job.finish(10) == 64
    assert "leave out ps in --tf-roles, or use ParameterServerStrategy" in job.text
