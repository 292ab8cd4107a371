"""Chooses the C++ tests for an edit, from the `#include` lines.

A module is a header with the .cc file of the same name. Its tests are those that include it. If no test does, they are
the tests that include a module which includes it, and so on.
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from pathlib import Path

from lib.tree import ROOT, files

SOURCES = (".h", ".hpp", ".cc", ".c", ".cu", ".def")
HEADERS = (".h", ".hpp")
INCLUDE = re.compile(r'^#include ["<]([^">]+)[">]', re.MULTILINE)
INCLUDE_FOLDERS = ("", "runtime/api/include", "bindings/cpp/include", "runtime/backend/plugin/include")
FARTHEST = 3  # modules between a test and the file whose name it has
MOST = 6  # at most this many test files for one edited file


class Includes:
    def __init__(self) -> None:
        self.all = {path.as_posix() for path in files(*SOURCES, under=["runtime", "launcher", "bindings", "test"])}
        self.includes = {path: self._included_by(path) for path in self.all}
        self.users: dict[str, set[str]] = defaultdict(set)
        for path, included in self.includes.items():
            for module in included:
                for user in self.modules(path):
                    if user != module:
                        self.users[module].add(user)

    def _included_by(self, path: str) -> list[str]:
        """Returns the included modules, in the order of the lines."""
        found = []
        for name in INCLUDE.findall((ROOT / path).read_text()):
            for folder in (posixpath.dirname(path), *INCLUDE_FOLDERS):
                header = posixpath.normpath(posixpath.join(folder, name))
                if header in self.all:
                    found.append(posixpath.splitext(header)[0] if header.endswith(HEADERS) else header)
                    break
        return found

    def modules(self, path: str) -> list[str]:
        """Returns the modules of a file.

        A test is its own module. A .cc file without a header of the same name belongs to the modules of the headers in
        its folder that it includes.
        """
        own = posixpath.splitext(path)[0]
        if path.startswith("test/") and not path.endswith(HEADERS):
            return [path]
        if path.endswith(HEADERS) or any(own + suffix in self.all for suffix in HEADERS):
            return [own]
        folder = posixpath.dirname(path)
        beside = [module for module in self.includes.get(path, []) if posixpath.dirname(module) == folder]
        return beside or [path]

    def distances(self, path: str) -> dict[str, int]:
        """Returns the test files (.cc) that reach the file, with the number of modules in between."""
        seen: dict[str, int] = {}
        level, distance = set(self.modules(path)), 0
        while level:
            seen.update(dict.fromkeys(level, distance))
            level = {user for module in level for user in self.users[module]} - set(seen)
            distance += 1
        return {name: far for name, far in seen.items() if name.startswith("test/") and name.endswith(".cc")}

    def tests_of(self, path: str) -> list[str]:
        """Returns the nearest test files, and those with the file's name in theirs; at most MOST, the likeliest
        first."""
        reached = self.distances(path)
        if path in reached and path.endswith("_test.cc"):
            return [path]
        proper = {name: far for name, far in reached.items() if name.endswith("_test.cc")} or reached
        if not proper:
            return []
        stem, parts = Path(path).stem, set(Path(path).parts)
        nearest = min(proper.values())

        def named(name: str) -> bool:
            test = Path(name).stem.removesuffix("_test")
            return stem in test or (test in stem and len(test) > 3)

        chosen = [name for name, far in proper.items() if far == nearest or (named(name) and far <= FARTHEST)]
        chosen.sort(key=lambda name: (not named(name), proper[name], -len(parts & set(Path(name).parts)), name))
        return chosen[:MOST]
