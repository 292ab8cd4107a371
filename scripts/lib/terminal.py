"""Terminal sessions as pictures. NAME.session in docs/diagrams/ is what a terminal has shown, NAME.py its program.

terminal.py record NAME.session   runs the session's first line in a terminal and writes what that shows
terminal.py draw NAME.session     prints the session as an SVG file
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import shutil
import struct
import sys
import tempfile
import termios
from pathlib import Path

COLUMNS = 110
FOLDER = "/home/me/work"  # shown instead of the temporary folder
PROCESS = re.compile(r"\(pid \d+\)")

# Rich's own template loads fonts from another host.
TEMPLATE = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: {char_height}px; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def shown_by(command: str, folder: str) -> str:
    """Returns what a terminal shows while the command runs in the folder."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.execvp("sh", ["sh", "-c", command])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    output = b""
    while True:
        try:
            piece = os.read(terminal, 1 << 16)
        except OSError:  # the terminal's other side is closed
            break
        if not piece:
            break
        output += piece
    os.waitpid(process, 0)
    return output.decode().replace("\r\n", "\n")


def record(session: Path) -> None:
    prompt = session.read_text().splitlines()[0]
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(session.with_suffix(".py"), Path(folder) / "train.py")
        output = shown_by(prompt.removeprefix("$ "), folder).replace(folder, FOLDER)
    session.write_text(f"{prompt}\n{PROCESS.sub('(pid 4711)', output)}")


def breaks(line: str) -> list[int]:
    """Returns where a line is broken for the picture. A terminal breaks inside words, which a picture must not."""
    found: list[int] = []
    start = 0
    while len(line) - start > COLUMNS:
        start = line.rfind(" ", start, start + COLUMNS + 1) + 1
        if start <= (found[-1] if found else 0):
            raise ValueError(f"a word has more than {COLUMNS} columns: {line}")
        found.append(start)
    return found


def draw(session: Path) -> str:
    from rich.console import Console
    from rich.text import Text

    console = Console(width=COLUMNS, record=True, file=io.StringIO(), force_terminal=True, color_system="standard")
    prompt, _, output = session.read_text().rstrip().partition("\n")
    lines = [Text(prompt, style="bold"), *Text.from_ansi(output).split("\n")]
    for line in lines:
        for part in line.divide(breaks(line.plain)):
            part.rstrip()
            console.print(part)
    return console.export_svg(title="", code_format=TEMPLATE, unique_id="terminal")


def main() -> None:
    action, name = sys.argv[1:]
    if action == "record":
        record(Path(name))
    else:
        sys.stdout.write(draw(Path(name)))


if __name__ == "__main__":
    main()
