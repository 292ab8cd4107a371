"""The fork server of the tests. A program in it gets everything that a process gets, and ends like one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import forked
import pytest


def start(tmp_path: Path, text: str, *arguments: str, **options: object) -> subprocess.Popen[str]:
    program = tmp_path / "program.py"
    program.write_text(text)
    line = [*forked.client(forked.start_server(sys.executable, ("decimal",), ()), sys.executable, program), *arguments]
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(line, text=True, **{**streams, **options})  # type: ignore[call-overload, no-any-return]


def gone(pid: int) -> bool:
    """Whether the process has ended. It may still be a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_it_is_given_what_a_process_is_given(tmp_path: Path) -> None:
    text = """
import os, sys
assert "decimal" in sys.modules and __name__ == "__main__" and sys.modules["__main__"].__dict__ is globals()
print(sys.argv[1:], os.environ["OF_ITS_OWN"], os.getcwd(), "PATH" in os.environ, sorted(os.sched_getaffinity(0)))
print(os.read(int(sys.argv[1]), 9), sys.stdin.read(), os.path.dirname(__file__) == sys.path[0])
print("and", file=sys.stderr)
"""
    reader, writer = os.pipe()
    os.write(writer, b"from it")
    process = start(tmp_path, text, str(reader), env={"OF_ITS_OWN": "x y"}, cwd=tmp_path, pass_fds=[reader])
    os.close(reader)
    out, err = process.communicate("typed", timeout=60)
    os.close(writer)
    cores = sorted(os.sched_getaffinity(0))
    assert out == f"['{reader}'] x y {tmp_path} False {cores}\nb'from it' typed True\n", err
    assert (err, process.returncode) == ("and\n", 0)


@pytest.mark.parametrize(
    ("text", "code", "err"),
    [
        ("pass", 0, ""),
        ("raise SystemExit(7)", 7, ""),
        ("raise SystemExit('why')", 1, "why\n"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
        ("import os; os.abort()", -signal.SIGABRT, ""),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL, ""),
        ("import atexit, os; atexit.register(os._exit, 5)", 5, ""),
    ],
)
def test_it_ends_as_the_program_does(tmp_path: Path, text: str, code: int, err: str) -> None:
    process = start(tmp_path, text)
    assert process.communicate(timeout=60)[1].endswith(err)
    assert process.returncode == code


def test_a_signal_reaches_the_program(tmp_path: Path) -> None:
    text = """
import signal, sys, time
def leave(number, frame):
    sys.exit(f"told {number}")
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
time.sleep(100)
"""
    process = start(tmp_path, text)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.terminate()
    assert process.communicate(timeout=60)[1] == "told 15\n" and process.returncode == 1


def test_the_program_ends_with_a_killed_client(tmp_path: Path) -> None:
    process = start(tmp_path, "import os, time; print(os.getpid(), flush=True); time.sleep(100)")
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.kill()
    process.communicate(timeout=60)
    deadline = time.monotonic() + 30
    while not gone(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_alone_means_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program.py"
    program.write_text("import distrun.torch as hvd\n")
    own = [sys.executable, str(program)]
    assert forked.command(sys.executable, program, alone=True) == own
    assert forked.preloaded_by(program)[0] == "torch"
    monkeypatch.setenv("TEST_FORK", "0")
    assert forked.command(sys.executable, program) == own
