#!/usr/bin/env python3
"""Checks which folder includes which (the floors of ARCHITECTURE.md), cycles, and reads of the environment."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from lib.tree import ROOT, files, finish

RUNTIME = ["runtime/base", "runtime/net", "runtime/backend", "runtime/engine", "runtime/api"]
# Folder prefix -> prefixes that it may include besides itself. The longest matching prefix applies.
MAY_INCLUDE: dict[str, list[str]] = {
    "runtime/base": [],
    "runtime/net": ["runtime/base"],
    "runtime/backend": ["runtime/base", "runtime/net"],
    "runtime/engine": ["runtime/base", "runtime/net", "runtime/backend/backend.h"],
    "runtime/api": [*RUNTIME, "distrun/"],
    "runtime/api/include": [],
    "launcher": ["runtime/base", "runtime/net"],
    # The two tables are data; nothing of the runtime is linked.
    "bindings": ["distrun/", "runtime/base/dtypes.def", "runtime/base/operations.def"],
    "examples": ["distrun/", "distrun_backend.h"],
    "bench": ["distrun/", *RUNTIME],
    "test": ["runtime", "launcher", "bindings", "distrun/", "distrun_backend.h", "bench"],
}
# The folders inside a floor, lowest first. A folder may include those before it; "" is the floor's own folder.
ORDERS: dict[str, list[str]] = {
    "runtime/base": ["", "system"],
    "runtime/net": ["bytes", "identity", "secure", "store", "host", "control", "launchers"],
    "runtime/engine": ["protocol", "readiness", "agreement", "run", "monitoring", "callers", ""],
    "launcher": ["", "plan", "spawn", "protocol", "report", "agent", "job", "cli"],
    "launcher/report": ["lines", "errors", ""],
    "launcher/plan": ["hosts", "place", "environment", "schedulers", "network", ""],
    "launcher/agent": ["preflight", "lease", ""],
    "launcher/cli": ["help", ""],
    "launcher/job": ["agents", "ranks", "start", ""],
    "runtime/api": ["join", "backends", "", "c"],
}
# Python: the front ends (distrun.torch, ...) that a folder or file may import besides its own.
MAY_IMPORT: dict[str, list[str]] = {
    "bindings/python": [],
    # Two programs that distrun starts instead of the user's. They patch a framework, then run the user's program.
    "bindings/python/distrun/_keras3_mwms.py": ["tensorflow"],
    "bindings/python/distrun/_torch_backend.py": ["torch"],
    "frameworks/jax": ["numpy"],
    "frameworks/keras": ["jax", "numpy", "tensorflow", "torch"],
    "frameworks/mxnet": ["numpy"],
    "frameworks/numpy": [],
    "frameworks/tensorflow": ["keras", "numpy"],
    "frameworks/torch": [],
}
# Python files that may read the environment: variables of other software, or the launcher's for such software.
READS_ENVIRONMENT = {
    "bindings/python/distrun/features.py",  # whether MPI started the job
    "bindings/python/distrun/_protected/__init__.py",  # --encrypt or --checksum; the number of hosts
    "bindings/python/distrun/_tf_server.py",  # sets GRPC_FAIL_FAST
    "frameworks/jax/distributed.py",  # the arguments of jax.distributed.initialize
    "frameworks/keras/_keras.py",  # TF_USE_LEGACY_KERAS
    "frameworks/tensorflow/_start.py",  # removes TF_CONFIG
    "frameworks/torch/__init__.py",  # whether the script selected its GPU by CUDA_VISIBLE_DEVICES
    "frameworks/torch/c10d/_rendezvous.py",  # whether torch's RANK and WORLD_SIZE are set
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
ENVIRONMENT = re.compile(r"\b(getenv|setenv|putenv|environ)\b\s*[\[\(;!=]")
FORBIDDEN = re.compile(r"\b(std::cout|std::cerr|printf|fprintf|std::exit|std::abort|_exit)\b\s*(\(|<<)|\bexit\(")
FORBIDDEN_WORDS = re.compile(r"\batomic_thread_fence\b|\bvolatile\b|\bsleep_for\b|\busleep\(")


def rule_for(path: Path) -> str | None:
    matching = [prefix for prefix in MAY_INCLUDE if path.as_posix().startswith(prefix + "/")]
    return max(matching, key=len) if matching else None


def imported(tree: ast.AST) -> Iterator[str]:
    """Yields the modules that a Python file imports by name, also by import_module("name")."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (str(word.value) for word in node.args if isinstance(word, ast.Constant))


def check_python(name: str, text: str) -> list[str]:
    matching = [prefix for prefix in MAY_IMPORT if name == prefix or name.startswith(prefix + "/")]
    if not matching:
        return []
    rule, tree = max(matching, key=len), ast.parse(text)
    own = name.split("/")[1] if name.startswith("frameworks/") else ""
    front_ends = {prefix.split("/")[1] for prefix in MAY_IMPORT if prefix.startswith("frameworks/")}
    found = {
        words[1] for words in (module.split(".") for module in imported(tree)) if words[0] == "distrun" and words[1:]
    }
    faults = [
        f"{name}: may not import distrun.{other}" for other in sorted((found & front_ends) - {own, *MAY_IMPORT[rule]})
    ]
    reads = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")]
    if reads and name not in READS_ENVIRONMENT:
        faults.append(f"{name}:{reads[0].lineno}: reads or writes the environment; READS_ENVIRONMENT lists who may")
    return faults


def code_of(text: str) -> str:
    """Returns the text without comments, and with empty string literals."""
    return re.sub(r'"(\\.|[^"\\\n])*"', '""', re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL))


def check_includes(path: Path, text: str, folders: dict[str, set[str]]) -> list[str]:
    rule = rule_for(path)
    if rule is None:
        return []
    faults = []
    for included in INCLUDE.findall(text):
        resolved = included if (ROOT / included).exists() else None
        if resolved is not None:
            folders.setdefault(path.parent.as_posix(), set()).add(Path(resolved).parent.as_posix())
        allowed = [rule + "/", *MAY_INCLUDE[rule]]
        if not any(included.startswith(prefix) for prefix in allowed) and "/" in included:
            faults.append(
                f"{path}: may not include {included} ({rule} includes: {', '.join(MAY_INCLUDE[rule]) or 'nothing'})"
            )
    if rule == "runtime/engine" and path.suffix in (".h", ".cc"):
        faults += [f"{path}: the engine includes no backend's own header ({name})"
                   for name in INCLUDE.findall(text) if re.match(r"runtime/backend/\w+/", name)]  # fmt: skip
    return faults


def place_in(floor: str, folder: str) -> str | None:
    """Returns the part of `floor` that has `folder`: the first folder below the floor, or "" for the floor itself."""
    if folder == floor:
        return ""
    return folder.removeprefix(floor + "/").split("/")[0] if folder.startswith(floor + "/") else None


def check_orders(folders: dict[str, set[str]]) -> list[str]:
    """Returns one line for each folder that is in no order, or that includes a later folder of its order."""
    faults = []
    for floor, order in ORDERS.items():
        for folder, included in folders.items():
            here = place_in(floor, folder)
            if here is None:
                continue
            if here not in order:
                faults.append(f"{folder}: is not in the order of {floor}; add it to ORDERS")
                continue
            for other in sorted(included):
                there = place_in(floor, other)
                if there is not None and there in order and order.index(there) > order.index(here):
                    faults.append(f"{folder}: may not include {other}, which stands above it in {floor}")
    return faults


def cycles(folders: dict[str, set[str]]) -> list[str]:
    """Returns one line for each folder that includes itself through other folders."""
    faults = []
    for start in folders:
        seen: set[str] = set()
        waiting = [folder for folder in folders[start] if folder != start]
        while waiting:
            folder = waiting.pop()
            if folder == start:
                faults.append(f"{start}: is part of a cycle of folders")
                break
            if folder not in seen:
                seen.add(folder)
                waiting += folders.get(folder, set())
    return faults


def main() -> None:
    faults: list[str] = []
    folders: dict[str, set[str]] = {}
    for path in files(".h", ".cc", ".hpp", ".c"):
        text = (ROOT / path).read_text()
        faults += check_includes(path, text, folders)
        code = code_of(text)
        name = path.as_posix()
        if name.startswith(("runtime/", "launcher/")):
            if ENVIRONMENT.search(code) and name != "runtime/base/environment.cc":
                faults.append(f"{path}: reads or writes the environment; only runtime/base/environment.cc may")
            if FORBIDDEN_WORDS.search(code):
                faults.append(f"{path}: uses {FORBIDDEN_WORDS.search(code)[0]}, which the house rules forbid")  # type: ignore[index]
        if name.startswith("runtime/") and name != "runtime/base/log.cc" and FORBIDDEN.search(code):
            faults.append(f"{path}: prints or exits; the runtime returns a Status and logs")
    for path in files(".py", under=["bindings", "frameworks"]):
        faults += check_python(path.as_posix(), (ROOT / path).read_text())
    finish("floors", faults + check_orders(folders) + cycles(folders))


if __name__ == "__main__":
    main()
