"""Counts the members of the product's C++ classes, with universal-ctags."""

from __future__ import annotations

import collections
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

KINDS = {"m": "field", "p": "declaration", "f": "definition"}  # ctags' letters
HEADERS = (".h", ".hpp")


@dataclass
class Class:
    """A class. `name` is in ctags' form: class:distrun::engine::Engine."""

    name: str
    fields: int = 0
    declared: list[str] = field(default_factory=list)
    bodies: set[tuple[str, str]] = field(default_factory=set)  # name and signature of each definition in the header
    files: set[str] = field(default_factory=set)

    @property
    def members(self) -> int:
        """Returns the number of fields and methods. A method declared in the class and defined below it counts once."""
        return self.fields + len(self.declared) + sum(name not in self.declared for name, _ in self.bodies)


@dataclass(frozen=True)
class Tag:
    name: str
    file: str
    kind: str
    scope: str
    signature: str


def tags(lines: Iterable[str]) -> Iterator[Tag]:
    """Yields the tags of class members. A line has name, file, pattern, then fields with their keys (the kind has
    none)."""
    for line in lines:
        name, file, *rest = line.rstrip("\n").split("\t")
        if line.startswith("!"):
            continue
        kind = next((word for word in rest[1:] if len(word) == 1), "")
        scope = next((word for word in rest if word.startswith(("class:", "struct:"))), "")
        signature = next((word for word in rest if word.startswith("signature:")), "")
        if scope and kind in KINDS:
            yield Tag(name, file, KINDS[kind], scope, signature)


def classes_of(lines: Iterable[str]) -> dict[str, Class]:
    found: dict[str, Class] = collections.defaultdict(lambda: Class(""))
    for tag in tags(lines):
        one = found[tag.scope]
        one.name = tag.scope
        if tag.kind == "field":
            one.fields += 1
            one.files.add(tag.file)
        elif tag.kind == "declaration":
            one.declared.append(tag.name)
            one.files.add(tag.file)
        elif tag.file.endswith(HEADERS):
            one.bodies.add((tag.name, tag.signature))
            one.files.add(tag.file)
    return {name: one for name, one in found.items() if one.members}


def classes(root: Path, folders: Iterable[str]) -> dict[str, Class]:
    """Returns the classes in the folders. FileNotFoundError if ctags is missing."""
    ctags = ["ctags", "-R", "--languages=C++", "--map-C++=+.h", "--c++-kinds=mpf", "--fields=+sSk", "-f", "-"]
    listed = subprocess.run([*ctags, *folders], cwd=root, check=True, capture_output=True, text=True).stdout
    return classes_of(listed.splitlines())
