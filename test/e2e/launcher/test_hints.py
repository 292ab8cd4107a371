"""Hints that the launcher prints when a job has failed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ..conftest import launcher_path

# A script for the strategy, without TensorFlow. Rank 1 ends well, and then rank 0 fails.
WORKERS = """
import os, sys, time
if "never" in sys.argv:
    import tensorflow as tf
    strategy = tf.distribute.{strategy}()
if os.environ["RANK"] == "1":
    open("ended", "w").close()
else:
    while not os.path.exists("ended"):
        time.sleep(0.05)
    time.sleep(1)
    sys.exit(3)
"""


@pytest.mark.parametrize("strategy", ["MultiWorkerMirroredStrategy", "experimental.CentralStorageStrategy"])
def test_a_worker_that_ends_early_gets_a_hint(tmp_path: Path, python: str, strategy: str) -> None:
    (tmp_path / "train.py").write_text(WORKERS.format(strategy=strategy))
    done = subprocess.run(
        [launcher_path(), "-np", "2", python, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 3, done.stderr
    hint = "distrun: rank 1 had ended with code 0: under MultiWorkerMirroredStrategy all workers must make"
    assert (hint in done.stderr) == strategy.startswith("Multi"), done.stderr
