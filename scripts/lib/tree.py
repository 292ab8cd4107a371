"""Functions of the check scripts: the tree's files, and the output of faults."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def files(*suffixes: str, under: Iterable[str] = ("",)) -> list[Path]:
    """Returns the files that git tracks or would track, relative to the root, with one of the suffixes."""
    # By default git lists nothing to root in another user's clone, whose configuration may run programs; so may this
    # script.
    git = ["git", "-c", "safe.directory=*", "-C", str(ROOT)]
    listed = subprocess.run(
        [*git, "ls-files", "--cached", "--others", "--exclude-standard", *[u or "." for u in under]],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\n")
    found = {Path(name) for name in listed if name and (not suffixes or name.endswith(suffixes))}
    return sorted(path for path in found if (ROOT / path).is_file())


def finish(name: str, faults: list[str]) -> None:
    """Prints the faults and exits: with 0 if there are none, else with 1."""
    for fault in faults:
        print(fault)
    print(f"{name}: {'ok' if not faults else f'{len(faults)} faults'}")
    sys.exit(1 if faults else 0)
