"""scripts/lib/tidy.py checks only changed files again, and never keeps a failure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import ROOT

FAKE = """#!/bin/sh
[ "$1" = --version ] && { echo "version ${FAKE_VERSION:-1}"; exit; }
for file; do :; done
echo "$file" >>"$FAKE_CALLS"
! grep -q 'a fault' "$file" || { echo "$file: a fault"; exit 1; }
"""


class Tree:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tool = folder / "fake-tidy"
        self.tool.write_text(FAKE)
        self.tool.chmod(0o755)
        self.environment = {**os.environ, "XDG_CACHE_HOME": str(folder), "FAKE_CALLS": str(folder / "calls")}
        for name in ("one", "two"):
            (folder / f"{name}.c").write_text(f'#include "{name}.h"\n')
            (folder / f"{name}.h").write_text("int x;\n")
        command = "cc -I. -o {0}.o -c {1}/{0}.c"
        listed = [
            {"directory": str(folder), "file": f"{folder}/{name}.c", "command": command.format(name, folder)}
            for name in ("one", "two")
        ]
        (folder / "compile_commands.json").write_text(json.dumps(listed))

    def check(self, **environment: str) -> tuple[int, list[str], str]:
        """Returns the exit code, the files that the tool checked, and the output."""
        calls = self.folder / "calls"
        calls.write_text("")
        line = [sys.executable, str(ROOT / "scripts/lib/tidy.py"), str(self.tool), str(self.folder), "2"]
        done = subprocess.run(line, env={**self.environment, **environment}, capture_output=True, text=True, timeout=60)
        return done.returncode, sorted(Path(call).stem for call in calls.read_text().split()), done.stdout + done.stderr


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_only_what_changed_is_looked_at(tree: Tree) -> None:
    assert tree.check()[:2] == (0, ["one", "two"])
    assert tree.check()[:2] == (0, [])
    (tree.folder / "one.h").write_text("int x; // NOLINT\n")
    assert tree.check()[:2] == (0, ["one"])
    assert tree.check(FAKE_VERSION="2")[:2] == (0, ["one", "two"])


def test_a_failure_is_told_each_time(tree: Tree) -> None:
    (tree.folder / "two.c").write_text("// a fault\n")
    for looked_at in (["one", "two"], ["two"]):
        code, files, text = tree.check()
        assert (code, files) == (1, looked_at) and "two.c: a fault" in text and "1 of 2 files pass" in text
    (tree.folder / "two.c").write_text("int y;\n")
    assert tree.check()[:2] == (0, ["two"])


def test_no_files_are_no_pass(tree: Tree) -> None:
    (tree.folder / "compile_commands.json").write_text("[]")
    assert tree.check()[:2] == (1, [])
