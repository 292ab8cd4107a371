"""Runs clang-tidy on the files of a build, `jobs` files at a time. Files that have passed before are skipped.

    python3 tidy.py CLANG_TIDY BUILD_FOLDER JOBS

A file has passed before if clang-tidy, its configuration, the command and the preprocessed text equal those of an
earlier pass, as in ccache. (The project ctcache does the same, but needs a wrapper around each call of clang-tidy.)
Passes are empty files in ~/.cache/distrun-tidy. Those that were not used for 30 days are removed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KEPT_SECONDS = 30 * 24 * 3600.0


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "distrun-tidy"


def entries(build: Path) -> list[dict[str, str]]:
    """Returns each file once, without those that only check that a header compiles alone, and without generated
    ones."""
    listed = json.loads((build / "compile_commands.json").read_text())
    kept = {one["file"]: one for one in listed if "_verify_interface_header_sets" not in one["file"]}
    return [one for file, one in sorted(kept.items()) if os.path.exists(file)]


def preprocessed(entry: dict[str, str]) -> bytes:
    words = shlex.split(entry["command"])
    if "ccache" in Path(words[0]).name:
        del words[0]
    output = words.index("-o")
    words[output : output + 2] = ["-o", "-"]
    words[words.index("-c") : words.index("-c") + 1] = ["-E", "-C"]  # keeps comments, because NOLINT is one
    return subprocess.run(words, cwd=entry["directory"], capture_output=True, check=True).stdout


def key(rules: bytes, entry: dict[str, str]) -> str:
    """Returns the key of a pass. It does not depend on the folder of the tree."""
    digest = hashlib.sha256()
    for part in (rules, entry["command"].encode(), preprocessed(entry)):
        digest.update(part.replace(str(ROOT).encode(), b"."))
    return digest.hexdigest()


def check(tidy: str, build: Path, entry: dict[str, str], mark: Path) -> bool:
    if not mark.exists():
        done = subprocess.run([tidy, "-p", str(build), "--quiet", entry["file"]], capture_output=True, text=True)
        if done.returncode != 0:
            print(done.stdout, done.stderr, sep="", flush=True)
            return False
    mark.touch()
    return True


def main(tidy: str, build: Path, jobs: int) -> int:
    passed = cache_folder()
    passed.mkdir(parents=True, exist_ok=True)
    version = subprocess.run([tidy, "--version"], capture_output=True, check=True).stdout
    rules = version + (ROOT / ".clang-tidy").read_bytes()
    with ThreadPoolExecutor(jobs) as threads:
        verdicts = list(
            threads.map(lambda entry: check(tidy, build, entry, passed / key(rules, entry)), entries(build))
        )
    for mark in passed.iterdir():
        if mark.stat().st_mtime < time.time() - KEPT_SECONDS:
            mark.unlink()
    print(f"{sum(verdicts)} of {len(verdicts)} files pass")
    return 0 if verdicts and all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
