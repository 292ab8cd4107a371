#!/usr/bin/env python3
"""Checks facts in pages: paths that a page or a comment names exist, and the numbers in docs/wire.md are those of the
sources."""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from lib.tree import ROOT, files, finish

FOLDERS = "cmake|runtime|launcher|bindings|frameworks|examples|test|bench|scripts|docs"
PATH = re.compile(rf"`((?:{FOLDERS})/[\w./+-]*|[A-Z]+\.md)`")
SOURCES = (".h", ".cc", ".hpp", ".c", ".cu", ".py", ".cmake", ".sh", ".def", ".ini", "CMakeLists.txt")
COMMENT = re.compile(r"(?:^|\s)(?://|#) (.*)", re.MULTILINE)
IN_COMMENT = re.compile(rf"(?<![\w./-])((?:{FOLDERS})/[\w/+-]+(?:\.\w+)+)")
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")

WIRE = "docs/wire.md"
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
    ("at most NUMBER numeric addresses", "runtime/net/launchers/meeting.h", "kMaxMeetingAddresses"),
)
CONSTANT = r"constexpr \S+ {} = (?:std::size_t)?\{{?(\d+)\}}?(?: << (\d+))?;"


def wire_faults(page: str) -> list[str]:
    """Returns faults of numbers. `page` is the text of docs/wire.md."""
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


def main() -> None:
    faults = wire_faults((ROOT / WIRE).read_text())
    for source in files():
        if source.name.endswith(SOURCES) or source.parts[0] == "scripts":
            faults += comment_faults(source.as_posix(), (ROOT / source).read_text())
    for page in files(".md"):
        if page.as_posix().startswith("docs/plan/"):
            continue
        text = (ROOT / page).read_text()
        for name in PATH.findall(text):
            if not (ROOT / name).exists():
                faults.append(f"{page}: names {name}, which does not exist")
        for name in LINK.findall(text):
            if not (ROOT / page.parent / name).exists():
                faults.append(f"{page}: links to {name}, which does not exist")
    finish("docs", faults)


if __name__ == "__main__":
    main()
