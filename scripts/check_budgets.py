#!/usr/bin/env python3
"""Checks the budgets of files, functions, classes, folders, #if lines and copied Python, the list of tests, and
TODOs."""

from __future__ import annotations

import ast
import collections
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from lib.cxx_classes import Class, classes
from lib.python_structure import circles, copied_share
from lib.tree import ROOT, files, finish

FILE_LINES = 600
FUNCTION_LINES = 60
CLASS_MEMBERS = 45  # fields and methods
PUBLIC_CLASS_MEMBERS = 50  # in the API that users' C++ includes
FOLDER_FILES = 24
TEST_FOLDER_FILES = 40
CONDITIONS = 0.8  # lines with #if in 1,000 lines of the product's C and C++
COPIES = 0.02  # of the lines of the product's Python
PRODUCT = ("runtime", "launcher", "bindings", "frameworks")
PUBLIC = ("bindings/cpp/include/", "runtime/api/include/", "runtime/backend/plugin/include/")

# What may exceed its budget, with the reason: a class, a folder, "#if" or "copies". At most MOST_EXCEPTIONS.
EXCEPTIONS: dict[str, str] = {}
MOST_EXCEPTIONS = 5
CXX = (".h", ".cc", ".hpp", ".c", ".cu")
TEMPLATE = re.compile(r"^\s*template\s*(?=<)")
ATTRIBUTES = re.compile(r"\balignas\([^)]*\)|\b__attribute__\(\(.*?\)\)")
CONTAINER = re.compile(r"\b(?:namespace|class|struct|enum|union)\b[^(]*$")


def without_template(head: str) -> str:
    """Returns the declaration after its template parameters, whose keywords `class` would mislead the caller."""
    while found := TEMPLATE.match(head):
        depth, end = 0, found.end()
        while end < len(head):
            depth += (head[end] == "<") - (head[end] == ">")
            end += 1
            if depth == 0:
                break
        head = head[end:]
    return head


def opens_a_function(statement: str) -> bool:
    head = ATTRIBUTES.sub("", without_template(statement.strip()))
    return "(" in head and CONTAINER.search(head) is None


def cxx_functions(text: str) -> list[tuple[int, int]]:
    """Returns (first line, length) of every outermost brace block after a parameter list.

    Blocks of namespaces and types do not count, but the functions in them do.
    """
    text = re.sub(r"/\*.*?\*/", lambda found: "\n" * found[0].count("\n"), text, flags=re.DOTALL)
    text = re.sub(r'R"(\w*)\((.*?)\)\1"', lambda found: '""' + "\n" * found[0].count("\n"), text, flags=re.DOTALL)
    # Lines of the preprocessor, with their continuations, belong to no statement.
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda found: "\n" * found[0].count("\n"), text, flags=re.MULTILINE)
    text = re.sub(r"//[^\n]*|\"(\\.|[^\"\\\n])*\"|'(\\.|[^'\\\n])+'", "", text)
    found: list[tuple[int, int]] = []
    stack: list[tuple[str, int]] = []
    line, statement, start_line = 1, "", 1
    for letter in text:
        if letter == "\n":
            line += 1
        if letter == "{":
            inside = any(kind == "function" for kind, _ in stack)
            # Braces inside parentheses belong to a default argument or a lambda.
            value = statement.count("(") > statement.count(")")
            kind = "value" if value else "function" if not inside and opens_a_function(statement) else "block"
            stack.append((kind, start_line))
            if not value:
                statement = ""
        elif letter == "}":
            kind, first = stack.pop() if stack else ("block", line)
            if kind == "function":
                found.append((first, line - first + 1))
            if kind != "value":
                statement = ""
        elif letter == ";" and not (stack and stack[-1][0] == "value"):
            statement = ""
        else:
            if not statement.strip():
                start_line = line
            statement += letter
    return found


def python_functions(text: str) -> list[tuple[int, int]]:
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return [(node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1) for node in nodes]


def shell_functions(text: str) -> list[tuple[int, int]]:
    found, start = [], 0
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\w+\(\) \{$", line):
            start = number
        elif line == "}" and start:
            found.append((start, number - start + 1))
            start = 0
    return found


def functions_of(path: Path, text: str) -> list[tuple[int, int]]:
    if path.suffix in CXX:
        return cxx_functions(text)
    if path.suffix == ".py" or text.startswith("#!/usr/bin/env python3"):
        return python_functions(text)
    return shell_functions(text)


def is_listed(test: Path, lists: dict[Path, str]) -> bool:
    """True if the nearest CMakeLists.txt (`lists` has its text, by folder) names the test by its relative path.

    Other folders have tests of the same name.
    """
    folder = next(parent for parent in test.parents if parent in lists)
    return re.search(rf"(?<![\w/.-]){re.escape(test.relative_to(folder).as_posix())}\b", lists[folder]) is not None


def unlisted_tests() -> list[str]:
    lists = {path.parent: (ROOT / path).read_text() for path in files("CMakeLists.txt", under=["test"])}
    faults = []
    for path in files("_test.cc", under=["test"]):
        if not is_listed(path, lists):
            faults.append(f"{path}: is not in the CMakeLists.txt of its folder, so nobody runs it")
    for path in files(".py", under=["test"]):
        text = (ROOT / path).read_text()
        if re.search(r"^def test_", text, re.MULTILINE) and not path.name.startswith("test_"):
            faults.append(f"{path}: has tests that pytest does not collect; name it test_*.py")
    return faults


def over(name: str, number: float, limit: float, what: str, used: set[str]) -> list[str]:
    """Returns a fault if the number exceeds the limit and has no exception. Adds exceptions that apply to `used`."""
    if number <= limit:
        return []
    if name in EXCEPTIONS:
        used.add(name)
        return []
    return [f"{name}: {number:g} {what}, at most {limit:g}"]


def large_classes(found: dict[str, Class], used: set[str]) -> list[str]:
    faults = [] if found else ["ctags finds no class: does the machine have universal-ctags?"]
    for one in sorted(found.values(), key=lambda one: (-one.members, one.name)):
        public = all(file.startswith(PUBLIC) for file in one.files)
        limit = PUBLIC_CLASS_MEMBERS if public else CLASS_MEMBERS
        faults += over(one.name.replace(":", " ", 1), one.members, limit, "members", used)
    return faults


def large_folders(paths: list[Path], used: set[str]) -> list[str]:
    counts = collections.Counter(path.parent for path in paths if path.parent.name != "programs")
    faults = []
    for folder, count in sorted(counts.items()):
        limit = TEST_FOLDER_FILES if folder.parts[0] == "test" else FOLDER_FILES
        faults += over(folder.as_posix(), count, limit, "source files", used)
    return faults


def conditions(texts: list[str]) -> float:
    """Returns the number of #if lines in 1,000 lines."""
    lines = sum(text.count("\n") for text in texts)
    return 1000 * sum(len(re.findall(r"^\s*#\s*if", text, re.MULTILINE)) for text in texts) / max(1, lines)


def structure() -> list[str]:
    used: set[str] = set()
    sources = (*CXX, ".def", ".py")
    faults = large_classes(classes(ROOT, PRODUCT[:3]), used)
    faults += large_folders(files(*sources, under=[*PRODUCT, "test"]), used)
    texts = [(ROOT / path).read_text() for path in files(*CXX, under=PRODUCT)]
    faults += over("#if", round(conditions(texts), 2), CONDITIONS, "in 1,000 lines", used)
    share, lines = copied_share(ROOT)
    faults += over("copies", round(share, 4), COPIES, f"of Python's lines, as {', '.join(lines[:1])}", used)
    faults += [f"{' -> '.join(circle)}: import each other in a circle" for circle in circles(ROOT)]
    faults += [f"{name}: is within its budget again; take it off EXCEPTIONS" for name in sorted(set(EXCEPTIONS) - used)]
    faults += over("EXCEPTIONS", len(EXCEPTIONS), MOST_EXCEPTIONS, "lines", used)
    return faults


def main() -> None:
    faults = [*unlisted_tests(), *structure()]
    for path in files():
        if path.suffix not in (*CXX, ".py", ".sh", ".cmake") and path.parts[0] != "scripts":
            continue
        text = (ROOT / path).read_text()
        lines = text.count("\n")
        if lines > FILE_LINES:
            faults.append(f"{path}: {lines} lines, at most {FILE_LINES}")
        for first, length in functions_of(path, text):
            if length > FUNCTION_LINES:
                faults.append(f"{path}:{first}: a function of {length} lines, at most {FUNCTION_LINES}")
        if re.search(r"\bTODO\b(?!\()", text) and path.name != "check_budgets.py":
            faults.append(f"{path}: a TODO without a reason; write TODO(reason)")
    finish("budgets", faults)


if __name__ == "__main__":
    main()
