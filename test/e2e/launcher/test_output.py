"""Output as the user sees it: folded lines, terminals, slow or closed readers, memory, input, a debugger."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from ..conftest import ROOT, launcher_path
from .test_command import shell


@pytest.mark.parametrize("all_of_them", [True, False])
def test_what_others_write_after_the_first_cause(tmp_path: Path, all_of_them: bool) -> None:
    """The report counts them. With --all-errors all of it is shown as it comes."""
    others = f"trap 'echo first of $RANK >&2; echo last of $RANK >&2; exit 4' TERM; : > {tmp_path}/up$RANK"
    first = f"until [ -e {tmp_path}/up1 ] && [ -e {tmp_path}/up2 ]; do sleep 0.02; done; echo the cause >&2; exit 3"
    script = f'[ "$RANK" = 0 ] && {{ {first}; }}; {others}; while :; do sleep 0.05; done'
    done = shell("-np", "3", "--oversubscribe", *(["--all-errors"] if all_of_them else []), script=script)
    assert done.returncode == 3 and "[0] the cause\n" in done.stderr, done.stderr
    for rank in (1, 2):
        for which in ("first", "last"):
            assert (f"[{rank}] {which} of {rank}\n" in done.stderr) == all_of_them, done.stderr
    assert "distrun: 2 other ranks exited with code 4 because of it." in done.stderr, done.stderr
    assert ("--all-errors shows their errors." in done.stderr) != all_of_them, done.stderr


def read_all(fd: int) -> str:
    """Reads a pseudoterminal until its last writer has closed it, which is an error (EIO) for the reader."""
    out = b""
    while True:
        try:
            piece = os.read(fd, 65536)
        except OSError:
            piece = b""
        if not piece:
            return out.decode()
        out += piece


# The same variables in every terminal that starts the tests.
TERMINAL = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm"}


def coloured_on_terminal(*arguments: str, **variables: str) -> tuple[int, str]:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [launcher_path(), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env=TERMINAL | variables,
    )
    os.close(theirs)
    text = read_all(ours)
    os.close(ours)
    return process.wait(30), text.replace("\r", "")


def on_terminal(*arguments: str, **variables: str) -> tuple[int, str]:
    code, text = coloured_on_terminal(*arguments, **variables)
    return code, re.sub(r"\x1b\[\??[0-9;]*[mKhl]", "", text)


def test_the_examples_draw_their_progress_bar() -> None:
    script = (
        "import mnist_data, time\nreport = mnist_data.Report(0, 2, 10)\n"
        "report.step(1), report.step(2), time.sleep(0.5), report.epoch(1, 0.5)"
    )
    drawn = ("-np", "1", sys.executable, "-c", script)
    code, text = on_terminal(*drawn, PYTHONPATH=str(ROOT / "examples"))
    assert code == 0 and f"[0] [{'=' * 30}] 2/2[0] epoch 1: loss 0.5000, " in text, text
    job = start(*drawn, env=os.environ | {"PYTHONPATH": str(ROOT / "examples")})
    output, _ = job.communicate(timeout=60)
    assert re.fullmatch(rb"\[0\] epoch 1: loss 0.5000, \d+ samples/s\n", output), output


def test_tags_have_colours_on_a_terminal_alone() -> None:
    say = ("-np", "2", "sh", "-c", "echo rank $RANK")
    assert "\x1b[36m[0]\x1b[0m rank 0\n" in coloured_on_terminal(*say)[1]
    plain = "[1] rank 1\n"
    assert plain in coloured_on_terminal(*say, NO_COLOR="1")[1]
    bar = ("-np", "1", "sh", "-c", "printf '\\r10%%'; sleep 0.3; printf '\\r20%%\\n'")
    assert "\x1b" in coloured_on_terminal(*bar)[1] and "\x1b" not in coloured_on_terminal(*bar, TERM="dumb")[1]
    assert plain in shell("-np", "2", script="echo rank $RANK").stdout


ELSEWHERE = ["--launch-with", "sh -c {agent}", "--network", "lo", "-H", "far:1"]


@pytest.mark.parametrize(
    ("seconds", "size"),
    [(4, 200_000), pytest.param(20, 1_000_000, marks=pytest.mark.full)],
    ids=["a host's silence", "the agents' lease"],
)
def test_a_disk_that_takes_nothing_for_a_while_ends_no_job(tmp_path: Path, seconds: int, size: int) -> None:
    """A host that is silent for 3.5 s is lost. An agent that hears nothing for 15 s ends its ranks."""
    os.mkfifo(tmp_path / "rank.0.out")
    taken = []

    def read() -> None:
        with open(tmp_path / "rank.0.out", "rb") as file:
            time.sleep(seconds)
            taken.append(len(file.read()))

    reader = threading.Thread(target=read)
    reader.start()
    done = shell(*ELSEWHERE, "--output-dir", str(tmp_path), script=f"head -c {size} /dev/zero; echo over >&2")
    reader.join()
    assert done.returncode == 0, done.stderr
    assert taken == [size] and "[0] over" in done.stderr
    waited = f"distrun: {tmp_path} (--output-dir) has taken nothing for 5 s; is its disk reachable? Ranks"
    assert (waited in done.stderr) == (seconds == 20), done.stderr


@pytest.mark.parametrize("insists", [True, False])
def test_a_dead_disk_does_not_hold_who_interrupts_twice(tmp_path: Path, insists: bool) -> None:
    os.mkfifo(tmp_path / "rank.0.out")
    dead = os.open(tmp_path / "rank.0.out", os.O_RDONLY | os.O_NONBLOCK)
    job = start("-np", "1", "--grace", "1", "--output-dir", str(tmp_path), "sh", "-c", "echo up; exec yes")
    assert job.stdout is not None and job.stderr is not None
    threading.Thread(target=job.stdout.read).start()
    assert b"has taken nothing for 5 s" in job.stderr.readline()
    job.terminate()
    assert b"ranks get TERM" in job.stderr.readline()
    if insists:
        time.sleep(1.1)  # an earlier signal counts as the same request
        job.terminate()
    try:
        if not insists:
            with pytest.raises(subprocess.TimeoutExpired):
                job.wait(4)
            os.set_blocking(dead, True)
            while os.read(dead, 65536):
                pass
        assert job.wait(15) == 143
    finally:
        job.kill()
        os.close(dead)
    lost = b"(--output-dir) takes nothing; what was still to be written there is lost" in job.stderr.read()
    assert lost == insists


def test_a_dead_disk_is_told_of_when_ranks_have_ended(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rank.0.out")
    dead = os.open(tmp_path / "rank.0.out", os.O_RDONLY | os.O_NONBLOCK)
    job = start(
        "-np", "1", "--output-dir", str(tmp_path), "sh", "-c", "yes | head -c 100000", stdout=subprocess.DEVNULL
    )
    assert job.stderr is not None
    try:
        assert job.stderr.readline().decode() == (
            f"distrun: {tmp_path} (--output-dir) has taken nothing for 5 s; is its disk reachable? "
            "Ranks have ended; distrun waits for it, or for Ctrl-C\n"
        )
        job.send_signal(signal.SIGINT)
        assert job.wait(15) == 74
    finally:
        job.kill()
        os.close(dead)
    assert b"(--output-dir) takes nothing; what was still to be written there is lost" in job.stderr.read()
    job.stderr.close()


SAME_AND_OWN = "echo same; echo mine $RANK; echo end"


def at_once(ranks: int, folder: Path, script: str) -> str:
    """Runs the script after all ranks have started. A line waits only a moment for the equal lines of other ranks."""
    others = " && ".join(f"[ -e {folder}/up{rank} ]" for rank in range(ranks))
    return f": > {folder}/up$RANK; until {others}; do sleep 0.01; done; {script}"


def test_equal_lines_are_one_with_fold(tmp_path: Path) -> None:
    done = shell("-np", "4", "--fold", script=at_once(4, tmp_path, SAME_AND_OWN))
    lines = done.stdout.splitlines()
    assert sorted(lines) == ["[0-3] end", "[0-3] same", *(f"[{rank}] mine {rank}" for rank in range(4))], done.stdout
    assert lines[0] == "[0-3] same" and lines[-1] == "[0-3] end"


def test_equal_lines_are_one_on_a_terminal(tmp_path: Path) -> None:
    code, text = on_terminal("-np", "3", "sh", "-c", at_once(3, tmp_path, SAME_AND_OWN))
    assert code == 0 and text.splitlines()[0] == "[0-2] same" and text.count("same") == 1, text
    code, text = on_terminal("-np", "3", "--no-fold", "sh", "-c", SAME_AND_OWN)
    assert code == 0 and text.count("same") == 3 and "[0-2]" not in text, text


def test_timestamps_stand_before_the_tag_everywhere(tmp_path: Path) -> None:
    before = datetime.now()
    script = "echo out; echo err >&2; exit 3"
    job = start("-np", "1", "--timestamp", "--output-dir", str(tmp_path), "sh", "-c", script)
    output, errors = job.communicate(timeout=60)
    merged = (tmp_path / "merged.log").read_text()
    stamp = r"(?m)^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}) "
    for text, line in [(output.decode(), r"\[0\] out$"), (errors.decode(), r"\[0\] err$"), (merged, r"\[0\] out$"),
                       (errors.decode(), "distrun: rank 0 "), (merged, "distrun: rank 0 ")]:  # fmt: skip
        found = re.search(stamp + line, text)
        assert found, text
        # The file has timestamps in milliseconds.
        assert before - timedelta(milliseconds=1) <= datetime.fromisoformat(found[1]) <= datetime.now()
    assert (tmp_path / "rank.0.out").read_text() == "out\n"


def test_files_have_every_line_in_spite_of_fold(tmp_path: Path) -> None:
    shell("-np", "3", "--fold", "--output-dir", str(tmp_path), script=SAME_AND_OWN)
    assert (tmp_path / "merged.log").read_text().count("same") == 3
    assert [(tmp_path / f"rank.{rank}.out").read_text().split("\n")[0] for rank in range(3)] == ["same"] * 3


def test_lines_of_a_rank_stay_in_order_with_fold() -> None:
    script = "i=0; while [ $i -lt 300 ]; do echo line $((i / (RANK + 1))) $((i % 3)); i=$((i+1)); done"
    done = shell("-np", "3", "--fold", script=script)
    seen: list[list[str]] = [[], [], []]
    for line in done.stdout.splitlines():
        found = re.match(r"\[([0-9,-]+)\] (.*)", line)
        assert found, line
        ends = [list(map(int, part.split("-"))) for part in found[1].split(",")]
        for rank in {rank for part in ends for rank in range(part[0], part[-1] + 1)}:
            seen[rank].append(found[2])
    for rank in range(3):
        assert seen[rank] == [f"line {i // (rank + 1)} {i % 3}" for i in range(300)]


def start(*arguments: str, **more: object) -> subprocess.Popen[bytes]:
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    return subprocess.Popen([launcher_path(), *arguments], start_new_session=True, **streams)  # type: ignore[call-overload,no-any-return]


def test_a_reader_that_stops_is_told_of_and_holds_nobody_when_it_goes_on() -> None:
    before = time.monotonic()
    job = start("-np", "2", "sh", "-c", "yes | head -c 3000000; echo $RANK over >&2")
    assert job.stdout is not None and job.stderr is not None
    line = job.stderr.readline().decode()
    assert line == (
        "distrun: nobody has read standard output for 5 s; ranks that write there wait until somebody does\n"
    )
    assert time.monotonic() - before > 4
    out, rest = job.communicate(timeout=60)
    assert job.returncode == 0 and len(out) > 6000000
    assert rest.decode().splitlines()[0] == "distrun: standard output is read again; ranks go on"
    assert sorted(rest.decode().splitlines()[1:]) == ["[0] 0 over", "[1] 1 over"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_reader_that_is_stuck_does_not_hold_who_interrupts_twice(number: signal.Signals) -> None:
    job = start("-np", "2", "yes")
    assert job.stdout is not None and job.stderr is not None
    job.stdout.readline()
    time.sleep(0.5)  # by then more output waits than the pipe holds
    job.send_signal(number)
    name = number.name.removeprefix("SIG")
    assert f"ranks get {name} and 10 s" in job.stderr.readline().decode()
    time.sleep(0.3 if number == signal.SIGINT else 1.1)  # an earlier signal counts as the same request
    job.send_signal(number)
    try:
        assert job.wait(15) == 128 + number
    finally:
        job.kill()
    job.stdout.close()
    assert b"distrun: nobody reads standard output; what was still to be written there is lost" in job.stderr.read()
    job.stderr.close()


def test_what_is_left_when_ranks_have_ended_is_given_up_at_a_signal() -> None:
    job = start("-np", "1", "sh", "-c", "yes $(printf %0100d) | head -c 150000")
    assert job.stdout is not None and job.stderr is not None
    job.stdout.readline()
    deadline = time.monotonic() + 20
    while subprocess.run(["pgrep", "-P", str(job.pid)], capture_output=True).returncode == 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert job.poll() is None
    job.terminate()
    try:
        assert job.wait(15) == 74
    finally:
        job.kill()
        job.communicate()


def test_a_reader_of_errors_that_goes_away_does_not_end_the_job(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    script = f"until [ -e {gone} ]; do sleep 0.05; done; for i in 1 2 3; do echo bad >&2; done; sleep 0.2; echo good"
    job = start("-np", "2", "sh", "-c", script)
    assert job.stdout is not None and job.stderr is not None
    job.stderr.close()
    gone.touch()
    text = job.stdout.read().decode()
    assert job.wait(30) == 0
    assert "distrun: the reader of standard error has gone; the job goes on" in text, text
    assert text.count("good") == 2


def test_a_reader_that_goes_away_is_told_of(tmp_path: Path) -> None:
    job = start("-np", "2", "--grace", "2", "--output-dir", str(tmp_path), "yes")
    assert job.stdout is not None and job.stderr is not None
    job.stdout.readline()
    job.stdout.close()
    text = job.stderr.read().decode()
    assert job.wait(30) == 141
    assert "distrun: the reader of standard output has gone; the job ends" in text, text
    assert "the reader of standard output has gone" in (tmp_path / "merged.log").read_text()


def peak(pid: int) -> int:
    """Largest resident memory of a process so far, in MiB; 0 if it has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", text)
    return int(found[1]) // 1024 if found else 0


def watch_peaks(job: subprocess.Popen[bytes], peaks: dict[int, int]) -> Callable[[], None]:
    """Records the peaks of launcher and agent until they end. Returns a function that waits for that."""

    def watch() -> None:
        while job.poll() is None:
            try:
                children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
            except OSError:
                return
            for pid in [job.pid, *map(int, children)]:
                peaks[pid] = max(peaks.get(pid, 0), peak(pid))
            time.sleep(0.02)

    thread = threading.Thread(target=watch)
    thread.start()
    return thread.join


@pytest.mark.parametrize(
    ("options", "each"),
    [([], 25_000_000), (["--fold"], 25_000_000), (["--output-dir"], 25_000_000), ([], 134_217_728)],
    ids=["plain", "fold", "files", "gibibyte"],
)
def test_much_output_and_a_slow_reader_need_no_memory(options: list[str], each: int, tmp_path: Path) -> None:
    """The reader is slow for the first megabytes only. If buffers grow without limit, they do it then. `each`: bytes
    per rank."""
    if "--output-dir" in options:
        options = ["--output-dir", str(tmp_path)]
    script = f"yes a line of a log as ranks write them, of rank $((RANK % 2)) | head -c {each}"
    job = start("-np", "8", "--oversubscribe", *options, "sh", "-c", script)
    assert job.stdout is not None and job.stderr is not None
    peaks: dict[int, int] = {}
    join = watch_peaks(job, peaks)
    total = 0
    while piece := os.read(job.stdout.fileno(), 1 << 20):
        if total < 2_000_000:
            time.sleep(0.01)  # the slow reader
        total += len(piece)
    assert job.wait(120) == 0
    join()
    assert total > (each if "--fold" in options else 8 * each)
    assert len(peaks) == 2 and 1 < max(peaks.values()) < 64, peaks


READS = 'echo "$RANK got $(cat)"'


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        ("none", ["[0] 0 got ", "[1] 1 got ", "[2] 2 got "]),
        ("all", ["[0] 0 got hello", "[1] 1 got hello", "[2] 2 got hello"]),
        ("2", ["[0] 0 got ", "[1] 1 got ", "[2] 2 got hello"]),
    ],
)
def test_standard_input_goes_where_it_is_sent(which: str, expected: list[str]) -> None:
    done = shell("-np", "3", "--stdin", which, script=READS, stdin="hello\n")
    assert sorted(done.stdout.splitlines()) == expected, done.stderr


def test_much_input_reaches_all_and_a_rank_that_reads_none_holds_nobody_up() -> None:
    text = "".join(f"{i}\n" for i in range(100_000))
    done = shell("-np", "3", "--stdin", "all", script="[ $RANK = 1 ] && exec <&- && exit 0; cat | wc -c", stdin=text)
    assert sorted(done.stdout.split()) == sorted(["[0]", str(len(text)), "[2]", str(len(text))]), done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--stdin", "some"], "--stdin some is not valid: write none, all or the number of a rank"),
        (["--stdin", "2"], "--stdin 2: the job has only ranks 0 to 1"),
        (["--tty", "2"], "--tty 2: the job has only ranks 0 to 1"),
        (["--tty", "x"], "--tty x is not a rank"),
        (["--tty", "1", "--stdin", "1"], "leave out --stdin"),
        (["--fold", "--no-fold"], "cannot be used together"),
    ],
)
def test_refusals(arguments: list[str], text: str) -> None:
    done = shell("-np", "2", *arguments, script="true")
    assert done.returncode == 64 and text in done.stderr, done.stderr


class Keyboard:
    """A terminal with a user. `shell` runs there and starts the launcher with its arguments."""

    def __init__(self, *arguments: str, shell: tuple[str, ...] = ()) -> None:
        self.fd, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (31, 97))
        self.before = termios.tcgetattr(theirs)
        # setsid -c makes this the controlling terminal of the launcher, as a shell does.
        self.process = subprocess.Popen(
            ["setsid", "-c", *shell, launcher_path(), *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=TERMINAL,
        )
        self.theirs = theirs
        self.text = ""

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def wait_for(self, text: str, seconds: float = 60.0) -> None:
        """Waits for the text in the output, and drops the output up to its end."""
        deadline = time.monotonic() + seconds
        while text not in self.text:
            ready, _, _ = select.select([self.fd], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{text!r} did not come: {self.text!r}"
            self.text += os.read(self.fd, 65536).decode()
        self.text = self.text.split(text, 1)[1]

    def interrupt_prompt(self, prompt: str) -> None:
        """Types Ctrl-C, which interrupts the prompt and not the job. Python loses a Ctrl-C between writing the prompt
        and sleeping (1 of 16 under load, also without distrun). So this types it again if no prompt follows."""
        for _ in range(20):
            self.type("\x03")
            try:
                return self.wait_for(prompt, seconds=3.0)
            except AssertionError:
                continue
        raise AssertionError(f"Ctrl-C brought no {prompt!r}: {self.text!r}")

    def finish(self) -> int:
        code = self.process.wait(60)
        assert termios.tcgetattr(self.theirs) == self.before, "the terminal is not as it was"
        os.close(self.theirs)
        os.close(self.fd)
        return code


DEBUGGED = """
import os
rank = int(os.environ["RANK"])
value = 40 + rank
if rank == 1:
    print("size", *os.get_terminal_size(0), flush=True)
    breakpoint()
print("value", value, flush=True)
"""


@pytest.fixture
def debugged(tmp_path: Path) -> Path:
    path = tmp_path / "debugged.py"
    path.write_text(DEBUGGED)
    return path


def test_a_debugger_on_one_rank(python: str, debugged: Path, tmp_path: Path) -> None:
    job = Keyboard("-np", "2", "--tty", "1", "--output-dir", str(tmp_path / "logs"), python, str(debugged))
    job.wait_for("(Pdb) ")
    job.type("p 'rank has', value\r")
    job.wait_for("('rank has', 41)")
    job.wait_for("(Pdb) ")
    job.interrupt_prompt("(Pdb) ")
    job.type("value = 50\r")
    job.wait_for("(Pdb) ")
    job.type("c\r")
    job.wait_for("value 50")
    assert job.finish() == 0
    merged = (tmp_path / "logs/merged.log").read_text()
    assert "[1] value 50\n" in merged and "[0] value 40\n" in merged and "('rank has', 41)\n" in merged, merged


def test_the_size_of_the_terminal_and_its_changes() -> None:
    script = (
        "[ $RANK = 0 ] || exit 0; trap 'echo now $(stty size)' WINCH; sleep 0.3; stty size; read x; read y; echo over"
    )
    job = Keyboard("-np", "2", "--tty", "0", "sh", "-c", script)
    job.wait_for("31 97")
    termios.tcsetwinsize(job.fd, (20, 60))
    job.type("one\r")
    job.wait_for("now 20 60")
    job.type("two\r")
    job.wait_for("over")
    assert job.finish() == 0


def test_a_prompt_is_seen_before_it_is_answered() -> None:
    script = "[ $RANK = 0 ] || { sleep 1.5; exec echo beside; }; printf 'sure? '; read x; echo it is $x"
    job = Keyboard("-np", "2", "sh", "-c", script)
    job.wait_for("sure? ")
    job.wait_for("beside")
    job.wait_for("sure? ")
    job.type("yes\r")
    job.wait_for("sure? it is yes")
    assert job.finish() == 0


def test_ctrl_z_where_nobody_could_let_the_job_go_on() -> None:
    """Under `ssh -t host distrun` or in a container, the kernel stops no program there. The ranks go on."""
    script = "trap 'echo goes on; exit 0' CONT; echo up; while :; do sleep 0.1; done"
    job = Keyboard("-np", "2", "--no-fold", "sh", "-c", script)
    for _ in range(2):
        job.wait_for("up")
    job.type("\x1a")
    for _ in range(2):
        job.wait_for("goes on")
    assert job.finish() == 0


# `stty tostop; job &`. After a line has been typed, which the job has seen, `fg`. Like bash, `fg` sends no SIGCONT to a
# job that runs.
IN_BACKGROUND = """
import os, select, signal, sys, termios, time
usual = termios.tcgetattr(0)
termios.tcsetattr(0, termios.TCSANOW, [*usual[:3], usual[3] | termios.TOSTOP, *usual[4:]])
job = os.fork()
if job == 0:
    os.setpgid(0, 0)
    os.execvp(sys.argv[1], sys.argv[1:])
select.select([0], [], [])
time.sleep(0.5)
assert os.read(0, 100) == b"fg\\n"
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
os.tcsetpgrp(0, job)
print("in the foreground", flush=True)
code = os.waitstatus_to_exitcode(os.waitpid(job, 0)[1])
os.tcsetpgrp(0, os.getpgrp())
termios.tcsetattr(0, termios.TCSANOW, usual)
sys.exit(code)
"""


@pytest.mark.parametrize("option", ["--stdin", "--tty"])
def test_a_job_that_comes_to_the_foreground_reads_its_terminal(python: str, option: str) -> None:
    script = "echo up; read x; echo got $x"
    job = Keyboard("-np", "1", option, "0", "sh", "-c", script, shell=(python, "-c", IN_BACKGROUND))
    job.wait_for("up")
    job.type("fg\r")
    job.wait_for("in the foreground")
    job.type("hello\r")
    job.wait_for("got hello")
    assert job.finish() == 0


def test_ctrl_backslash_shows_where_ranks_are_that_have_a_terminal() -> None:
    job = Keyboard("-np", "2", "--tty", "0", "sh", "-c", "[ $RANK = 1 ] || stty raw; echo up; sleep 3; echo over")
    job.wait_for("up")
    job.wait_for("up")
    job.type("\x1c")
    job.wait_for("where the ranks are")
    job.wait_for("in no session")
    job.wait_for("over")
    assert job.finish() == 0


def test_a_terminal_for_a_rank_without_one_here() -> None:
    done = shell(
        "-np", "2", "--tty", "1", script="[ $RANK = 0 ] || { tty; read x; echo got $x; cat; }", stdin="hello\n"
    )
    assert done.returncode == 0, done.stderr
    assert "/dev/pts/" in done.stdout and "got hello" in done.stdout, done.stdout
