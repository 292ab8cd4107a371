"""Runs jobs under the real `distrun` command, and checks that they leave nothing."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from started_tests import pytest_runtest_logstart, use_default_signals  # noqa: F401  # a hook

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "test/e2e/programs"
MARKER = "FAULTS_JOB_MARKER"
CACHES = ("torchinductor_",)  # frameworks keep these caches among the temporary files

use_default_signals()


def launcher_path() -> str:
    """Path of `distrun`: from TEST_DISTRUN, else beside this Python, else the newest build, else from PATH."""
    if named := os.environ.get("TEST_DISTRUN"):
        return named
    beside = Path(sys.executable).parent / "distrun"
    if beside.is_file():
        return str(beside)
    built = sorted(ROOT.glob("build/**/launcher/distrun"), key=lambda path: path.stat().st_mtime)
    found = str(built[-1]) if built else shutil.which("distrun")
    if found is None:
        pytest.exit("distrun is not built: run scripts/test", returncode=1)
    return found


def build_flags() -> list[str]:
    """Flags for compiling C and C++ programs against distrun."""
    out = subprocess.run([launcher_path(), "--cflags", "--libs"], capture_output=True, text=True, check=True).stdout
    return shlex.split(out)


@cache
def backends() -> dict[str, str]:
    """What `distrun check` reports for each backend."""
    done = subprocess.run([launcher_path(), "check", "--build", "--json"], capture_output=True, text=True, timeout=60)
    return dict(json.loads(done.stdout)["backends"])


def needs_backend(name: str) -> pytest.MarkDecorator:
    """Skips the test, with the reason, if this installation has no plug-in `name`."""
    says = backends().get(name, "no plug-in")
    return pytest.mark.skipif("no plug-in" in says, reason=f"{name}: {says}")


def marked_processes(marker: str) -> list[int]:
    """Pids of the processes that have the job's marker in their environment. Zombies have none, so they do not
    count."""
    found = []
    needle = f"{MARKER}={marker}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if needle in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def end_marked(marker: str, processes: list[subprocess.Popen[str]]) -> None:
    """Kills the processes and all others with their marker. Waits for no pipe that another process holds open."""
    for pid in {*marked_processes(marker), *(process.pid for process in processes if process.poll() is None)}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for process in processes:
        try:
            process.communicate(timeout=10)
        except (subprocess.TimeoutExpired, ValueError):  # ValueError: the test has closed a pipe
            process.wait(10)


def signal_waits(pid: int, number: int) -> bool:
    """Whether a signal that was sent to the process is still pending."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    found = re.search(r"^ShdPnd:\s*([0-9a-f]+)", status, re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> (number - 1) & 1)


def agent_of(launcher: int) -> int:
    """The pid of the agent of a job that runs on this host only."""
    return int(subprocess.check_output(["pgrep", "-P", str(launcher), "-f", "distrun agent"], text=True).split()[0])


def shared_files() -> set[str]:
    """Files in /tmp with names that distrun could use. The test compares them before and after, because other programs
    run beside the tests. Shared memory has no name here; test/cluster checks /dev/shm of each of its hosts."""
    found = {str(path) for path in Path("/tmp").glob("*distrun*")}
    return {path for path in found if not path.startswith(("/tmp/distrun-test-", "/tmp/distrun-package-"))}


class Job:
    """One run of `distrun`. Threads collect its output, so that tests can wait for lines."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        self.marker = uuid.uuid4().hex
        self.temporary = Path(tempfile.mkdtemp(prefix="distrun-test-"))
        self.shared_before = shared_files()
        own = {MARKER: self.marker, "PYTHONUNBUFFERED": "1", "TMPDIR": str(self.temporary)}
        environment = {**os.environ, **environment, **own}
        command = [launcher_path(), "-x", MARKER, *arguments]
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.out: list[str] = []
        self.err: list[str] = []
        self._changed = threading.Condition()
        self._readers = [
            threading.Thread(target=self._read, args=(stream, lines), daemon=True)
            for stream, lines in ((self.process.stdout, self.out), (self.process.stderr, self.err))
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream, lines: list[str]) -> None:  # type: ignore[no-untyped-def]
        for line in stream:
            with self._changed:
                lines.append(line.rstrip("\n"))
                self._changed.notify_all()

    @property
    def text(self) -> str:
        return "\n".join([*self.out, *self.err])

    def wait_lines(
        self, pattern: str, count: int = 1, timeout: float = 60.0, errors: bool = False
    ) -> list[re.Match[str]]:
        """Waits until `count` lines of standard output (or error) match. If they do not come, fails with all output."""
        lines, reader = (self.err, self._readers[1]) if errors else (self.out, self._readers[0])
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                found = [match for line in lines if (match := re.search(pattern, line))]
                if len(found) >= count:
                    return found
                if time.monotonic() > deadline or (self.process.poll() is not None and not reader.is_alive()):
                    pytest.fail(f"{count} lines like {pattern!r} did not come:\n{self.text}")
                self._changed.wait(0.2)

    def ranks(self, count: int) -> dict[int, int]:
        """Waits until `count` ranks have printed `ready RANK PID`, and returns the pid of each rank."""
        found = self.wait_lines(r"ready (\d+) (\d+)", count)
        return {int(match[1]): int(match[2]) for match in found}

    def signal(self, number: int) -> None:
        """Sends the signal to the launcher and waits until it is not pending: the kernel merges equal pending
        signals."""
        self.process.send_signal(number)
        deadline = time.monotonic() + 60
        while self.process.poll() is None and signal_waits(self.process.pid, number):
            assert time.monotonic() < deadline, f"the launcher has not taken signal {number}:\n{self.text}"
            time.sleep(0.01)

    def finish(self, timeout: float = 60.0) -> int:
        """Waits until the launcher and all processes of the job have ended. Fails if a file of the job is left."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the job did not end within {timeout} s:\n{self.text}")
        for reader in self._readers:
            reader.join(5)
        self.assert_gone()
        return code

    def assert_gone(self, timeout: float = 10.0) -> None:
        deadline = time.monotonic() + timeout
        while (left := marked_processes(self.marker)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not left, f"processes left behind: {left}\n{self.text}"
        files = [str(path) for path in self.temporary.iterdir() if not path.name.startswith(CACHES)]
        files += shared_files() - self.shared_before
        assert not files, f"files left behind: {files}\n{self.text}"

    def clean_up(self) -> None:
        for pid in marked_processes(self.marker):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait(10)
        shutil.rmtree(self.temporary, ignore_errors=True)


StartJob = Callable[..., Job]


@pytest.fixture
def start_job() -> Iterator[StartJob]:
    """start_job("-np", "2", program, ..., env={...}) returns a running Job, which the fixture kills at the end of the
    test."""
    jobs: list[Job] = []

    def start(*arguments: str | Path, env: dict[str, str] | None = None) -> Job:
        jobs.append(Job([str(argument) for argument in arguments], env or {}))
        return jobs[-1]

    yield start
    for job in jobs:
        job.clean_up()


@pytest.fixture
def python() -> str:
    """The Python that runs the tests, which can import distrun."""
    return sys.executable


@pytest.fixture
def programs() -> Path:
    return PROGRAMS
