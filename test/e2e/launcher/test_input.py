"""Standard input that is a program, that no rank reads, and files and paths as people have them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ..conftest import launcher_path
from .test_command import run

PRINTS_RANK = 'import os; print("ran", os.environ["RANK"])\n'


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ([sys.executable, "-"], PRINTS_RANK),
        ([sys.executable, "-u"], PRINTS_RANK),
        ([sys.executable, "/dev/stdin"], PRINTS_RANK),
        (["env", "A=1", sys.executable, "-", "word"], PRINTS_RANK),
        (["bash", "-s", "x"], 'echo "ran $RANK"\n'),
        (["sh"], 'echo "ran $RANK"\n'),
    ],
)
def test_a_program_from_standard_input_runs_on_all_ranks(command: list[str], program: str) -> None:
    done = run("-np", "3", *command, stdin=program)
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] ran {rank}" for rank in range(3)], done.stderr


def test_the_user_decides_who_gets_a_program() -> None:
    done = run("-np", "3", "--stdin", "1", sys.executable, "-", stdin=PRINTS_RANK)
    assert done.stdout == "[1] ran 1\n", done.stderr
    plan = run("-np", "2", "--explain", sys.executable, "-", stdin="")
    assert "all ranks get standard input, because the program is in it (--stdin)" in plan.stdout


def loop(body: str, data: str, how: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Runs a shell with these data as its standard input: a file, or a pipe."""
    (tmp_path / "list").write_text(data)
    command = f"cat list | {{ {body}; }}" if how == "pipe" else f"{{ {body}; }} < list"
    return subprocess.run(
        ["sh", "-c", command],
        cwd=tmp_path,
        env={**os.environ, "D": launcher_path()},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("how", ["file", "pipe"])
@pytest.mark.parametrize("options", ["-np 2", "-np 2 --stdin all", "-np 2 --stdin none", "-np 2 --stdin 1"])
def test_a_loop_keeps_what_its_ranks_do_not_read(how: str, options: str, tmp_path: Path) -> None:
    body = f"while read -r x; do $D {options} sh -c 'echo $RANK $1' x $x; done"
    done = loop(body, "a\nb\nc\n", how, tmp_path)
    expected = [f"[{rank}] {rank} {word}" for word in "abc" for rank in range(2)]
    assert sorted(done.stdout.splitlines()) == sorted(expected), done.stderr


@pytest.mark.parametrize("how", ["file", "pipe"])
def test_what_a_rank_has_read_is_gone_and_the_rest_is_the_shells(how: str, tmp_path: Path) -> None:
    """Also where the job fails, and where the input is longer than a pipe."""
    rest = "".join(f"{i}\n" for i in range(30_000))
    body = "$D -np 1 sh -c 'read -r x; echo got $x; exit 3' 2>err; head -n 1; wc -c"
    done = loop(body, "one\ntwo\n" + rest, how, tmp_path)
    lines = done.stdout.split()
    if how == "file":  # head goes back to the end of the line that it has shown
        assert lines == ["[0]", "got", "one", "two", str(len(rest))], done.stdout + done.stderr
    else:
        assert lines[:4] == ["[0]", "got", "one", "two"], done.stdout + done.stderr


def test_paths_in_the_home(tmp_path: Path) -> None:
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    (home / "hosts").write_text("localhost slots=2\n")
    (home / "vars").write_text("\ufeffexport A='x y'\r\n")
    (here / "cfg").write_text("\ufeffoutput-dir = ~/logs\r\n")
    env = {"HOME": str(home), "DISTRUN_TIMELINE": "~/t.json"}
    files = ["--config", "cfg", "--hostfile=~/hosts", "--env-file=~/vars", "--report=~/r.json"]
    program = 'import distrun.numpy as hvd, os; hvd.init(); print(os.environ["A"])'
    done = run(*files, sys.executable, "-c", program, env=env, cwd=here)
    assert sorted(done.stdout.splitlines()) == ["[0] x y", "[1] x y"], done.stderr
    assert {path.name for path in here.iterdir()} == {"cfg"}
    assert {"hosts", "logs", "r.json", "t.json", "vars"} <= {path.name for path in home.iterdir()}


def test_a_command_of_launch_with_in_the_home(tmp_path: Path) -> None:
    start = tmp_path / "bin/start"
    start.parent.mkdir()
    start.write_text('#!/bin/sh\nexec sh -c "$1"\n')
    start.chmod(0o755)
    options = ["--launch-with", "~/bin/start {agent}", "--network", "lo", "-H", "far:1"]
    done = run(*options, "echo", "here", env={"HOME": str(tmp_path)})
    assert done.stdout == "[0] here\n", done.stderr


def test_path_names_another_python_than_a_variable(tmp_path: Path) -> None:
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (tmp_path / "hello.py").write_text("print('hello')\n")
    distrun = tmp_path / "distrun"
    distrun.symlink_to(launcher_path())
    env = {**os.environ, "VIRTUAL_ENV": "/no/venv", "PATH": f"{python.parent}:{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(
        ["distrun", "-np", "1", "hello.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "[0] hello\n", done.stderr
    assert done.stderr == (
        f"distrun: ranks run {python}, the first Python in PATH. VIRTUAL_ENV=/no/venv cannot be used: "
        "/no/venv/bin/python: No such file or directory\n"
    )
