"""Reads a page of docs/ and returns the commands that it shows, with the output that it promises.

`scripts/docs --run PAGE` and test_pages.py use this. The block below is a command that ends with code 3:

    % exit: 3
    ```console
    $ distrun -np 2 python train.py
    output of the command, in any order of lines
    ...
    ```

docs/internals/documentation.md has all comment lines that steer a run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

STEERING = re.compile(r"\s*% (file|setup|exit|environment|hosts|not run here): (.+?)\s*$")
FENCE = re.compile(r"(?P<indent>\s*)(?P<fence>`{3,})(?P<language>[^`\s]*)[^`]*$")
LEFT_OUT = "..."
TERMINAL = ("bash", "sh", "text")  # languages of what a terminal shows


class PageError(ValueError):
    """The page's own fault: the comment lines or the block have no meaning."""


@dataclass(frozen=True)
class File:
    """A file that the page shows; it is written into the working folder."""

    name: str
    text: str


@dataclass(frozen=True)
class Command:
    """A command with its output, as the page shows it. `expected` is None for a hidden command."""

    line: int
    text: str
    expected: tuple[str, ...] | None
    code: int = 0


@dataclass
class Page:
    environment: str = ""
    hosts: int = 0
    slurm: bool = False  # the hosts are its nodes
    steps: list[File | Command] = field(default_factory=list)
    not_run: list[tuple[int, str]] = field(default_factory=list)  # line, reason
    not_checked: list[Block] = field(default_factory=list)  # terminal blocks that no test runs

    @property
    def commands(self) -> list[Command]:
        return [step for step in self.steps if isinstance(step, Command)]


@dataclass(frozen=True)
class Block:
    line: int  # of the fence
    language: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Comment:
    line: int
    key: str
    value: str


def parts_of(text: str) -> list[Block | Comment]:
    """Returns the code blocks and the comment lines that steer, in order."""
    found: list[Block | Comment] = []
    opened: re.Match[str] | None = None
    first = 0
    inside: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if opened is None:
            if fence := FENCE.match(line):
                opened, first, inside = fence, number, []
            elif steering := STEERING.match(line):
                found.append(Comment(number, steering[1], steering[2]))
        elif line.strip().startswith(opened["fence"]) and not line.strip().strip("`"):
            found.append(Block(first, opened["language"], tuple(inside)))
            opened = None
        else:
            inside.append(line.removeprefix(opened["indent"]))
    if opened is not None:
        raise PageError(f"line {first}: the block does not end")
    return found


def commands_of(block: Block, code: int) -> list[Command]:
    """Returns the commands of a console block. The last one ends with `code`, the others with 0."""
    found: list[tuple[int, list[str], list[str]]] = []
    continued = False
    for number, line in enumerate(block.lines, block.line + 1):
        if line.startswith("$ "):
            found.append((number, [line[2:]], []))
        elif not found:
            raise PageError(f"line {number}: a console block begins with a command, '$ ...'")
        elif continued:
            found[-1][1].append(line.removeprefix("> "))
        else:
            found[-1][2].append(line)
        continued = (continued or line.startswith("$ ")) and line.endswith("\\")
    if not found:
        raise PageError(f"line {block.line}: a console block without a command")
    last = len(found) - 1
    return [
        Command(number, "\n".join(words), tuple(output), code if index == last else 0)
        for index, (number, words, output) in enumerate(found)
    ]


class Reader:
    """Makes the steps of a page. The comments wait for the block that they are about."""

    def __init__(self) -> None:
        self.page = Page()
        self._waiting: dict[str, Comment] = {}

    def comment(self, comment: Comment) -> None:
        if comment.key == "environment":
            self.page.environment = comment.value
        elif comment.key == "hosts":
            count, _, slurm = comment.value.partition(" with ")
            if not count.isdigit() or slurm not in ("", "slurm"):
                raise PageError(f"line {comment.line}: neither '% hosts: N' nor '% hosts: N with slurm'")
            self.page.hosts, self.page.slurm = int(count), bool(slurm)
        elif comment.key == "setup":
            self.page.steps.append(Command(comment.line, comment.value, None))
        else:
            self._waiting[comment.key] = comment

    def block(self, block: Block) -> None:
        waiting, self._waiting = self._waiting, {}
        console = block.language == "console"
        if "file" in waiting:
            if console:
                raise PageError(f"line {block.line}: a console block is no file")
            self.page.steps.append(File(waiting["file"].value, "".join(f"{line}\n" for line in block.lines)))
        elif "not run here" in waiting:
            self.page.not_run.append((block.line, waiting["not run here"].value))
        elif console:
            code = int(waiting["exit"].value) if "exit" in waiting else 0
            self.page.steps += commands_of(block, code)
        elif waiting:
            raise PageError(f"line {block.line}: '% {next(iter(waiting))}:' stands before no console block")
        elif block.language in TERMINAL:
            self.page.not_checked.append(block)

    def end(self) -> Page:
        if self._waiting:
            last = next(iter(self._waiting.values()))
            raise PageError(f"line {last.line}: no block follows '% {last.key}:'")
        return self.page


def parse(text: str) -> Page:
    reader = Reader()
    for part in parts_of(text):
        if isinstance(part, Comment):
            reader.comment(part)
        else:
            reader.block(part)
    return reader.end()


def read_page(path: Path) -> Page:
    try:
        return parse(path.read_text())
    except ValueError as error:
        raise PageError(f"{path}: {error}") from error
