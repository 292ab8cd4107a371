"""What the screen shows of a failed job."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

from ..conftest import StartJob, launcher_path


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


ENDS = """
import os, sys, numpy as np, distrun.numpy as hvd
hvd.init()
if hvd.rank() == 1:
    {how}
hvd.allreduce(np.ones(2, np.float32), name="grad")
"""


def test_the_others_are_pointed_to_the_output_of_a_rank_only_if_there_is_some(tmp_path: Path) -> None:
    points = "see the output of that rank"
    for how in ("os.kill(os.getpid(), 9)", "print('a line', flush=True); os.kill(os.getpid(), 9)", "os._exit(3)"):
        _, text = run(ENDS.format(how=how), tmp_path, "-np", "2", "--all-errors")
        assert "RankLost: rank 1 on localhost was lost: " in text and points not in text, text
    _, text = run(ENDS.format(how="print('no data', flush=True); os._exit(3)"), tmp_path, "-np", "2", "--all-errors")
    assert f"rank 1 on localhost was lost: exited with code 3. The job ends; {points}" in text, text


def test_one_exception_has_one_name_on_all_ranks(tmp_path: Path) -> None:
    _, text = run(RAISES, tmp_path, "-np", "4", "--all-errors")
    told = re.findall(r"RankLost: (.*) \(train.py:\d+\)", text)
    assert set(told) == {"rank 2 on localhost failed: ValueError: batch 17 has 31 rows, expected 32"}, text
    assert len(told) == 3, text


def test_ctrl_c_while_libraries_load_gives_one_line(tmp_path: Path, start_job: StartJob, python: str) -> None:
    (tmp_path / "slow_library.py").write_text("import time\nprint('loading', flush=True)\ntime.sleep(60)\n")
    (tmp_path / "loads.py").write_text("import slow_library\n")
    (tmp_path / "works.py").write_text("import time\nprint('loading', flush=True)\ntime.sleep(60)\n")
    for script, *options in (("loads.py",), ("loads.py", "--all-errors"), ("works.py",)):
        job = start_job("-np", "3", "--oversubscribe", *options, python, tmp_path / script)
        job.wait_lines("loading", count=3)
        job.signal(signal.SIGINT)
        assert job.finish() == 130, job.text
        line = "distrun: ranks 0-2 were loading libraries when they were interrupted"
        folded = script == "loads.py" and not options
        assert job.text.count(line) == int(folded), job.text
        assert job.text.count("KeyboardInterrupt") == (0 if folded else 3), job.text
        assert ("Traceback" in job.text) != folded, job.text
