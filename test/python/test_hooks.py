"""The effects of an uncaught exception on the other ranks, and on a process whose framework would wait for them at exit
(`_hooks.end_without_waiting`)."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from distrun import _hooks, _session, errors

# The function registered with atexit stands for the framework's wait.
WAITS = """
import atexit
from distrun import _hooks
atexit.register(print, "waited")
_hooks.end_without_waiting()
"""


def run(code: str, *flags: str, stdin: int = subprocess.DEVNULL, before: str = WAITS) -> tuple[int, str]:
    line = [sys.executable, *flags, "-c", before + code]
    done = subprocess.run(
        line, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout


def test_an_exception_ends_the_process_at_once() -> None:
    code, text = run("print('buffered', end='')\nraise ValueError('a bad batch')")
    assert code == 1 and "buffered" in text and "ValueError: a bad batch" in text and "waited" not in text, text


@pytest.mark.parametrize("flags, prompt", [(("-i",), ""), ((), "import code; code.interact()")])
def test_an_exception_at_a_prompt_ends_nothing(flags: tuple[str, ...], prompt: str) -> None:
    """The exit code is Python's own. The prompt of 3.13.5 ends with 1, whatever code the program asks for."""
    ends = []
    for before in (WAITS, ""):
        terminal, theirs = pty.openpty()
        try:
            os.write(terminal, b"1 / 0\nprint('went', 'on')\nraise SystemExit(3)\n")
            ends.append(run(prompt, *flags, stdin=theirs, before=before))
        finally:
            os.close(theirs)
            os.close(terminal)
    (code, text), (alone, _) = ends
    assert "ZeroDivisionError" in text and "went on" in text and "waited" in text and code == alone != 0, text


def test_python_i_without_a_terminal_ends_as_ever() -> None:
    """As on ranks without a terminal."""
    code, text = run("raise ValueError('a bad batch')", "-i")
    assert code == 1 and "ValueError: a bad batch" in text and "waited" not in text, text


def test_what_torchs_hook_keeps_is_printed() -> None:
    code, text = run("""
import torch.distributed
torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
raise ValueError("a bad batch")
""")
    assert code == 1 and "ValueError: a bad batch" in text and "waited" not in text, text


@pytest.mark.parametrize(
    "said",
    ["ZeroDivisionError: division by zero\nTraceback (most recent call last):", "Incompatible shapes: [4] vs. [3]"],
)
def test_of_tensorflows_errors_the_others_are_told_what_has_happened(said: str) -> None:
    """They get the error, not its place in the program, which TensorFlow puts before it, as here in 2.21."""
    where = 'Detected at node Add defined at (most recent call last):\n  File "/train.py", line 26, in <module>\n'
    for between in ("", "<stack traces unavailable>\n", "2 root error(s) found.\n"):
        error = RuntimeError(
            f"Graph execution error:\n\n{where}\n{between}{said}\n\t [[{{{{node Add}}}}]] [Op:__step_1]"
        )
        assert _hooks.describe(RuntimeError, error, None) == f"RuntimeError: {said.splitlines()[0]}"
    error = RuntimeError("Graph execution error:\n\nDetected at node Add")
    assert _hooks.describe(RuntimeError, error, None) == "RuntimeError: Graph execution error:"


def test_of_an_error_with_a_heading_the_others_are_told_what_follows_it() -> None:
    error = RuntimeError('Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "b".\n\tmore')
    reported = 'RuntimeError: Error(s) in loading state_dict for Net: Missing key(s) in state_dict: "b".'
    assert _hooks.describe(RuntimeError, error, None) == reported
    assert _hooks.describe(ValueError, ValueError("one\ntwo"), None) == "ValueError: one"
    graph = TypeError('in user code:\n\n    File "a.py", line 6, in f  *\n        x()\n\n    TypeError: no uint16\n')
    assert _hooks.describe(TypeError, graph, None) == "TypeError: no uint16"
    assert _hooks.describe(ValueError, ValueError("nothing follows:\n"), None) == "ValueError: nothing follows:"


class OfCompiledSteps(_session.Extension):
    """A framework that raises its own exceptions with distrun's text in them."""

    def error_of(self, failure: BaseException) -> errors.DistrunError | None:
        known = (errors.Mismatch("shapes differ"), LOST)
        return next((one for one in known if str(one) in str(failure)), None)


LOST = errors.RankLost("rank 1 was lost", usable=False)


def raised_from(cause: BaseException) -> BaseException:
    try:
        raise OSError("no space for a last checkpoint") from cause
    except OSError as error:
        return error


@pytest.mark.parametrize(
    "failure, reported",
    [
        (ValueError("a bad batch"), True),
        (errors.Mismatch("shapes differ"), True),
        (RuntimeError("Graph execution error: shapes differ"), True),
        (LOST, False),
        (RuntimeError("Graph execution error: rank 1 was lost"), False),
        (raised_from(LOST), False),
        (raised_from(ValueError("a bad batch")), True),
    ],
)
def test_what_follows_from_the_end_of_the_job_is_no_cause(
    failure: BaseException, reported: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    causes: list[str] = []
    monkeypatch.setattr(_session, "_extensions", [OfCompiledSteps()])
    monkeypatch.setattr(_session, "abort", lambda cause, *_: causes.append(cause))
    _hooks._excepthook(type(failure), failure, failure.__traceback__)
    assert (len(causes) == 1) == reported, causes
    assert str(failure) in capsys.readouterr().err


def test_the_launcher_is_told_where_and_by_which_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[tuple[object, ...]] = []
    monkeypatch.setattr(_session, "abort", lambda *facts: reported.append(facts))
    monkeypatch.setattr(_hooks, "_previous_excepthook", lambda *_: None)
    mismatch = errors.Mismatch("shapes differ", tensor="grad")
    for failure in (ValueError("a bad batch"), mismatch, raised_from(mismatch)):
        try:
            raise failure
        except BaseException as error:
            _hooks._excepthook(type(error), error, error.__traceback__)
    line = reported[0][2]
    name = Path(__file__).name
    assert reported[0] == (f"ValueError: a bad batch ({name}:{line})", __file__, line, "")
    assert reported[1] == (f"Mismatch: shapes differ ({name}:{line})", __file__, line, "grad")
    assert reported[2][3] == "grad"
    _hooks._abort(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert reported[3] == ("KeyboardInterrupt", "", 0, "")


def called_in_distrun(error: BaseException) -> BaseException:
    """Returns `error`, raised by a function of distrun."""
    inside: dict[str, Any] = {"__name__": "distrun._operations", "error": error}
    exec("def wait():\n    raise_it()\ndef raise_it():\n    raise error\n", inside)
    try:
        inside["wait"]()
    except BaseException as raised:
        return raised
    raise AssertionError("nothing was raised")


def functions(trace: TracebackType | None) -> list[str]:
    return [frame.f_code.co_name for frame, _ in traceback.walk_tb(trace)]


def test_the_traceback_of_distruns_error_ends_with_the_programs_call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_session, "abort", lambda *_: None)
    error = called_in_distrun(errors.Mismatch("shapes differ"))
    whole = functions(error.__traceback__)
    assert whole == ["called_in_distrun", "wait", "raise_it"]
    _hooks._excepthook(type(error), error, error.__traceback__)
    shown = capsys.readouterr().err
    assert "in called_in_distrun" in shown and "raise_it" not in shown, shown
    assert shown.rstrip().endswith("Mismatch: shapes differ"), shown
    assert functions(error.__traceback__) == whole
    bug = called_in_distrun(errors.DistrunError("a bug"))
    _hooks._excepthook(type(bug), bug, bug.__traceback__)
    assert "raise_it" in capsys.readouterr().err
    refused = called_in_distrun(ValueError("dtype <U1 is not supported"))
    _hooks._excepthook(type(refused), refused, refused.__traceback__)
    shown = capsys.readouterr().err
    assert "in called_in_distrun" in shown and "raise_it" not in shown, shown
    try:
        exec("int('x')", {"__name__": "distrun._operations"})
    except ValueError as wrong:
        _hooks._excepthook(type(wrong), wrong, wrong.__traceback__)
    assert "in <module>" in capsys.readouterr().err
    other = called_in_distrun(KeyError("a bug of ours"))
    _hooks._excepthook(type(other), other, other.__traceback__)
    assert "raise_it" in capsys.readouterr().err


@pytest.mark.parametrize(
    "failure, order", [(ValueError("bad"), ["printed", "reported"]), (errors.Mismatch("x"), ["reported", "printed"])]
)
def test_an_error_that_all_ranks_get_is_told_before_it_is_printed(
    failure: BaseException, order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    monkeypatch.setattr(_session, "abort", lambda *_: steps.append("reported"))
    monkeypatch.setattr(_hooks, "_previous_excepthook", lambda *_: steps.append("printed"))
    _hooks._excepthook(type(failure), failure, failure.__traceback__)
    assert steps == order


FRONT_ENDS = {
    "numpy": "import numpy as np, distrun.numpy as hvd; x = np.ones(3)",
    "torch": "import torch, distrun.torch as hvd; x = torch.ones(3)",
}


@pytest.mark.parametrize("front", FRONT_ENDS)
@pytest.mark.parametrize(
    "call, error",
    [
        ("hvd.allreduce(x)", "NotInitialized: distrun has not been initialized; use hvd.init() first."),
        ("hvd.rank()", "NotInitialized: "),
        ("hvd.broadcast_object(1)", "NotInitialized: "),
        ("hvd.init(settings={'backend': 'foo'})", "Unsupported: process set 0: There is no backend foo. Choose "),
        ("hvd.init(settings={'no_such': 1})", "InvalidArgument: "),
        ("hvd.init(comm=[3])", "NotImplementedError: "),
        ("import threading; t = threading.Thread(target=lambda: hvd.rank()); t.start(); t.join()", "NotInitialized: "),
    ],
)
def test_before_and_in_init_too_the_traceback_ends_with_the_programs_call(
    front: str, call: str, error: str, tmp_path: Path
) -> None:
    program = tmp_path / "train.py"
    program.write_text(f"{FRONT_ENDS[front]}\n{call}\n")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120, check=False)
    assert error in done.stderr.splitlines()[-1], done.stderr
    places = [line for line in done.stderr.splitlines() if line.startswith("  File ")]
    assert places[-1].startswith(f'  File "{program}", line 2, in '), done.stderr
    assert len(places) == (3 if "Thread" in call else 1), done.stderr


def test_pythons_own_modules_between_two_functions_of_distrun_are_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_session, "abort", lambda *_: None)
    inside: dict[str, Any] = {"__name__": "distrun._operations", "error": errors.Mismatch("shapes differ")}
    program = """
import contextlib
@contextlib.contextmanager
def within():
    raise error
    yield
def wait():
    with within(): pass
"""
    exec(program, inside)
    with pytest.raises(errors.Mismatch) as caught:
        inside["wait"]()
    _hooks._excepthook(errors.Mismatch, caught.value, caught.value.__traceback__)
    shown = capsys.readouterr().err
    assert "contextlib" not in shown and "in test_pythons_own_modules" in shown, shown


def test_the_place_is_the_innermost_frame_of_the_program(tmp_path: Path) -> None:
    def place(*files: str) -> tuple[str, int] | None:
        """The place of an exception that these files raise, each of which calls the next one."""
        call: Any = None
        for file in reversed(files):
            scope: dict[str, Any] = {"__name__": "some_module", "call": call}
            exec(compile("def f():\n    call() if call else int('x')\n", file, "exec"), scope)
            call = scope["f"]
        with pytest.raises(ValueError) as caught:
            call()
        trace = caught.value.__traceback__
        return _hooks.place(trace.tb_next if trace else None)  # without this function

    assert place("/a/train.py", "/a/data.py", "/usr/lib/python3.11/json/decoder.py") == ("/a/data.py", 2)
    for library in ("/v/lib/python3.11/site-packages/keras/a.py", "/usr/lib/python3/dist-packages/a.py",
                    "<frozen importlib._bootstrap>", "/tmp/__autograph_generated_file3x.py"):  # fmt: skip
        assert place("/a/train.py", library) == ("/a/train.py", 2)
        assert place("/a/train.py", library, "/a/model.py") == ("/a/model.py", 2)
    assert place("/home/u/lib/python/train.py") == ("/home/u/lib/python/train.py", 2)
    assert place("/a/train.py", "<string>") == ("/a/train.py", 2)
    assert place("/v/site-packages/a.py", "/v/site-packages/b.py") == ("/v/site-packages/a.py", 2)
