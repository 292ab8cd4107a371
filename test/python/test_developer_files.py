"""The files that developers' tools read: .pre-commit-config.yaml and .devcontainer."""

from __future__ import annotations

import json
import re

from .conftest import ROOT


def test_hooks_run_files_of_this_tree_and_contact_no_host() -> None:
    text = (ROOT / ".pre-commit-config.yaml").read_text()
    assert re.findall(r"^ *- repo: *(.*)$", text, re.MULTILINE) == ["local"]
    assert set(re.findall(r"^ *language: *(.*)$", text, re.MULTILINE)) == {"system", "pygrep"}
    scripts = re.findall(r"\bscripts/[\w./]+", text)
    assert {"scripts/check_floors.py", "scripts/check_budgets.py", "scripts/check_docs.py"} <= set(scripts)
    assert all((ROOT / name).exists() for name in scripts)


def test_a_hook_refuses_long_subjects() -> None:
    (pattern,) = re.findall(r"entry: (\\A.*)$", (ROOT / ".pre-commit-config.yaml").read_text(), re.MULTILINE)
    assert re.search(pattern, "x" * 73 + "\n")
    assert not re.search(pattern, "x" * 72 + "\n\n" + "y" * 100)


def test_the_container_is_debian_12_and_runs_quickstart() -> None:
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    dockerfile = (ROOT / ".devcontainer" / container["build"]["dockerfile"]).read_text()
    assert "FROM debian:12\n" in dockerfile
    assert f"useradd --create-home --shell /bin/bash {container['remoteUser']} " in dockerfile
    assert container["postCreateCommand"] == "./scripts/quickstart"
