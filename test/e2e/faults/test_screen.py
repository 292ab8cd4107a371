"""What the screen shows of a failed job."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from ..conftest import launcher_path


def run(program: str, tmp_path: Path, *options: str, stdin: str = "") -> tuple[int, str]:
    """Returns the exit code and what distrun shows."""
    script = tmp_path / "train.py"
    script.write_text(program)
    command = [launcher_path(), "--oversubscribe", *options, sys.executable, str(script)]
    done = subprocess.run(
        command, input=stdin, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, cwd=tmp_path
    )
    return done.returncode, done.stdout


def first_of_report(text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith("distrun: rank"))


MISMATCH = """
import numpy as np, distrun.numpy as hvd
hvd.init()
hvd.allreduce(np.ones(2 + hvd.rank(), np.float32), name="grad")
"""


def test_a_mismatch_of_two_ranks_fits_in_10_lines(tmp_path: Path) -> None:
    code, text = run(MISMATCH, tmp_path, "-np", "2")
    assert code == 1 and len(text.splitlines()) <= 10, text
    assert text.count("Traceback") == 1 and "distrun/_" not in text, text
    assert "1 other rank exited with code 1 because of it." in text, text


RAISES = """
import numpy as np, distrun.numpy as hvd
hvd.init()
for step in range(20):
    if hvd.rank() == 2 and step == 17:
        raise ValueError("batch 17 has 31 rows, expected 32")
    hvd.allreduce(np.ones(2, np.float32), name="grad")
"""


def test_a_failure_is_shown_once_and_what_follows_from_it_is_counted(tmp_path: Path) -> None:
    code, text = run(RAISES, tmp_path, "-np", "4")
    assert code == 1, text
    assert text.count("ValueError: batch 17") == 2, text  # the traceback of the rank, and the first line of the report
    assert "RankLost" not in text, text
    assert re.search(r"^distrun: 3 other ranks (exited with code 1|ended) because of it", text, re.MULTILINE), text


WITHOUT_INIT = """
import os, time
def load(): raise FileNotFoundError(2, "No such file", "data.bin")
if os.environ["RANK"] == "1": load()
time.sleep(20)
"""


def test_a_rank_that_does_not_call_init_has_its_exception_as_the_cause(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    code, text = run(WITHOUT_INIT, tmp_path, "-np", "2", "--grace", "2", "--report", str(report))
    assert code == 1, text
    said = r"raised FileNotFoundError: \[Errno 2\] No such file: 'data.bin' \(train.py:3\) and exited with code 1\."
    assert re.search(said, first_of_report(text)), text
    facts = json.loads(report.read_text())
    assert (facts["cause"]["kind"], facts["place"]["line"]) == ("exited", 3), facts


def test_a_prompt_without_input_says_how_to_answer_it(tmp_path: Path) -> None:
    for program in ("breakpoint()\n", "input('name? ')\n"):
        code, text = run(program, tmp_path, "-np", "2", "--grace", "2")
        assert code == 1 and text.count("--tty RANK") == 1, text
