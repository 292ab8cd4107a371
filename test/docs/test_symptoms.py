"""Every message of distrun in docs/troubleshooting/ is in the sources, and every page that `distrun help` names exists.

A message is a line that is one code span. `...` in it stands for words that vary, so the parts between must be in
string literals. The texts in other-tools.md belong to other programs.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from .run_page import ROOT

PAGES = ROOT / "docs/troubleshooting"
SOURCES = ("runtime", "launcher", "bindings", "frameworks")
LITERALS = re.compile(r'"(?:\\.|[^"\\\n])*"(?:\s*"(?:\\.|[^"\\\n])*")*')
LITERAL = re.compile(r'"((?:\\.|[^"\\\n])*)"')
SYMPTOM = re.compile(r"^(?:`([^`]+)`|`` (.+) ``)$", re.MULTILINE)
FEWEST = 40


def cxx_texts(text: str) -> list[str]:
    """Returns the string literals; those that stand next to each other are one."""
    code = re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)
    return [re.sub(r"\\(.)", r"\1", "".join(LITERAL.findall(found[0]))) for found in LITERALS.finditer(code)]


def python_texts(text: str) -> list[str]:
    nodes = ast.walk(ast.parse(text))
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


@cache
def all_texts() -> str:
    found: list[str] = []
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix == ".py":
                found += python_texts(path.read_text())
            elif path.suffix in (".h", ".cc", ".hpp", ".c", ".def"):
                found += cxx_texts(path.read_text())
    return "\n".join(found)


def symptoms(page: Path) -> list[str]:
    return [plain or quoted for plain, quoted in SYMPTOM.findall(page.read_text())]


def own_pages() -> list[Path]:
    return [path for path in sorted(PAGES.glob("*.md")) if path.name not in ("index.md", "other-tools.md")]


@pytest.mark.parametrize("page", own_pages(), ids=lambda page: page.stem)
def test_messages_are_in_the_sources(page: Path) -> None:
    texts = all_texts()
    parts = [part.strip() for symptom in symptoms(page) for part in symptom.split("...")]
    assert [part for part in parts if len(part) > 2 and part not in texts] == []


def test_help_names_pages() -> None:
    titles = {page.read_text().partition("\n")[0].removeprefix("# ") for page in (ROOT / "docs").rglob("*.md")}
    named = re.findall(r'\.page = "([^"]+)"', (ROOT / "launcher/cli/help/topics.cc").read_text())
    assert named
    assert [title for title in named if title not in titles] == []


def test_there_are_enough() -> None:
    assert sum(len(symptoms(page)) for page in own_pages()) >= FEWEST


def test_each_section_is_in_the_table() -> None:
    index = (PAGES / "index.md").read_text()
    pages = [*own_pages(), PAGES / "other-tools.md"]
    titles = [(page.name, title) for page in pages for title in re.findall(r"^### (.+)$", page.read_text(), re.M)]
    assert [each for each in titles if f"[{each[1]}]({each[0]}#" not in index] == []
