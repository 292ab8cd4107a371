"""Chooses the Python tests for an edit of a front end: those that use names that the module or its users define.

A test is a function of test/python/test_*.py, or a function check_* of a program that the launcher starts.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lib.tree import ROOT, files

# For each framework the environment of its programs ("" for .venv), and the program for modules that no program names.
FRAMEWORKS = {
    "numpy": ("", "numpy_ops.py"),
    "torch": ("", "torch_ops.py"),
    "c10d": ("", "c10d_ops.py"),
    "keras": ("", "keras_classes.py"),
    "jax": ("jax", "jax_ops.py"),
    "tensorflow": ("tensorflow", "tf_ops.py"),
    "mxnet": ("mxnet", "mxnet_ops.py"),
}
PROGRAMS = ("test/python/programs", "test/e2e/programs")
# The most checks of a program. Each takes time, and those of Keras train models.
FEW = 8
FEW_OF = {"keras": 3}


@dataclass(frozen=True)
class Program:
    """`distrun -np 2 PYTHON path checks...`: it exits with 0, and each rank prints "all checks passed"."""

    path: str
    checks: tuple[str, ...]
    environment: str

    @staticmethod
    def of_file(path: str) -> Program:
        """Returns the program with all its checks."""
        word = Path(path).name.split("_")[0]
        return Program(path, (), FRAMEWORKS.get({"tf": "tensorflow"}.get(word, word), FRAMEWORKS["torch"])[0])


def module_name(path: str) -> str:
    """Returns the module's name: frameworks/torch/ops.py is distrun.torch.ops."""
    place = (
        path.removeprefix("bindings/python/").removeprefix("frameworks/").removesuffix(".py").removesuffix("/__init__")
    )
    name = place.replace("/", ".")
    return name if name.startswith("distrun") else f"distrun.{name}"


def framework_of(name: str) -> str:
    if name.startswith("distrun.torch.c10d"):
        return "c10d"
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in FRAMEWORKS else ""


def defined_in(tree: ast.Module) -> set[str]:
    found = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return {name for name in found if not name.startswith("__")}


def imported_by(tree: ast.Module, package: str = "") -> set[str]:
    """Returns every module that it imports, also inside functions. `package` is the meaning of a leading dot."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            outer = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            base = ".".join(part for part in (outer, node.module or "") if part)
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return found


class Product:
    def __init__(self) -> None:
        paths = [path.as_posix() for path in files(".py", under=["bindings/python", "frameworks"])]
        trees = {module_name(path): ast.parse((ROOT / path).read_text()) for path in paths}
        self.defines = {name: defined_in(tree) for name, tree in trees.items()}
        self.users: dict[str, set[str]] = defaultdict(set)
        for path, (name, tree) in zip(paths, trees.items(), strict=True):
            package = name if path.endswith("__init__.py") else name.rpartition(".")[0]
            for imported in imported_by(tree, package) & (set(trees) - {name}):
                self.users[imported].add(name)


@cache
def text_of(path: str) -> str:
    return (ROOT / path).read_text()


def words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text))


@cache
def words_of(path: str) -> frozenset[str]:
    return words(text_of(path))


@cache
def functions(path: str, prefix: str) -> dict[str, frozenset[str]]:
    """Returns the words of each function outside of classes, by name."""
    lines = text_of(path).splitlines()
    nodes = [node for node in ast.parse(text_of(path)).body if isinstance(node, ast.FunctionDef)]
    named = [node for node in nodes if node.name.startswith(prefix)]
    return {node.name: words("\n".join(lines[node.lineno - 1 : node.end_lineno])) for node in named}


@cache
def imports_of(path: str) -> frozenset[str]:
    return frozenset(imported_by(ast.parse(text_of(path))))


def takes_checks(program: str) -> bool:
    """True if the text is a program of check_* functions that needs no argument."""
    return "run(globals())" in program and "argv" not in program


def runs_alone(program: str) -> bool:
    return takes_checks(program) or ("all checks passed" in program and "sys.argv[1]" not in program)


@cache
def programs_for(framework: str) -> list[str]:
    """Returns the programs that start this framework only, and end as Program describes."""
    front = framework or "numpy"
    word = "tf" if front == "tensorflow" else front
    others = {*FRAMEWORKS, "tf"} - {front, word}
    found = []
    for path in (path.as_posix() for path in files(".py", under=PROGRAMS)):
        text = text_of(path)
        first = Path(path).stem.split("_")[0]
        starts = first == word or re.search(rf"\bdistrun\.{front}\b", text)
        if first not in others and starts and runs_alone(text):
            found.append(path)
    return found


class Choice:
    def __init__(self) -> None:
        self.product = Product()
        self.test_files = [path.as_posix() for path in files(".py", under=["test/python"])]

    def rings(self, name: str) -> list[set[str]]:
        """Returns the module, then the modules that import it, and so on, within its framework."""
        seen, ring, found = {name}, {name}, []
        while ring:
            found.append(ring)
            ring = {user for one in ring for user in self.product.users[one]} - seen
            seen |= ring
        return found

    def unit_tests(self, name: str) -> list[str]:
        """Returns pytest's names of test functions in files that import the module, or that use names that it
        defines."""
        found, last = [], name.rsplit(".", 1)[-1]
        for path in self.test_files:
            if not Path(path).name.startswith("test_") or name not in imports_of(path):
                continue
            tests = functions(path, "test_")
            naming = [test for test, said in tests.items() if said & {last, *self.product.defines[name]}]
            found += [f"{path}::{test}" for test in naming] or [path]
        return found

    def program(self, name: str) -> Program:
        framework = framework_of(name)
        environment, default = FRAMEWORKS[framework or "numpy"]
        for ring in self.rings(name):
            names = {defined for one in ring for defined in self.product.defines[one]}
            best: tuple[int, str, list[str]] = (0, "", [])
            for path in programs_for(framework):
                naming = {check: len(said & names) for check, said in functions(path, "check_").items()}
                chosen = sorted((check for check in naming if naming[check]), key=lambda check: -naming[check])
                score = sum(naming.values()) if takes_checks(text_of(path)) else len(words_of(path) & names)
                if score > best[0]:
                    best = (score, path, chosen[: FEW_OF.get(framework, FEW)])
            if best[0]:
                return Program(best[1], tuple(best[2]), environment)
        path = next(found for folder in PROGRAMS if (ROOT / (found := f"{folder}/{default}")).exists())
        return Program(path, (), environment)
