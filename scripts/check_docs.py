#!/usr/bin/env python3
"""Pages tell the truth about the tree: every path that a page names exists."""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from lib.tree import ROOT, files, finish

FOLDERS = "cmake|runtime|launcher|bindings|frameworks|examples|test|bench|scripts|docs"
PATH = re.compile(rf"`((?:{FOLDERS})/[\w./+-]*|[A-Z]+\.md)`")
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


def main() -> None:
    faults = []
    for page in files(".md"):
        if page.as_posix().startswith("docs/plan/"):
            continue
        text = (ROOT / page).read_text()
        for name in PATH.findall(text):
            if not (ROOT / name).exists():
                faults.append(f"{page}: names {name}, which does not exist")
        for name in LINK.findall(text):
            if not (ROOT / page.parent / name).exists():
                faults.append(f"{page}: links to {name}, which does not exist")
    finish("docs", faults)


if __name__ == "__main__":
    main()
