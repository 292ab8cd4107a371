"""Every message that the site shows, and no test of pages compares, is in the sources. `distrun help` names real pages.

These messages are the `text` blocks, and the code spans of docs/troubleshooting/ below a heading and before its cause.
Numbers and placeholders in them stand for words that vary, so the parts between must be in string literals. The texts
in other-tools.md belong to other programs. docs/reference/command.md is what `distrun help` prints, which another test
compares. Pages for developers show the form of messages between parts of distrun.
"""

from __future__ import annotations

import ast
import errno
import os
import re
from functools import cache
from pathlib import Path

import pytest

from .conftest import pages
from .pages import read_page
from .run_page import ROOT

PAGES = ROOT / "docs/troubleshooting"
SOURCES = ("runtime", "launcher", "bindings", "frameworks")
LITERALS = re.compile(r'"(?:\\.|[^"\\\n])*"(?:\s*"(?:\\.|[^"\\\n])*")*')
LITERAL = re.compile(r'"((?:\\.|[^"\\\n])*)"')
SECTION = re.compile(r"^### (.+)\n\n((?:(?!\*\*|#).*\n)+)", re.MULTILINE)
SPAN = re.compile(r"(?<!`)(`+)(?!`) ?(.+?) ?(?<!`)\1(?!`)", re.DOTALL)
ROW = re.compile(r"^\| (.+) \| \[(.+)\]\((.+\.md)#.+\) \|$", re.MULTILINE)
PLACEHOLDER = re.compile(r"\b(?:NAME|HOST|RANK|FILE|TEXT|ERROR|VALUE|TIME|N)\b")
EXAMPLES = re.compile(
    r"\b\d+\b|\bh\d\b|\borted\b|^distrun: |" + "|".join(re.escape(os.strerror(n)) for n in errno.errorcode)
)
CUT = " ..."  # ends a text of the table that goes on
MOST_JOINED = 3  # literals in one part
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


def is_composed(part: str, joined: int = 1) -> bool:
    """True if the part is in a literal, or a join of a literal's end, whole literals and another one's beginning."""
    texts = f"\n{all_texts()}\n"
    before = "\n" if joined > 1 else ""
    if before + part in texts:
        return True
    return joined < MOST_JOINED and any(
        f"{before}{part[:i]}\n" in texts and is_composed(part[i:], joined + 1) for i in range(1, len(part))
    )


def spans(text: str) -> list[str]:
    return [" ".join(span.split()) for _, span in SPAN.findall(text)]


def sections(page: Path) -> dict[str, list[str]]:
    """Returns the symptoms of each section of a page."""
    return {title: spans(text) for title, text in SECTION.findall(page.read_text())}


def symptoms(page: Path) -> list[str]:
    return [symptom for of_section in sections(page).values() for symptom in of_section]


def own_pages() -> list[Path]:
    return [path for path in sorted(PAGES.glob("*.md")) if path.name not in ("index.md", "other-tools.md")]


@pytest.mark.parametrize("page", own_pages(), ids=lambda page: page.stem)
def test_messages_are_in_the_sources(page: Path) -> None:
    parts = [part.strip() for symptom in symptoms(page) for part in PLACEHOLDER.split(symptom)]
    assert [part for part in parts if len(part) > 2 and not is_composed(part)] == []


def test_text_blocks_are_in_the_sources() -> None:
    unknown = []
    for page in pages():
        if page.parent.name == "internals" or page.name == "command.md":
            continue
        for block in read_page(page).not_checked:
            parts = [part.strip() for line in block.lines for part in EXAMPLES.split(line)]
            wrong = [part for part in parts if len(part) > 2 and not is_composed(part)]
            unknown += [f"{page.name}:{block.line}: {part}" for part in wrong if block.language == "text"]
    assert unknown == []


@pytest.mark.parametrize("page", [*own_pages(), PAGES / "other-tools.md"], ids=lambda page: page.stem)
def test_each_section_begins_with_whole_messages(page: Path) -> None:
    headings = re.findall(r"^### (.+)$", page.read_text(), re.M)
    assert [title for title in headings if not sections(page).get(title)] == []
    assert [symptom for symptom in symptoms(page) if "..." in symptom] == []


def test_help_names_pages() -> None:
    named = re.findall(r'\.page = "([^"]+)"', (ROOT / "launcher/cli/help/topics.cc").read_text())
    assert named
    assert [page for page in named if not (ROOT / page).is_file()] == []


def test_there_are_enough() -> None:
    assert sum(len(symptoms(page)) for page in own_pages()) >= FEWEST


def test_the_table_has_the_symptoms_of_each_section() -> None:
    rows: dict[tuple[str, str], list[str]] = {}
    for cell, title, name in ROW.findall((PAGES / "index.md").read_text()):
        rows.setdefault((name, title), []).extend(spans(cell))
    pages = [*own_pages(), PAGES / "other-tools.md"]
    expected = {(page.name, title): found for page in pages for title, found in sections(page).items()}
    assert rows.keys() == expected.keys()
    for section, shown in rows.items():
        assert len(shown) == len(expected[section]), section
        for text, whole in zip(shown, expected[section], strict=True):
            assert text == whole or (text.endswith(CUT) and whole.startswith(text.removesuffix(CUT))), section
