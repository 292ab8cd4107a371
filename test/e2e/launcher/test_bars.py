"""Progress bars, colours and unfinished lines of ranks, on terminals and in logs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from .test_command import shell
from .test_output import coloured_on_terminal, start

# Two bars above each other, as tqdm draws them with position=1, and a line on the other stream.
NESTED = r"""
import os, sys, time
def bar(position, text):
    sys.stderr.write("\n" * position + "\r" + text + "\x1b[A" * position)
    sys.stderr.flush()
    time.sleep(0.05)  # so that each state is drawn
for epoch in range(2):
    bar(0, f"epochs {epoch} of {os.environ['RANK']}")
    for step in range(9):
        bar(1, f"steps {step} of {os.environ['RANK']}")
    print(f"loss of epoch {epoch} of {os.environ['RANK']}", flush=True)
sys.stderr.write("\n\n")
"""


def test_bars_above_each_other_are_few_lines_in_a_log() -> None:
    job = start("-np", "2", sys.executable, "-c", NESTED)
    _, errors = job.communicate(timeout=60)
    text = errors.decode()
    assert job.returncode == 0 and "\x1b" not in text and "\r" not in text, text
    for rank in (0, 1):
        assert text.count(f"[{rank}] steps") == 1 and f"[{rank}] steps 8 of {rank}\n" in text, text
        assert f"[{rank}] epochs 1 of {rank}\n" in text, text


def test_bars_above_each_other_hide_no_line_on_a_terminal() -> None:
    code, text = coloured_on_terminal("-np", "2", "--no-fold", sys.executable, "-c", NESTED, NO_COLOR="1")
    assert code == 0 and "\x1b[1A\x1b[J" in text, text  # both bars are erased before a line
    for line in [f"[{rank}] loss of epoch {epoch} of {rank}\n" for rank in (0, 1) for epoch in (0, 1)]:
        assert line in text, text


def test_only_colours_are_left_and_they_end_with_their_line() -> None:
    script = "printf '\\033[31mred\\n\\033[2J\\033[Hplain\\033]0;title\\007\\033[1A\\rend\\n'"
    assert shell("-np", "1", script=script).stdout == "[0] \x1b[31mred\x1b[0m\n[0] end\n[0] plain\n"


def test_dots_appear_before_their_line_ends(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    job = start("-np", "1", "sh", "-c", f"printf ...; until [ -e {seen} ]; do sleep 0.05; done; echo F")
    assert job.stdout is not None
    first = os.read(job.stdout.fileno(), 100)
    seen.touch()
    rest, _ = job.communicate(timeout=60)
    assert (job.returncode, first, rest) == (0, b"[0] ...", b"F\n")
