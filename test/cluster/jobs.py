"""Runs `distrun` on a host of a cluster, with the environment that it needs there, and reads its output line by
line."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO
from weakref import WeakKeyDictionary

import pytest

from .rig import ROOT, Host, Process

PROGRAMS = Path(__file__).resolve().parent / "programs"
LOOP = ROOT / "test/e2e/programs/loop.py"
EXAMPLES = ROOT / "examples"


def launcher() -> Path:
    """The `distrun` beside this Python, otherwise the one of the newest build."""
    beside = Path(sys.executable).parent / "distrun"
    if beside.is_file():
        return beside
    built = sorted(ROOT.glob("build/**/launcher/distrun"), key=lambda path: path.stat().st_mtime)
    if not built:
        pytest.exit("distrun is not built: run scripts/test", returncode=1)
    return built[-1]


def package_paths() -> list[str]:
    """Folders of this Python's modules that are not installed into it. Empty if distrun is installed."""
    return [path for path in os.environ.get("PYTHONPATH", "").split(":") if path]


def job_environment() -> dict[str, str]:
    """The environment of a shell on the head node, with `distrun` and this Python first on PATH."""
    folders = [str(launcher().parent), str(Path(sys.executable).parent)]
    environment = {"PATH": ":".join([*folders, "/usr/local/bin:/usr/bin:/bin"])}
    paths = package_paths()
    return environment | ({"PYTHONPATH": ":".join(paths)} if paths else {})


def wait_until(happened: Callable[[], bool], what: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"after {seconds} s not yet: {what}"
        time.sleep(0.02)


def run(host: Host, *arguments: str | Path, env: dict[str, str] | None = None, timeout: float = 60.0,
        cwd: str | Path = "/tmp", input: str | None = None) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """Runs `distrun arguments...` to its end."""
    remember_files(host)
    environment = job_environment() | (env or {})
    return host.run([launcher(), *arguments], env=environment, timeout=timeout, cwd=cwd, input=input)


def agents(host: Host) -> list[Process]:
    """The guard of the agent, and the agent, which is its child."""
    return [each for each in host.processes() if each.argv[1:] == ("agent", "--guard")]


# The files in a host's /tmp and /dev/shm before its last job started.
_files_before: WeakKeyDictionary[Host, set[str]] = WeakKeyDictionary()


def files_of(host: Host) -> set[str]:
    """All but the folders where torch keeps the results of its compiler."""
    names = {f"{folder}/{name}" for folder in ("/tmp", "/dev/shm") for name in os.listdir(host.path(folder))}
    return {name for name in names if not name.startswith("/tmp/torchinductor_")}


def remember_files(host: Host) -> None:
    """Remembers the files of all hosts of the cluster. They include files of the tests."""
    for each in host.together:
        if each.alive:
            _files_before[each] = files_of(each)


class Job:
    """A running `distrun`."""

    def __init__(
        self,
        host: Host,
        *arguments: str | Path,
        env: dict[str, str] | None = None,
        job_control: bool = False,
        cwd: str = "/tmp",
    ) -> None:
        """`job_control`: starts it as a shell with job control does. Otherwise the kernel ignores SIGTSTP."""
        self.host = host
        remember_files(host)
        self.process = host.popen(
            [launcher(), *arguments],
            env=job_environment() | (env or {}),
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=not job_control,
            preexec_fn=os.setpgrp if job_control else None,
        )
        self.lines: list[tuple[float, str]] = []
        self.ended = 0.0
        self._changed = threading.Condition()
        streams = (self.process.stdout, self.process.stderr)
        self._readers = [threading.Thread(target=self._read, args=(stream,), daemon=True) for stream in streams]
        self._waiter = threading.Thread(target=self._wait, daemon=True)
        for thread in (*self._readers, self._waiter):
            thread.start()

    def _wait(self) -> None:
        """Records the time of the end, even if the test asks for it later."""
        self.process.wait()
        self.ended = time.monotonic()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            with self._changed:
                self.lines.append((time.monotonic(), line.rstrip("\n")))
                self._changed.notify_all()

    @property
    def text(self) -> str:
        with self._changed:
            return "\n".join(line for _, line in self.lines)

    def found(self, pattern: str) -> list[tuple[float, re.Match[str]]]:
        """The matching lines so far, each with the time of its arrival."""
        with self._changed:
            return [(when, match) for when, line in self.lines if (match := re.search(pattern, line))]

    def wait_for(self, pattern: str, count: int = 1, seconds: float = 60.0) -> list[re.Match[str]]:
        deadline = time.monotonic() + seconds
        while len(matches := self.found(pattern)) < count:
            alive = any(reader.is_alive() for reader in self._readers)
            assert alive and time.monotonic() < deadline, f"not {count} lines like {pattern!r}:\n{self.text}"
            with self._changed:
                self._changed.wait(0.1)
        return [match for _, match in matches]

    def ranks(self, count: int) -> dict[int, int]:
        """Waits until `count` ranks have printed `ready RANK PID`, and returns the pid of each rank."""
        return {int(match[1]): int(match[2]) for match in self.wait_for(r"ready (\d+) (\d+)", count)}

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def finish(self, seconds: float = 60.0) -> int:
        """Waits for the end and for all output. Returns the exit code."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            raise AssertionError(f"the job has not ended within {seconds} s:\n{self.text}") from None
        for thread in (*self._readers, self._waiter):
            thread.join(10)
        return code


def end_strays(host: Host) -> list[Process]:
    """Kills the processes that a job has left on a host, and returns them."""
    strays = host.strays()
    for process in strays:
        host.run(["kill", "-9", str(process.pid)])
    return strays


def assert_nothing_left(*hosts: Host, seconds: float = 20.0) -> None:
    """Checks the process table. If a job was started from this host, also checks /tmp and /dev/shm, where MPI keeps
    folders under other launchers."""
    for host in hosts:
        wait_until(lambda host=host: not host.strays(), f"{host.name} is empty: {host.strays()}", seconds)  # type: ignore[misc]
        if host in _files_before:
            files = files_of(host) - _files_before[host]
            assert not files, f"left on {host.name}: {files}"


def package_folders() -> list[Path]:
    """The folders besides the repository that programs need on every host."""
    return [Path(path) for path in package_paths() if Path(path).is_dir()]
