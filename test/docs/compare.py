"""Compares the output of a command with what a page shows.

The order of lines does not matter, since ranks write in any order. Numbers, ids, paths and times are masked.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from .pages import LEFT_OUT

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\r(?=\n)")
MASKS = (
    (re.compile(r"(?<![\w/.~-])~?(?:/[\w.@+~%-]+)+/?"), "/#"),
    (re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{6,}\b|\b0x[0-9a-f]+\b"), "#"),
    (re.compile(r"(?<![A-Za-z_\d.])[-+]?\d[\d,]*(?:\.\d+)*(?:[eE][-+]?\d+)?(?![\d])"), "#"),
    (re.compile(r"# ?(?:[num\u00b5]?s|min|h|[KMGT]i?B|bytes|B)\b"), "#"),
    (re.compile(r"\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) #"), "#"),
    (re.compile(r"\s+"), " "),
)
WORDS_LEFT_OUT = re.compile(rf"(?:^|(?<=\s)){re.escape(LEFT_OUT)}(?=\s|$)")
# Open MPI's mpirun prints the first if its child has called exec before mpirun has put it into a group of its own, and
# torch the second where no name server answers.
BY_CHANCE = re.compile(
    r"\[[\w.-]+:\d+\] plm:rsh: Warning: setpgid\(\d+,\d+\) failed in parent with errno="
    r"|(?:\[\d+\] )?\[W.* socket\.cpp:\d+\] \[c10d\] The hostname of the client socket cannot be retrieved"
)


def masked(line: str) -> str:
    line = ESCAPES.sub("", line)
    for pattern, mask in MASKS:
        line = pattern.sub(mask, line)
    return line.strip()


def lines_of(text: str) -> list[str]:
    """Returns the lines that a terminal would show, without empty ones and those that another tool prints by chance."""
    plain = ESCAPES.sub("", text)
    return [line.rpartition("\r")[2] for line in plain.split("\n") if line.strip() and not BY_CHANCE.match(line)]


def has_parts(line: str, printed: str) -> bool:
    """True if `...` in the page's line stands for words of the printed line, which is masked, or for none."""
    parts = [masked(part) for part in WORDS_LEFT_OUT.split(line)]
    pattern = "(?: .+)?".join(f" {re.escape(part)}" if part else "" for part in parts)
    return len(parts) > 1 and re.fullmatch(pattern, f" {printed}") is not None


def differences(expected: Iterable[str], output: str) -> list[str]:
    """Returns a line for each difference: "- " the page shows it, "+ " the command has printed it."""
    expected = list(expected)
    shown = [line for line in expected if line.strip() and line.strip() != LEFT_OUT]
    printed = lines_of(output)
    left = Counter(masked(line) for line in printed)
    missing = []
    for line in shown:
        if left[masked(line)] > 0:
            left[masked(line)] -= 1
        else:
            missing.append(line)
    found = []
    for line in missing:
        fits = next((candidate for candidate, count in left.items() if count and has_parts(line, candidate)), None)
        if fits is None:
            found.append(f"- {line}")
        else:
            left[fits] -= 1
    if not any(line.strip() == LEFT_OUT for line in expected):
        for line in printed:
            if left[masked(line)] > 0:
                left[masked(line)] -= 1
                found.append(f"+ {line}")
    return found
