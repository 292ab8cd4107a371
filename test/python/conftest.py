"""Finds the package and the command under test.

Without options: the installed `distrun` package, and the `distrun` beside this Python or on PATH. With --build-dir: the
sources of this tree with the library and command of that build; nothing is installed. With --command, or the variable
TEST_DISTRUN: this command.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import forked
import hypothesis
import pytest
from started_tests import pytest_runtest_logstart, use_default_signals  # noqa: F401  # a hook

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).resolve().parent / "programs"

use_default_signals()

Result = subprocess.CompletedProcess[str]
RunRanks = Callable[..., Result]
MpiStart = Callable[[int], list[str]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--build-dir", help="test this build's library and command instead of what is installed")
    parser.addoption("--command", help="the distrun to start ranks with, instead of the one beside this Python")


def pytest_configure(config: pytest.Config) -> None:
    build = config.getoption("--build-dir")
    if not build:
        return
    stage = Path(tempfile.mkdtemp(prefix="distrun-package-"))
    config.add_cleanup(lambda: shutil.rmtree(stage, ignore_errors=True))
    package = stage / "distrun"
    (package / "lib").mkdir(parents=True)
    core = ROOT / "bindings/python/distrun"
    for part in [*core.glob("*.py"), *(init.parent for init in core.glob("*/__init__.py"))]:
        (package / part.name).symlink_to(part)
    for init in (ROOT / "frameworks").glob("*/__init__.py"):
        (package / init.parent.name).symlink_to(init.parent)
    (package / "lib/libdistrun.so").symlink_to(Path(build).resolve() / "runtime/api/libdistrun.so")
    sys.path.insert(0, str(stage))
    os.environ["PYTHONPATH"] = str(stage)


def find_command(config: pytest.Config) -> str | None:
    """The distrun command under test."""
    named, build = config.getoption("--command") or os.environ.get("TEST_DISTRUN"), config.getoption("--build-dir")
    if named:
        return str(named)
    if build:
        return str(Path(build).resolve() / "launcher/distrun")
    beside = Path(sys.executable).with_name("distrun")
    return str(beside) if beside.exists() else shutil.which("distrun")


@pytest.fixture(scope="session")
def command(pytestconfig: pytest.Config) -> str:
    found = find_command(pytestconfig)
    assert found is not None and Path(found).exists(), "no distrun command: install the package, or pass --build-dir"
    return found


@pytest.fixture
def mpi_start(command: str) -> MpiStart:
    """Returns the beginning of a command that starts N ranks with Open MPI. From Open MPI 5 on this is distrun's --mpi,
    because ranks that have met through PMIx cannot initialise MPI any more (docs/internals/gotchas.md)."""
    mpirun = shutil.which("mpirun.openmpi") or pytest.skip("needs Open MPI's mpirun: the package openmpi-bin")
    printed = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"\((?:Open MPI|OpenRTE)\) (\d+)", printed)
    assert version, printed
    start = [command, "--mpi", "--tag", "none"] if int(version[1]) >= 5 else [mpirun]
    return lambda ranks: [*start, "--oversubscribe", "-np", str(ranks)]


@pytest.fixture
def run_ranks(command: str) -> RunRanks:
    """run_ranks(2, "name.py", "argument", check=True, timeout=120) runs a program of programs/ on that number of ranks.

    `alone`: the ranks are separate processes, not forks."""

    def run(
        ranks: int,
        program: str,
        *arguments: str,
        check: bool = True,
        timeout: float = 150,
        backend: str = "auto",
        alone: bool = False,
    ) -> Result:
        # The time limit also ends the ranks. No process may survive a test, whatever its result.
        line = [command, "-np", str(ranks), "--timeout", str(timeout), "--backend", backend]
        start = forked.command(sys.executable, PROGRAMS / program, alone=alone)
        line += [*start, *arguments]
        result = subprocess.run(line, capture_output=True, text=True, timeout=timeout + 20, check=False)
        if check:
            assert result.returncode == 0, f"exit code {result.returncode}\n{result.stdout}\n{result.stderr}"
        return result

    return run


def run_text(folder: Path, text: str) -> Result:
    """Writes the program into the folder and runs it without a launcher."""
    program = folder / "program.py"
    program.write_text(text)
    line = forked.command(sys.executable, program)
    return subprocess.run(line, capture_output=True, text=True, timeout=100, check=False)


# Property tests run beside other tests, so the time of their examples means nothing.
hypothesis.settings.register_profile("distrun", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("distrun")
