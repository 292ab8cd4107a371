"""Finds pages and plots that are not of the kept data, and data of a commit that is not in the history."""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from . import data, pages

MARK = re.compile(r"<!-- drawn from (\w+) as (\w+) by bench/report -->\n")
CURE = "run bench/report --draw"


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def marked(drawing: str, source: str) -> str:
    """Returns an SVG file with the hashes of its data and of its drawing, because versions of matplotlib differ."""
    first, rest = drawing.split("\n", 1)
    return f"{first}\n<!-- drawn from {hash_of(source)} as {hash_of(drawing)} by bench/report -->\n{rest}"


def is_of(picture: str, source: str) -> bool:
    """True if the picture has been drawn from this data, and has not been changed since then."""
    mark = MARK.search(picture)
    return mark is not None and (mark[1], mark[2]) == (hash_of(source), hash_of(MARK.sub("", picture)))


def git(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "-c", "safe.directory=*", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def is_ancestor(root: Path, commit: str) -> bool:
    """True if the commit is in the history of HEAD, or if the tree has no whole history that could tell."""
    if git(root, "merge-base", "--is-ancestor", commit, "HEAD").returncode == 0:
        return True
    shallow = git(root, "rev-parse", "--is-shallow-repository")
    return shallow.returncode != 0 or shallow.stdout.strip() == "true"


def faults(root: Path, plots: dict[str, str]) -> Iterator[str]:
    """Yields the faults. `plots`: the part that each plot shows, by its file."""
    folder = root / "docs/performance"
    parts = data.read_all(folder / "data")
    for name, part in parts.items():
        if not is_ancestor(root, part.about.commit):
            yield f"docs/performance/data/{name}.json: its commit {part.about.commit[:12]} is not an ancestor of HEAD"
    if missing := sorted(set(plots.values()) - set(parts)):
        yield f"docs/performance/data has no {', '.join(missing)}; run bench/report"
        return
    for name, text in pages.pages(parts).items():
        page = folder / name
        if not page.exists() or page.read_text() != text:
            yield f"docs/performance/{name} is not what the data give; {CURE}"
    readme = (root / "README.md").read_text()
    if pages.readme_section(parts["allreduce"]) not in readme:
        yield f"README.md, '{pages.HEADING}', is not what the data give; {CURE}"
    for name, part_name in plots.items():
        picture = folder / name
        if not picture.exists() or not is_of(picture.read_text(), (folder / f"data/{part_name}.json").read_text()):
            yield f"docs/performance/{name} is not drawn from data/{part_name}.json; {CURE}"
