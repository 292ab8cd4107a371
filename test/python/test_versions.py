"""scripts/versions, with an index of files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import ROOT
from .test_scripts import load


def show(index: str, *arguments: str) -> list[str]:
    """Returns the lines that the script prints; pip has no other index than this one."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    env |= {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": index}
    command = [sys.executable, ROOT / "scripts/lib/versions.py", *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def index(tmp_path: Path) -> str:
    """Has a newer ruff, and one that no Python here can have."""
    files = ["ruff-99.1-py3-none-any.whl", "ruff-99.10-py3-none-any.whl", "ruff-99.11-cp27-none-any.whl"]
    (tmp_path / "ruff").mkdir()
    links = "".join(f'<a href="{name}">{name}</a>' for name in files)
    (tmp_path / "ruff/index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")
    return tmp_path.as_uri()


def test_the_newest_version_is_the_newest_that_this_python_can_have(index: str) -> None:
    lines = show(index, "ruff", "mypy")
    assert lines[0].split() == ["package", "pinned", "newest"]
    assert lines[1].split()[0] == "mypy" and lines[1].endswith("no answer")
    assert lines[2].split()[0] == "ruff" and lines[2].split()[2:] == ["99.10", "newer"]
    assert "1 of 2 packages have a newer version than the newest pin." in lines
    assert lines[-1].startswith("No index has answered for 1 of them.")


def test_without_a_network_it_says_so() -> None:
    lines = show("http://127.0.0.1:9/simple", "ruff")
    assert "0 of 1 packages have a newer version than the newest pin." in lines
    assert lines[-1].startswith("No index has answered for 1 of them. Is there a network?")


def test_the_pins_of_all_files_are_found(tmp_path: Path) -> None:
    versions = load("lib/versions.py")
    texts = dict.fromkeys(versions.FILES, "")
    texts["scripts/lib/environments.ini"] = 'packages =\n  a==1.10; python_version >= "3.11"\n  a==1.9\n  free\n'
    texts["scripts/lib/common.sh"] = "# need_python name==version\nneed_python b-c==13.0.88 d>=1.0\n"
    texts["pyproject.toml"] = 'mxnet = ["e==1", "f[g]==2.0+cpu"]\n'
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = {pin.name: pin.versions for pin in versions.pins(tmp_path)}
    assert found == {"a": ["1.9", "1.10"], "b-c": ["13.0.88"], "e": ["1"], "f": ["2.0+cpu"]}


def test_pins_of_each_kind_are_found_in_this_tree() -> None:
    assert {"torch", "nvidia-nccl-cu13", "mxnet", "sphinx"} <= {pin.name for pin in load("lib/versions.py").pins()}


@pytest.mark.parametrize(
    ("newest", "old"), [("1.10", False), ("1.10.0+cpu", False), ("1.9.9", False), ("", False), ("1.10.1", True)]
)
def test_versions_are_compared_by_their_numbers(newest: str, old: bool) -> None:
    assert load("lib/versions.py").Pin("x", ["1.9", "1.10"], newest).is_old == old
