"""Shows which pinned Python packages have newer versions.

It asks pip, so pip's configuration says which index is used. Nothing is installed or changed. The exit code is 0, also
without a network.
"""

from __future__ import annotations

import argparse
import collections
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = (
    "scripts/lib/environments.ini",
    "scripts/lib/common.sh",
    "scripts/test",
    "pyproject.toml",
    "docs/requirements.txt",
    "bench/requirements.txt",
)
PIN = re.compile(r"\b([A-Za-z][\w.-]*)(?:\[[\w,]+\])?==(\d[\w.+]*)")
ANSWER = re.compile(r"^\S+ \(([^)]+)\)$", re.MULTILINE)
WAIT = 120  # seconds for one answer
AT_ONCE = 4


@dataclass
class Pin:
    name: str
    versions: list[str]  # oldest first
    newest: str = ""  # "" if no index has answered

    @property
    def is_old(self) -> bool:
        return bool(self.newest) and numbers(self.newest) > numbers(self.versions[-1])


def numbers(version: str) -> list[int]:
    """Returns the numbers of a version for comparison: 1.10.0+cpu is as new as 1.10."""
    found = [int(part) for part in re.findall(r"\d+", version.split("+")[0])]
    while found and found[-1] == 0:
        found.pop()
    return found


def pins(root: Path = ROOT) -> list[Pin]:
    """Returns the packages that the files pin, by name."""
    found: dict[str, set[str]] = collections.defaultdict(set)
    for file in FILES:
        for name, version in PIN.findall((root / file).read_text()):
            found[name].add(version)
    return [Pin(name, sorted(found[name], key=numbers)) for name in sorted(found)]


def newest(python: str, name: str) -> str:
    """Returns the newest release that this Python can install; "" if pip finds none."""
    command = [python, "-m", "pip", "index", "versions", "--retries", "1", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT)
    except subprocess.TimeoutExpired:
        return ""
    match = ANSWER.search(done.stdout)
    return match[1] if done.returncode == 0 and match else ""


def table(found: list[Pin]) -> str:
    rows = [("package", "pinned", "newest", "")]
    for pin in found:
        rows.append((pin.name, ", ".join(pin.versions), pin.newest or "no answer", "newer" if pin.is_old else ""))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join("  ".join([*map(str.ljust, row, widths), row[3]]).rstrip() for row in rows)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="scripts/versions", description=__doc__)
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help="default: all that are pinned")
    parser.add_argument("--python", default=sys.executable, help="newest for this Python; it needs pip")
    options = parser.parse_args(arguments)
    found = [pin for pin in pins() if not options.packages or pin.name in options.packages]
    if unknown := sorted(set(options.packages) - {pin.name for pin in found}):
        parser.error(f"not pinned: {', '.join(unknown)}")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for pin, version in zip(found, pool.map(lambda pin: newest(options.python, pin.name), found), strict=True):
            pin.newest = version
    print(table(found))
    silent = sum(not pin.newest for pin in found)
    print(f"\n{sum(pin.is_old for pin in found)} of {len(found)} packages have a newer version than the newest pin.")
    if silent:
        print(f"No index has answered for {silent} of them. Is there a network? Try: pip index versions PACKAGE")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
