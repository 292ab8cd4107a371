"""The structure of the product's Python: cycles of imports between modules, and copied lines.

Both checks treat bindings/python and frameworks as users see them: as one package `distrun`.
"""

from __future__ import annotations

import ast
import collections
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "distrun"
WINDOW = 6  # lines; a shorter repetition does not count as a copy


def modules(root: Path) -> dict[str, Path]:
    """Returns the product's modules by their full names; a package is its __init__.py.

    pyproject.toml gives the wheel the same layout.
    """
    folders = {PACKAGE: root / "bindings/python" / PACKAGE}
    folders |= {f"{PACKAGE}.{path.parent.name}": path.parent for path in (root / "frameworks").glob("*/__init__.py")}
    found = {}
    for package, folder in folders.items():
        for path in sorted(folder.rglob("*.py")):
            parts = [package, *path.relative_to(folder).with_suffix("").parts]
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


def imports(name: str, path: Path, known: set[str]) -> set[str]:
    """Returns the modules in `known` that this one imports anywhere, also in functions and for type checks only."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            target = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            # `from package import name` imports a module, or a name that the package's __init__ defines.
            found |= {f"{target}.{a.name}" if f"{target}.{a.name}" in known else target for a in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "import_module":
            found |= {str(word.value) for word in node.args if isinstance(word, ast.Constant)}
    return found & known - {name}


def circles(root: Path) -> list[list[str]]:
    """Returns the groups of modules that import each other, directly or through others of the group."""
    paths = modules(root)
    graph = {name: imports(name, path, set(paths)) for name, path in paths.items()}
    reached = {name: _reached(graph, name) for name in graph}
    groups = {tuple(sorted(b for b in reached[a] if a in reached[b])) for a in graph if a in reached[a]}
    return [list(group) for group in sorted(groups)]


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += graph[name]
    return found


def code_lines(text: str) -> list[tuple[int, str]]:
    """Returns (number, text) of each line without comments, docstrings, blank lines and imports; white space is
    folded."""
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        # A string expression is a docstring.
        alone = (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        )
        if isinstance(node, ast.stmt) and (alone or isinstance(node, ast.Import | ast.ImportFrom)):
            left_out |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        code = " ".join(re.sub(r"(^|\s)#.*", "", line).split())
        if code and number not in left_out:
            lines.append((number, code))
    return lines


def copied_share(root: Path) -> tuple[float, list[str]]:
    """Returns the share of lines in windows that occur several times, from 0 to 1, and these lines as "file:line"."""
    lines = {path: code_lines(path.read_text()) for path in modules(root).values()}
    places: dict[tuple[str, ...], list[tuple[Path, int]]] = collections.defaultdict(list)
    for path, start in _windows(lines):
        places[tuple(code for _, code in lines[path][start : start + WINDOW])].append((path, start))
    copied = {
        (path, lines[path][index][0])
        for found in places.values() if len(found) > 1
        for path, start in found
        for index in range(start, start + WINDOW)
    }  # fmt: skip
    total = sum(map(len, lines.values()))
    return len(copied) / max(1, total), [f"{path.relative_to(root)}:{number}" for path, number in sorted(copied)]


def _windows(lines: dict[Path, list[tuple[int, str]]]) -> Iterator[tuple[Path, int]]:
    for path, found in lines.items():
        yield from ((path, start) for start in range(len(found) - WINDOW + 1))
