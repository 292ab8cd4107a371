"""Adds <release>-backports to apt's sources, from the Debian mirror that this machine already uses.

The new entry copies the machine's own entry (deb822 or one-line) for the release and its component main. So a machine
behind a mirror or a proxy keeps using it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

APT = Path("/etc/apt")


def codename(os_release: str) -> str | None:
    found = re.search(r'^VERSION_CODENAME="?([a-z]+)"?$', os_release, re.MULTILINE)
    return found[1] if found else None


def stanzas(text: str) -> Iterator[dict[str, str]]:
    """Yields the stanzas of a deb822 file: lower-case field name -> value, with its continuation lines."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for block in re.split(r"\n[ \t]*\n", "\n".join(lines)):
        fields: dict[str, str] = {}
        name = ""
        for line in block.splitlines():
            if line[:1] in (" ", "\t") and name:
                fields[name] += "\n" + line
            elif ":" in line:
                name, value = line.split(":", 1)
                name = name.strip().lower()
                fields[name] = value.strip()
        if fields:
            yield fields


def from_deb822(text: str, release: str) -> str | None:
    """Returns the stanza for the backports, from the first one with the release's main component."""
    for fields in stanzas(text):
        if (
            release not in fields.get("suites", "").split()
            or "main" not in fields.get("components", "").split()
            or "deb" not in fields.get("types", "").split()
            or fields.get("enabled", "yes").lower() in ("no", "false", "0")
        ):
            continue
        entry = f"Types: deb\nURIs: {fields['uris'].split()[0]}\nSuites: {release}-backports\nComponents: main\n"
        return entry + (f"Signed-By: {fields['signed-by']}\n" if fields.get("signed-by") else "")
    return None


def from_one_line(text: str, release: str) -> str | None:
    entry = re.search(rf"^deb\s+(\[[^\]]*\]\s+)?(\S+)\s+{release}/?\s+(?:\S+\s+)*?main\b", text, re.MULTILINE)
    return f"deb {entry[1] or ''}{entry[2]} {release}-backports main\n" if entry else None


def main() -> int:
    release = codename(Path("/etc/os-release").read_text())
    if release is None:
        print("add_backports.py: /etc/os-release has no VERSION_CODENAME", file=sys.stderr)
        return 1
    folder = APT / "sources.list.d"
    for path in [APT / "sources.list", *sorted(folder.glob("*.sources")), *sorted(folder.glob("*.list"))]:
        if not path.exists() or path.stem == "distrun-backports":
            continue
        modern = path.suffix == ".sources"
        entry = (from_deb822 if modern else from_one_line)(path.read_text(), release)
        if entry is not None:
            target = folder / f"distrun-backports{path.suffix if modern else '.list'}"
            target.write_text(entry)
            print(f"{target} (from {path}):\n{entry}")
            return 0
    print(f"add_backports.py: apt has no entry for {release} main; install Catch2 3 by hand", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
