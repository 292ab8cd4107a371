"""The examples for tf.distribute's strategies. They have no line for distrun, which writes TF_CONFIG for them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from environments import environment_python

from ..conftest import ROOT
from .conftest import TWO_JOBS, Completed, RunFramework, assert_trained, run_with

EXAMPLES = ROOT / "examples/tf_distribute"


def losses(done: Completed) -> dict[int, float]:
    """The loss of each epoch. Checks that the job succeeded and that only rank 0 printed."""
    assert_trained(done, 0.8)
    lines = re.findall(r"^\[0\] epoch (\d): loss (\d\.\d+), \d+ samples/s$", done.stdout, re.MULTILINE)
    return {int(epoch): float(loss) for epoch, loss in lines}


@pytest.fixture(scope="module")
def first_loss() -> list[float]:
    """The loss of the first epoch on one device, once that test has run. The other strategies must compute the same."""
    return []


@pytest.mark.parametrize(
    ("example", "words"),
    [
        ("one_device.py", ()),
        ("one_device.py", ("--device", "default")),
        ("central_storage.py", ()),
        ("mirrored.py", ("--reduce", "hierarchical")),
        ("mirrored.py", ("--reduce", "one-device", "--fit")),
    ],
)
def test_strategies_of_one_process(
    run_framework: RunFramework, first_loss: list[float], example: str, words: tuple[str, ...]
) -> None:
    done = run_framework("-np", "1", program=str(EXAMPLES / example), words=("--epochs", "1", *words))
    found = losses(done)
    assert list(found) == [1]
    if first_loss:  # Keras's fit() shuffles in its own order
        assert found[1] == pytest.approx(first_loss[0], rel=0.02 if "--fit" in words else 1e-3)
    else:
        first_loss.append(found[1])
    assert ("[0] 2 replicas" in done.stdout.splitlines()) == (example == "mirrored.py")


@pytest.mark.timeout(TWO_JOBS)
def test_a_custom_loop_goes_on_from_its_checkpoint(
    run_framework: RunFramework, first_loss: list[float], tmp_path: Path
) -> None:
    """The first job has two workers with RING, the second a chief and a worker with AUTO. Only the chief keeps
    files."""
    program, checkpoints = str(EXAMPLES / "mwms_custom_loop.py"), ("--checkpoints", str(tmp_path))
    first = losses(run_framework("-np", "2", "--tf", program=program, words=("--epochs", "1", *checkpoints)))
    assert list(first) == [1]
    if first_loss:
        assert first[1] == pytest.approx(first_loss[0], rel=1e-3)
    chief = run_framework("-np", "2", "--tf-roles", "chief=1,worker=1", program=program,
                          words=("--epochs", "2", "--communication", "auto", *checkpoints))  # fmt: skip
    second = losses(chief)
    assert list(second) == [2] and second[2] < 0.6 * first[1]
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["checkpoint", "ckpt-1", "ckpt-1", "ckpt-2", "ckpt-2"]


def test_a_parameter_server_cluster(run_framework: RunFramework, tmp_path: Path) -> None:
    """Only chief and evaluator run the program. The servers end with the chief, and nothing is left."""
    done = run_framework("-v", "-np", "5", "--oversubscribe", "--tf-roles", "chief=1,worker=2,ps=1,evaluator=1",
                         program=str(EXAMPLES / "parameter_server.py"),
                         words=("--epochs", "2", "--checkpoints", str(tmp_path)))  # fmt: skip
    assert list(losses(done)) == [1, 2]
    assert set(re.findall(r"^\[\d+\]", done.stdout, re.MULTILINE)) == {"[0]", "[4]"}
    last = done.stdout.split("[4] evaluator: ")[-1]
    assert re.match(r"accuracy 0\.[89]\d+ after epoch 2\n", last), done.stdout
    assert "ranks 1-3 run a TensorFlow server instead of the program, and end with the chief, rank 0" in done.stderr


@pytest.mark.full
@pytest.mark.timeout(TWO_JOBS)
def test_legacy_fit_goes_on_after_a_killed_worker(tmp_path: Path) -> None:
    """After a second start, BackupAndRestore skips the epochs that are done."""
    run = run_with(environment_python("tf-keras"))

    def start(*words: str) -> Completed:
        return run("-np", "2", "--tf", program="tf_legacy_fit.py", words=(str(tmp_path / "backup"), *words))

    killed = start("dies")
    assert killed.returncode == 137 and "rank 1" in killed.stderr, killed.stdout + killed.stderr
    again = start()
    assert again.returncode == 0, again.stdout + again.stderr
    assert re.findall(r"^\[0\] task 0 epoch (\d)", again.stdout, re.MULTILINE) == ["3", "4"], again.stdout
    ends = re.findall(r"task (\d) ends with (\S+) after 2 epochs", again.stdout)
    assert len(ends) == 2 and ends[0][1] == ends[1][1], again.stdout
