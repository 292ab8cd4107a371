"""What the check scripts share: the tree's files and how a fault is printed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def files(*suffixes: str, under: Iterable[str] = ("",)) -> list[Path]:
    """Files that git tracks (or would), relative to the root, with one of the suffixes."""
    # git lists nothing to root in somebody else's clone, whose configuration may run programs; so may this script.
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
    """Prints the faults and ends the script: 0 without any, else 1."""
    for fault in faults:
        print(fault)
    print(f"{name}: {'ok' if not faults else f'{len(faults)} faults'}")
    sys.exit(1 if faults else 0)
