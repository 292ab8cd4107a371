"""scripts/release, in a clone whose wheel is a fake."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import ROOT
from .test_scripts import load

FILES = ("scripts/release", "scripts/lib/release.py", "scripts/lib/common.sh")
SBOM = '{"bomFormat": "CycloneDX"}'
WHEEL = f"""#!/bin/sh
mkdir -p dist && exec python3 - <<'END'
import zipfile
with zipfile.ZipFile("dist/distrun-1.2.3-py3-none-linux_x86_64.whl", "w") as wheel:
    wheel.writestr("distrun-1.2.3.dist-info/sboms/distrun.cdx.json", '{SBOM}')
END
"""
CHECK_WHEEL = """import sys
assert sys.argv[-1].endswith("distrun-1.2.3-py3-none-linux_x86_64.whl")
print("it needs glibc 2.34")
"""
CHANGELOG = """# Changelog

## Unreleased

## 1.2.3 (2026-12-01)

### Added

- A thing, see [limits](docs/reference/limits.md).

## 1.2.2

- An older thing.
"""


class Clone:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in FILES:
            self.write(name, (ROOT / name).read_text())
        self.write("scripts/wheel", WHEEL)
        self.write("scripts/check_wheel.py", CHECK_WHEEL)
        self.write("CHANGELOG.md", CHANGELOG)
        self.write("pyproject.toml", '[project]\nversion = "1.2.3"\n')
        self.write("CMakeLists.txt", "project(distrun VERSION 1.2.3 LANGUAGES C CXX)\n")
        self.write(".gitignore", "/build/\n/dist/\n/.venv\n")
        (folder / ".venv").symlink_to(sys.prefix)
        self.git("init", "-q", "-b", "main")
        self.commit()

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if text.startswith("#!"):
            path.chmod(0o755)

    def git(self, *words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        done = subprocess.run(["git", *who, *words], cwd=self.folder, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(self, *, tested: bool = True) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "a change")
        if tested:
            self.write("build/test-results/passed-commit", self.git("rev-parse", "HEAD") + "\n")

    def release(self, *options: str) -> tuple[int, str]:
        who = {f"GIT_{role}_{part}": "a@example.org" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
        command = [self.folder / "scripts/release", *options]
        done = subprocess.run(command, env={**os.environ, **who}, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def test_a_release_is_a_tag_and_four_files(clone: Clone) -> None:
    code, said = clone.release()
    assert code == 0, said
    assert "made the tag v1.2.3; nothing was pushed or uploaded" in said
    assert clone.git("describe", "--exact-match") == "v1.2.3"
    folder = clone.folder / "dist/release"
    sums = dict(reversed(line.split()) for line in (folder / "SHA256SUMS").read_text().splitlines())
    assert {file.name for file in folder.iterdir()} == {"SHA256SUMS", *sums}
    for name, value in sums.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == value
    assert (folder / "distrun-1.2.3.cdx.json").read_text() == SBOM
    notes = (folder / "distrun-1.2.3-notes.md").read_text()
    assert notes.startswith("# distrun 1.2.3\n\n### Added\n\n- A thing, see")
    assert "It needs glibc 2.34." in notes
    assert "An older thing" not in notes
    code, said = clone.release()
    assert code == 1
    assert "the tag v1.2.3 exists: raise the version" in said


def test_a_dry_run_does_all_but_the_tag(clone: Clone) -> None:
    code, said = clone.release("--dry-run")
    assert code == 0, said
    assert "dry run: no tag was made" in said
    assert clone.git("tag") == ""
    assert (clone.folder / "dist/release/SHA256SUMS").exists()


def uncommitted(clone: Clone) -> None:
    clone.write("new.txt", "x")


def other_branch(clone: Clone) -> None:
    clone.git("switch", "-q", "-c", "work")


def untested(clone: Clone) -> None:
    clone.commit(tested=False)


def two_versions(clone: Clone) -> None:
    clone.write("CMakeLists.txt", "project(distrun VERSION 1.2.4 LANGUAGES C CXX)\n")
    clone.commit()


def no_entry(clone: Clone) -> None:
    clone.write("CHANGELOG.md", CHANGELOG.replace("1.2.3", "1.2.1"))
    clone.commit()


def unreleased_lines(clone: Clone) -> None:
    clone.write("CHANGELOG.md", CHANGELOG.replace("## Unreleased\n", "## Unreleased\n\n- One more.\n"))
    clone.commit()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (uncommitted, "the tree has changes that are not committed: new.txt"),
        (other_branch, "releases are made on the branch main, and this is work"),
        (untested, "scripts/test has not passed for this commit"),
        (two_versions, "the versions differ: pyproject.toml has 1.2.3, CMakeLists.txt has 1.2.4"),
        (no_entry, "CHANGELOG.md has no entry for 1.2.3"),
        (unreleased_lines, "CHANGELOG.md has lines under Unreleased"),
    ],
)
def test_what_cannot_be_released_is_refused_before_anything_is_built(
    clone: Clone, spoil: Callable[[Clone], None], reason: str
) -> None:
    spoil(clone)
    code, said = clone.release("--dry-run")
    assert code == 1
    refused = [line for line in said.splitlines() if line.startswith("   ")]
    assert len(refused) == 1 and refused[0].strip().startswith(reason), said
    assert not (clone.folder / "dist").exists()


def test_a_wheel_that_fails_its_check_gets_no_tag(clone: Clone) -> None:
    clone.write("scripts/check_wheel.py", "raise SystemExit('FAILED name')\n")
    clone.commit()
    code, said = clone.release()
    assert code == 1
    assert "FAILED name" in said
    assert clone.git("tag") == ""


def test_a_tree_that_changes_during_the_build_gets_no_tag(clone: Clone) -> None:
    clone.write("scripts/wheel", WHEEL.replace("mkdir", "echo x >new.txt; mkdir"))
    clone.commit()
    code, said = clone.release()
    assert code == 1
    assert "the tree has changed while the wheel was built" in said
    assert clone.git("tag") == ""


@pytest.mark.parametrize(
    ("mode", "changed", "recorded"), [("", False, True), ("--quick", False, False), ("", True, False)]
)
def test_the_tests_record_the_commit_of_a_clean_tree(clone: Clone, mode: str, changed: bool, recorded: bool) -> None:
    text = (ROOT / "scripts/test").read_text()
    function = text[text.index("clean_commit() {") :].split("\n}\n")[0] + "\n}\n"
    if changed:
        uncommitted(clone)
    command = ["bash", "-euc", f"MODE={mode}\n{function}clean_commit"]
    said = subprocess.run(command, cwd=clone.folder, capture_output=True, text=True, check=True).stdout
    assert said.strip() == (clone.git("rev-parse", "HEAD") if recorded else "")
    assert text.rstrip().endswith('echo "$TESTED" >"$PASSED"')


def test_help_says_what_it_does_not_do(clone: Clone) -> None:
    code, said = clone.release("--help")
    assert code == 0
    assert "It does not sign, push or upload anything." in said
    assert max(map(len, said.splitlines())) <= 100
    assert clone.release("--push")[0] == 1


def test_the_files_of_this_tree_have_one_version() -> None:
    (version,) = set(load("lib/release.py").versions().values())
    assert version
