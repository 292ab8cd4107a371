#!/usr/bin/env python3
"""Checks pages and comments: paths, links and anchors exist, the numbers on the page of the wire are those of the
sources, and the text is short and plain (lib/prose.py)."""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from lib import prose
from lib.tree import ROOT, files, finish

FOLDERS = "cmake|runtime|launcher|bindings|frameworks|examples|test|bench|scripts|docs"
PATH = re.compile(rf"`((?:{FOLDERS})/[\w./+-]*|[A-Z]+\.md)`")
SOURCES = (".h", ".cc", ".hpp", ".c", ".cu", ".py", ".cmake", ".sh", ".def", ".ini", "CMakeLists.txt")
COMMENT = re.compile(r"(?:^|\s)(?://|#) (.*)", re.MULTILINE)
IN_COMMENT = re.compile(rf"(?<![\w./-])((?:{FOLDERS})/[\w/+-]+(?:\.\w+)+)")
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s#]*)(?:#([^)\s]*))?\)")
TARGET = re.compile(r"^\(([\w-]+)\)=$|<a (?:id|name)=\"([\w-]+)\"", re.MULTILINE)
INCLUDE = re.compile(r"^[`:]{3}\{include\} (\S+)", re.MULTILINE)
MEASURED = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")
GENERATED = "docs/reference/api/"  # doxygen and autodoc make the anchors there

WIRE = "docs/internals/wire.md"
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20}
# In each sentence of the page, NUMBER is the value of a constant.
NUMBERS = (
    ("Protocol version: **NUMBER**", "runtime/net/secure/secure_socket.h", "kProtocolVersion"),
    ("| format | u8 | NUMBER;", "runtime/engine/protocol/messages.cc", "kFormat"),
    ("a frame at most NUMBER (`runtime/net/secure/frame.h`)", "runtime/net/secure/secure_socket.h", "kMaxFrame"),
    ("A frame is at most NUMBER;", "runtime/engine/protocol/messages.h", "kMaxFrame"),
    ("starts a new one at NUMBER.", "runtime/engine/run/outbox.cc", "kFrameTarget"),
    ("Limits before the proof: NUMBER peers", "runtime/net/secure/secure_listener.cc", "kMaxStrangers"),
    ("per listener, NUMBER held", "runtime/net/secure/handshake.h", "kMaxHandshakeMessage"),
    ("Purpose and version are at most NUMBER bytes", "runtime/net/secure/handshake.cc", "kMaxHelloText"),
    ("a Noise message at most NUMBER.", "runtime/net/secure/handshake.cc", "kMaxNoiseMessage"),
    ("every message has a header of NUMBER bytes", "runtime/backend/tcp/message.h", "kHeaderBytes"),
    ("Keys are at most NUMBER,", "runtime/net/store/store_protocol.h", "kMaxStoreKey"),
    ("values NUMBER,", "runtime/net/store/store_protocol.h", "kMaxStoreValue"),
    ("the whole table NUMBER.", "runtime/net/store/store_table.h", "kDefaultMaxBytes"),
    ("at most NUMBER characters:", "runtime/net/launchers/spawner_exchange.h", "kMaxSharedText"),
    ("at most NUMBER numeric addresses", "runtime/net/launchers/store_contact.h", "kMaxContactAddresses"),
)
CONSTANT = r"constexpr \S+ {} = (?:std::size_t)?\{{?(\d+)\}}?(?: << (\d+))?;"


def wire_faults(page: str) -> list[str]:
    """Returns faults of numbers. `page` is the text of the page of the wire."""
    faults = []
    text = " ".join(page.split())
    for sentence, source, name in NUMBERS:
        said = re.search(re.escape(sentence).replace("NUMBER", r"([\d,]+)(?: ([KM]iB))?"), text)
        value = re.search(CONSTANT.format(name), (ROOT / source).read_text())
        if said is None or value is None:
            where = f"{WIRE} no longer says '{sentence}'" if said is None else f"{source} has no {name}"
            faults.append(f"{where}: change the table of {Path(__file__).name} too")
            continue
        true = int(value[1]) << int(value[2] or 0)
        if int(said[1].replace(",", "")) * UNITS[said[2] or ""] != true:
            faults.append(f"{WIRE}: says '{said[0]}', but {name} in {source} is {true}")
    return faults


def comment_faults(source: str, text: str) -> list[str]:
    """Returns faults of the file paths in the comments of a source."""
    names = [name for comment in COMMENT.findall(text) for name in IN_COMMENT.findall(comment)]
    return [f"{source}: names {name}, which does not exist" for name in names if not (ROOT / name).exists()]


def anchors(text: str) -> set[str]:
    """Returns the anchors of a page's headings, as MyST and GitHub make them, and its explicit targets."""
    found: set[str] = {name for pair in TARGET.findall(text) for name in pair if name}
    for heading in re.findall(r"^#{1,6} +(.*?) *$", prose.FENCED.sub("", text), re.MULTILINE):
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\u4e00-\u9fff\- ]", "", shown.strip().lower()).replace(" ", "-")
        number, unique = 0, slug
        while unique in found:
            number += 1
            unique = f"{slug}-{number}"
        found.add(unique)
    return found


def text_of(page: Path) -> str:
    """Returns the page's text, with the page that it includes."""
    text = page.read_text()
    for name in INCLUDE.findall(text):
        text += (page.parent / name).read_text()
    return text


def link_faults(page: Path, text: str) -> list[str]:
    """Returns links to files that do not exist and to anchors that a page does not have."""
    faults = []
    for name, anchor in LINK.findall(prose.FENCED.sub("", text)):
        goal = (ROOT / page.parent / name).resolve() if name else ROOT / page
        if name and not goal.exists():
            faults.append(f"{page}: links to {name}, which does not exist")
        elif anchor and goal.suffix == ".md" and not goal.is_relative_to(ROOT / GENERATED):
            known = anchors(text_of(goal) if name else text)
            faults += [] if anchor in known else [f"{page}: links to {name}#{anchor}, and the page has no such anchor"]
    return faults


def is_measured(page: Path) -> bool:
    """True for the pages of the site, and for those that a reader of the repository sees first."""
    if page.as_posix() in MEASURED:
        return True
    return page.parts[0] == "docs"


def page_faults() -> list[str]:
    faults = []
    measured: list[str] = []
    for page in files(".md"):
        if page.as_posix().startswith("docs/plan/"):
            continue
        text = (ROOT / page).read_text()
        for name in PATH.findall(text):
            if not (ROOT / name).exists():
                faults.append(f"{page}: names {name}, which does not exist")
        faults += link_faults(page, text)
        if is_measured(page):
            faults += prose.page_faults(page.as_posix(), text)
            measured.append(text)
    faults += prose.example_faults(measured)
    return faults + idiom_faults("pages", [prose.without_code(text) for text in measured], prose.IDIOM_IN_PAGES)


def idiom_faults(where: str, texts: list[str], limit: float) -> list[str]:
    share = prose.per_thousand(texts)
    if share <= limit:
        return []
    worst = sorted({phrase for text in texts for phrase in prose.idiom(text)})
    return [f"{where}: {share:.2f} odd phrases in 1,000 words, at most {limit}: {', '.join(worst[:10])}"]


def source_faults() -> list[str]:
    """Returns faults of comments. The language of tests' comments is not measured."""
    faults = []
    comments: dict[str, list[str]] = {"C++ comments": [], "Python comments": []}
    for source in files():
        if not source.name.endswith(SOURCES) and source.parts[0] != "scripts":
            continue
        text = (ROOT / source).read_text()
        faults += comment_faults(source.as_posix(), text)
        if source.suffix == ".py" and source.parts[0] != "test":
            comments["Python comments"].append(prose.python_comments(text))
        elif source.suffix in (".h", ".hpp", ".cc", ".c", ".cu") and source.parts[0] != "test":
            comments["C++ comments"].append(prose.cxx_comments(text))
    for where, texts in comments.items():
        faults += idiom_faults(where, texts, prose.IDIOM_IN_COMMENTS)
    return faults


def main() -> None:
    finish("docs", wire_faults((ROOT / WIRE).read_text()) + source_faults() + page_faults())


if __name__ == "__main__":
    main()
