"""jax.distributed finds the job: by distrun.jax, and unmodified with --mimic. With the real JAX."""

from __future__ import annotations

import subprocess

import pytest

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
