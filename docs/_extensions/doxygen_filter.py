"""Filter of doxygen: prints a header with its comments as doxygen's comments. The headers have plain ones."""

from __future__ import annotations

import re
import sys
from pathlib import Path

# A comment that documents the declaration after it. Deeper comments are inside function bodies.
BEFORE = re.compile(r"^ {0,2}(?=//( |$)|/\* )")
# Code in a comment; doxygen wants four spaces.
SHOWN = re.compile(r"^ {3,}")
# A field with its comment behind it.
BEHIND = re.compile(r"^(?P<code> {2}[^(/]*[;,] *)(?P<mark>//|/\*)(?= )")
# `DISTRUN_OK = 0` is an enumerator; a line of a function body has a call or a keyword, and is not matched.
FUNCTION = re.compile(r"^(?P<code>\w[^/]*; *)(?P<mark>/\*)(?= )")
# C's `typedef struct x {` ... `} x;` would be two entries of one name.
TYPEDEF = (re.compile(r"^typedef (?=(struct|enum) \w+ \{)"), re.compile(r"^\} \w+;$"))
CODE = re.compile(r"(`[^`]*`)")


def escaped(text: str) -> str:
    """Returns the words of a comment without commands and tags of doxygen."""
    if SHOWN.match(text):
        return f"  {text}"
    parts = CODE.split(text)
    return "".join(part if at % 2 else re.sub(r"([\\@<>#%])", r"\\\1", part) for at, part in enumerate(parts))


def as_doxygen(line: str, inside: bool) -> tuple[str, bool]:
    """Returns a line for doxygen, and whether the next line is inside a /* comment."""
    if inside:
        words, closed, rest = line.partition("*/")
        return escaped(words) + closed + rest, not closed
    behind = BEHIND.match(line) or FUNCTION.match(line)
    if behind:
        start, mark, words = behind["code"], behind["mark"], line[behind.end() :]
        open_mark = {"//": "///<", "/*": "/**<"}[mark]
    elif before := BEFORE.match(line):
        start, mark, words = before[0], line[before.end() : before.end() + 2], line[before.end() + 2 :]
        open_mark = {"//": "///", "/*": "/**"}[mark]
    else:
        return line, False
    words, closed, rest = words.partition("*/") if mark == "/*" else (words, "", "")
    return start + open_mark + escaped(words) + closed + rest, mark == "/*" and not closed


def main() -> None:
    inside = False
    before = ""
    about_file = True  # until the first comment ends
    for number, line in enumerate(Path(sys.argv[1]).read_text().splitlines(), 1):
        line = TYPEDEF[1].sub("};", TYPEDEF[0].sub("", line))
        line, inside = as_doxygen(line, inside)
        if number == 1:  # the comment about the file
            line = line.replace("///", "/// \\file\n///", 1) if line.startswith("///") else f"/** \\file\n{line[3:]}"
        if about_file and before.endswith(".") and re.match(r" \* [A-Z]", line):
            line = f" *\n{line}"  # each sentence that begins a line is a paragraph there
        about_file &= inside
        before = line
        print(line)


if __name__ == "__main__":
    main()
