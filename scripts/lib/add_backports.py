"""Adds <release>-backports of the Debian mirror that this machine already uses to apt's sources.

The entry is derived from the machine's own one (deb822 or one-line) for the release itself and its `main` component.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

SOURCES = Path("/etc/apt")
TARGET = SOURCES / "sources.list.d/distrun-backports.list"


def codename() -> str:
    for line in Path("/etc/os-release").read_text().splitlines():
        if line.startswith("VERSION_CODENAME="):
            return line.split("=")[1].strip('"')
    sys.exit("add_backports.py: /etc/os-release has no VERSION_CODENAME")


def from_deb822(text: str, release: str) -> str | None:
    """A one-line entry for the first stanza that serves the release's main component."""
    for stanza in re.split(r"\n\s*\n", text):
        fields = dict(re.findall(r"^([A-Za-z-]+):\s*(.*)$", stanza, re.MULTILINE))
        if release in fields.get("Suites", "").split() and "main" in fields.get("Components", "").split():
            signed = fields.get("Signed-By", "")
            options = f"[signed-by={signed}] " if signed.startswith("/") else ""
            return f"deb {options}{fields['URIs'].split()[0]} {release}-backports main"
    return None


def from_one_line(text: str, release: str) -> str | None:
    entry = re.search(rf"^deb\s+(\[[^\]]*\]\s+)?(\S+)\s+{release}\s+.*\bmain\b", text, re.MULTILINE)
    return f"deb {entry[1] or ''}{entry[2]} {release}-backports main" if entry else None


def main() -> None:
    release = codename()
    for path in sorted([*SOURCES.glob("sources.list.d/*.sources"), *SOURCES.glob("sources.list.d/*.list")]):
        reader = from_deb822 if path.suffix == ".sources" else from_one_line
        line = reader(path.read_text(), release)
        if line is not None:
            break
    else:
        listed = SOURCES / "sources.list"
        line = from_one_line(listed.read_text(), release) if listed.exists() else None
    if line is None:
        sys.exit(f"add_backports.py: apt has no entry for {release} main; install Catch2 3 by hand (package catch2)")
    TARGET.write_text(line + "\n")
    print(f"{TARGET}: {line}")


main()
