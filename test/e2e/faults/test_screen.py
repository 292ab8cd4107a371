"""What the screen shows of a failed job."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
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


IN_A_LIBRARY = """
import json, os, time
import distrun.numpy as hvd
{init}
def load(): return json.loads("not json")
if os.environ["RANK"] == "1": load()
time.sleep(20)
"""


def test_the_place_is_the_line_of_the_program_with_init_and_without(tmp_path: Path) -> None:
    for init in ("hvd.init()", ""):
        _, text = run(IN_A_LIBRARY.format(init=init), tmp_path, "-np", "2", "--grace", "2")
        assert "JSONDecodeError: " in first_of_report(text) and "(train.py:5)" in first_of_report(text), text


# A rank that is not asked waits in a barrier, or in a sleep.
PROMPT = """
import os, time
{start}
if os.environ["RANK"] == "1":
    {ask}
{wait}
"""


def test_a_prompt_without_input_is_one_line_and_says_how_to_answer_it(tmp_path: Path) -> None:
    session = ("import distrun.numpy as hvd; hvd.init()", "hvd.barrier()")
    for start, wait in (session, ("", "time.sleep(20)")):
        for ask in ("breakpoint()", "input('name? ')"):
            program = PROMPT.format(start=start, ask=ask, wait=wait)
            code, text = run(program, tmp_path, "-np", "2", "--grace", "2")
            line = r"distrun: rank 1 on host localhost had no input at a prompt \(train.py:\d\): use --tty 1\."
            assert re.search(rf"^{line} Exit code 1\.$", text, re.MULTILINE), text
            assert code == 1 and "Traceback" not in text and "bdb" not in text and "EOFError" not in text, text
    _, text = run(program, tmp_path, "-np", "2", "--grace", "2", "--all-errors")
    assert "Traceback" in text, text


LEAVES = """
import os, sys, numpy as np, distrun.numpy as hvd
{first}
hvd.init()
for step in range(3 - hvd.rank()):
    hvd.allreduce(np.ones(2, np.float32), name="grad")
{last}
"""


def test_the_advice_about_a_rank_that_left_early_fits(tmp_path: Path) -> None:
    never = 'if os.environ["RANK"] == "1": sys.exit(0)'
    dies = "if hvd.rank() == 1: os._exit(0)"
    steps = "The ranks did different numbers of steps: let each do as many, or call join() at its end."
    for first, last, advice in (
        ("", "hvd.shutdown()", steps),
        ("", "", steps),
        ("", dies, "Let every rank do the same number of steps, and call shutdown() before it ends."),
        (never, "", "Let every rank call init(), or start only the ranks that call it (-np)."),
    ):
        code, text = run(LEAVES.format(first=first, last=last), tmp_path, "-np", "2", "--all-errors")
        assert code == 76 and text.count(f"  {advice}") == 1, text
        assert text.count("still need") <= 2, text
    early = "left early: it exited with code 0 and never called init(), and other ranks waited for it there."
    assert early in first_of_report(text), text
    left = "left the job while others still needed it: exited with code 0 and never called init(). The job ends"
    assert f"RankLeft: rank 1 on localhost {left}" in text, text


def test_a_backend_that_does_not_exist_is_refused_before_anything_starts(tmp_path: Path) -> None:
    code, text = run("print('started')", tmp_path, "-np", "2", "--backend", "foo")
    assert code == 64 and text.startswith("distrun: There is no backend foo. Choose "), text
    assert len(text.splitlines()) == 1 and "started" not in text, text


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
    causes = re.findall(r"RankLost: (.*) \(train.py:\d+\)", text)
    assert set(causes) == {"rank 2 on localhost failed: ValueError: batch 17 has 31 rows, expected 32"}, text
    assert len(causes) == 3, text


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


def test_the_errors_of_ranks_that_needed_one_that_left_are_counted(tmp_path: Path) -> None:
    """The ranks notice that another has left before the launcher sees its exit code."""
    for how, code in (("sys.exit(3)", 3), ("sys.exit('no data')", 1), ("sys.exit(0)", 76)):
        found, text = run(ENDS.format(how=how), tmp_path, "-np", "4")
        assert found == code and "RankLeft" not in text and "Traceback" not in text, text
        assert text.count("no data") == (1 if "no data" in how else 0), text
        assert "3 other ranks exited with code 1 because of it. --all-errors" in text, text
        _, text = run(ENDS.format(how=how), tmp_path, "-np", "4", "--all-errors")
        assert text.count("RankLeft") == 3, text


# The launcher ends ranks that have not failed yet. These fail all the same, when all of them run.
TOGETHER = """
import os, pathlib, signal, tempfile, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
here = pathlib.Path(os.environ["TOGETHER"])
tempfile.mkstemp(dir=here)
while len(list(here.iterdir())) < 4:
    time.sleep(0.01)
"""
EQUAL = {
    TOGETHER + "import nosuch_module\n": "ModuleNotFoundError: No module named 'nosuch_module'",
    TOGETHER + "exec('if True')\n": "SyntaxError: expected ':'",
    TOGETHER + "raise SystemExit('bad config')\n": "bad config",
    f"import distrun.numpy as hvd\nhvd.init()\n{TOGETHER}raise ValueError('no lr')\n": "ValueError: no lr",
}


def test_the_same_error_of_all_ranks_is_shown_once_and_counted(tmp_path: Path) -> None:
    for number, (program, error) in enumerate(EQUAL.items()):
        for options in ((), ("--all-errors",)):
            here = tmp_path / f"{number}{len(options)}"
            here.mkdir()
            code, text = run(program, tmp_path, "-np", "4", "-x", f"TOGETHER={here}", *options)
            shown = re.findall(rf"^\[\d\] {re.escape(error)}$", text, re.MULTILINE)
            assert code == 1 and len(shown) == (4 if options else 1), text
            # A rank that got TERM and has no exception is counted as ended.
            counts = re.findall(r"(?<!\d)(\d) other ranks? failed in the same way|launcher ended (\d) other", text)
            assert sum(int(same or ended) for same, ended in counts) == 3 and "because of it" not in text, text


DIFFERENT = """
import atexit, os, time
if os.environ["RANK"] == "2":
    atexit.register(time.sleep, 20)
    raise KeyError("lr")
time.sleep(3)
import nosuch_module
"""


def test_an_error_that_differs_from_the_one_of_the_other_ranks_is_shown(tmp_path: Path) -> None:
    code, text = run(DIFFERENT, tmp_path, "-np", "4")
    assert code == 1 and "KeyError: 'lr'" in text and "No module named 'nosuch_module'" in text, text


CRASHES = """
import ctypes, os, time
if os.environ["RANK"] == "1":
    ctypes.string_at(0)
time.sleep(20)
"""


def test_lines_that_the_screen_has_just_shown_are_not_repeated(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    code, text = run(CRASHES, tmp_path, "-np", "2", "--grace", "2", "--report", str(report))
    assert code == 139 and text.count("Segmentation fault") == 1 and "The last lines" not in text, text
    assert "Fatal Python error: Segmentation fault" in json.loads(report.read_text())["last_lines"]
    others = CRASHES.replace("ctypes.string_at(0)", "print('my last line', flush=True); time.sleep(3); os._exit(3)")
    others += "\nfor i in range(40): print('line', i, flush=True)\n"
    others = others.replace("time.sleep(20)\n", "time.sleep(1)\n") + "time.sleep(20)\n"
    code, text = run(others, tmp_path, "-np", "2", "--grace", "2")
    assert code == 3 and "The last lines it wrote:\n  | my last line\n" in text, text


def test_ctrl_c_in_the_first_moments_ends_the_job_at_once(tmp_path: Path, start_job: StartJob, python: str) -> None:
    """A signal that arrives before a rank has its program must not be lost. Otherwise the job waits for TERM."""
    (tmp_path / "works.py").write_text("import json, time\ntime.sleep(60)\n")
    for delay in (0.0, 0.01, 0.02, 0.03, 0.05, 0.08):
        job = start_job("-np", "4", "--oversubscribe", "--grace", "60", python, tmp_path / "works.py")
        time.sleep(delay)
        job.signal(signal.SIGINT)
        assert job.finish(25) in (130, -2), job.text


SWALLOWS = """
import time
try:
    print("loading", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    pass  # as libraries do that try to load another one
import distrun.numpy as hvd
hvd.init()
time.sleep(60)
"""


def test_a_library_that_catches_ctrl_c_while_it_loads_does_not_delay_the_end(
    tmp_path: Path, start_job: StartJob, python: str
) -> None:
    (tmp_path / "swallows.py").write_text(SWALLOWS)
    job = start_job("-np", "2", "--oversubscribe", "--grace", "60", python, tmp_path / "swallows.py")
    job.wait_lines("loading", count=2)
    job.signal(signal.SIGINT)
    assert job.finish(25) == 130, job.text  # TERM would come after 30 s


def test_a_job_that_waits_for_a_host_says_so_when_it_is_ended(start_job: StartJob, tmp_path: Path) -> None:
    report, silent = tmp_path / "report.json", tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexec sleep 60\n")
    silent.chmod(0o755)
    far = ("--launch-with", f"{silent} {{agent}}", "--network", "lo", "-H", "far:2")
    job = start_job(*far, "--timeout", "1", "--report", report, "true")
    assert job.finish() == 124, job.text
    line = "the job has not started within 1 s, which is its --timeout: no answer from far (1 of 1 host)"
    assert f"distrun: {line}" in job.text and "has run for" not in job.text, job.text
    cause = json.loads(report.read_text())["cause"]
    assert cause["kind"] == "timed_out" and line in json.dumps(cause), cause
    for number, beginning in ((signal.SIGINT, "interrupted"), (signal.SIGTERM, "distrun got SIGTERM")):
        job = start_job(*far, "true")
        time.sleep(1)
        job.signal(number)
        assert job.finish() == 128 + number, job.text
        assert f"distrun: {beginning}; no rank has started: no answer from far (1 of 1 host)" in job.text, job.text
        assert "ranks get" not in job.text, job.text
