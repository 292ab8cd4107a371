"""Figures of the text in pages and comments, and phrases that readers stumble over.

docs/internals/documentation.md says what is measured. The limits are below.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass, field

WORDS_PER_HEADING = 130
WORDS_PER_EXAMPLE = 120  # over all pages: some have none
PARAGRAPH_WORDS = 60
CELL_WORDS = 15
# Odd idiom in 1,000 words.
IDIOM_IN_PAGES = 1.0
IDIOM_IN_COMMENTS = 1.5

# Each is a fault in a page.
FORBIDDEN = (
    r"to be had",
    r"\btold of\b",
    r"\bin vain\b",
    r"\bfor want of\b",
    r"\bby right\b",
    r"\ball the same\b",
    r"\bmeanwhile\b",
    r"\bwhoever\b",
    r"\bwhat follows it\b",
    r"\bnot un\w+ly\b",
)
# Common words in odd places. A few of them are right.
ODD = (
    *FORBIDDEN,
    r"\b(?:is|are|was) told\b",
    r"\bof (?:ours|theirs|its own|his)\b",
    r"\bso (?:many|long|often)\b (?:as|ranks|of|is|a|may|before|later|and)",
    r"\b(?:of|to|in|with|by) which\b|\bof whom\b",
    r"(?:^|[.;:,(]\s)(?:What|Who|Whatever)\s(?:is|are|has|have|comes|was|a|the|this|they|it|we|waits|ends|had|you|others)\b"
    r"(?![^.]*\?)",
    r"\bthat there (?:is|are|was)\b",
    r"\bbehind (?:it|them|=|--)\b",
    r"\b(?:some|no)body\b",
    r"\bgo(?:es)? by\b|\bcounts? for\b",
)
FENCED = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,})[^`\n]*\n.*?^(?P=indent)(?P=fence)`*[ \t]*$", re.DOTALL | re.MULTILINE
)
COMMENT_LINE = re.compile(r"^\s*%.*$", re.MULTILINE)
INDENTED = re.compile(r"(?<=\n\n)    \S")  # the first line of a code block without a fence
# The first and last line of `:::{note}`, its options, and targets.
DIRECTIVE = re.compile(r"^\s*(?::{3,}.*|:[\w-]+:.*|\([\w-]+\)=)$", re.MULTILINE)
# The page of the command has an entry for each option.
ENTRY = re.compile(r"^:::\{option\}", re.MULTILINE)
FRONT = re.compile(r"\A---\n.*?^---\n", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#{1,4} .*$", re.MULTILINE)
ITEM = re.compile(r"\n(?=\s*(?:[-*]|\d+\.|: )\s)")
RULE = re.compile(r"^[\s:|-]+$")
LINE_COMMENT = re.compile(r'(?<![:"])//\s?(.*)')


@dataclass
class Figures:
    words: int = 0
    headings: int = 0
    examples: int = 0
    paragraphs: list[str] = field(default_factory=list)
    cells: list[str] = field(default_factory=list)


def without_code(page: str) -> str:
    """Returns the page without code blocks and without lines that are not shown."""
    return DIRECTIVE.sub("", COMMENT_LINE.sub("", FENCED.sub("", FRONT.sub("", page))))


def figures(page: str) -> Figures:
    text = without_code(page)
    found = Figures(words=len(page.split()), headings=len(HEADING.findall(text)) + len(ENTRY.findall(page)))
    found.examples = len(FENCED.findall(page)) + len(INDENTED.findall(FENCED.sub("", page)))
    for block in re.split(r"\n\s*\n", HEADING.sub("\n", text)):
        lines = [line for line in block.split("\n") if line.strip()]
        if lines and lines[0].lstrip().startswith("|"):
            cells = [cell for line in lines if not RULE.match(line) for cell in line.strip().strip("|").split("|")]
            found.cells += [cell.strip() for cell in cells if cell.strip()]
        elif lines:
            found.paragraphs += [" ".join(item.split()) for item in ITEM.split("\n".join(lines))]
    return found


def page_faults(name: str, page: str) -> list[str]:
    """Returns what is too long on a page, and its forbidden phrases."""
    found = figures(page)
    faults = []
    ratio = found.words / max(1, found.headings)
    if ratio > WORDS_PER_HEADING:
        faults.append(f"{name}: {ratio:.0f} words per heading, at most {WORDS_PER_HEADING}")
    for paragraph in found.paragraphs:
        if (words := len(paragraph.split())) > PARAGRAPH_WORDS:
            faults.append(f"{name}: a paragraph of {words} words, at most {PARAGRAPH_WORDS}: {paragraph[:60]}...")
    for cell in found.cells:
        if (words := len(cell.split())) > CELL_WORDS:
            faults.append(f"{name}: a cell of {words} words, at most {CELL_WORDS}: {cell[:60]}...")
    text = without_code(page)
    for phrase in FORBIDDEN:
        faults += [f"{name}: '{match[0]}' is hard to read" for match in re.finditer(phrase, text, re.IGNORECASE)]
    return faults


def example_faults(pages: list[str]) -> list[str]:
    """Returns a fault if all pages together have too few examples."""
    found = [figures(page) for page in pages]
    ratio = sum(one.words for one in found) / max(1, sum(one.examples for one in found))
    if ratio <= WORDS_PER_EXAMPLE:
        return []
    return [f"pages: {ratio:.0f} words per example, at most {WORDS_PER_EXAMPLE}: add code blocks"]


def idiom(text: str) -> list[str]:
    """Returns the odd phrases of a text."""
    return [match[0].strip() for phrase in ODD for match in re.finditer(phrase, text, re.MULTILINE)]


def per_thousand(texts: list[str]) -> float:
    words = sum(len(text.split()) for text in texts)
    return 1000 * sum(len(idiom(text)) for text in texts) / max(1, words)


def cxx_comments(source: str) -> str:
    return " ".join(match[1] for match in LINE_COMMENT.finditer(source))


def python_comments(source: str) -> str:
    """Returns the comments and the docstrings."""
    found = [
        token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(ast.get_docstring(node) or "")
    return " ".join(found)
