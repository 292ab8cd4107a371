"""`distrun --mpi` with a script of the test in place of mpirun: which output is allowed, and how its end is noticed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from ..conftest import launcher_path
from .test_hosts import HET

# Stands for `mpirun -np 2 ... /bin/sh -c WRAPPER ...`. It starts two ranks here and gives each the line from its input.
STARTS = """
read -r key
until [ "$1" = /bin/sh ]; do shift; done
export OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=job
for rank in 0 1; do
  echo "$key" | OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_LOCAL_RANK=$rank PMIX_RANK=$rank "$@" &
done
wait
"""
TWO_HOSTS = ("--network", "lo", "-H", "localhost:1,other:1")
BANNER = "echo 'Permission denied to all but staff. Idle sessions are timed out after 10 min.' >&2; sleep 2"


def on_two_hosts(mpirun: str) -> str:
    """The same on two hosts with one rank each. Both hosts are this machine."""
    return mpirun.replace("LOCAL_SIZE=2", "LOCAL_SIZE=1").replace("LOCAL_RANK=$rank", "LOCAL_RANK=0")


def forward(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


@contextmanager
def two_machines(mpirun: str, folder: Path) -> Iterator[str]:
    """The same on two hosts. The wrapper of rank 1 connects to the head from another address than the head's."""

    def relay() -> None:
        with suppress(OSError), ExitStack() as stack:
            near = stack.enter_context(listener.accept()[0])
            head = ("127.0.0.1", int((folder / "head").read_text()))
            far = stack.enter_context(socket.create_connection(head, source_address=("127.0.0.2", 0)))
            back = threading.Thread(target=forward, args=(far, near))
            back.start()
            forward(near, far)
            back.join()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=relay, daemon=True).start()
        through = f'"$1" "$2" "$3" "$4" "$5" 127.0.0.1:{listener.getsockname()[1]}'
        yield on_two_hosts(mpirun).replace(
            "rank in 0 1; do\n",
            f"rank in 0 1; do\n  [ $rank = 0 ] || {{ echo ${{6##*:}} >{folder}/head; set -- {through}; }}\n",
        )


def run_with(
    folder: Path,
    mpirun: str,
    *before: str,
    options: tuple[str, ...] = (),
    script: str = "echo rank $RANK; date +%s.%N >&2",
    **env: str,
) -> subprocess.CompletedProcess[str]:
    program = folder / "mpirun"
    program.write_text(f"#!/bin/sh\n{mpirun}\n")
    program.chmod(0o755)
    return subprocess.run(
        [*before, launcher_path(), "--mpi", "-np", "2", "--no-fold", *options, "sh", "-c", script],
        env={"PATH": f"{folder}:/usr/bin:/bin", **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_banner_is_no_fault_of_ssh(tmp_path: Path) -> None:
    done = run_with(tmp_path, BANNER + STARTS)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] rank 0", "[1] rank 1"], done.stderr


def test_what_mpirun_says_after_the_start_is_passed_on(tmp_path: Path) -> None:
    """MPI's launcher has the text of a fatal error of MPI, and may print it after the ranks have ended."""
    said = "printf '*** An error occurred in MPI_Recv\\n*** MPI_ERR_TRUN' >&2; sleep 0.3; printf 'CATE: too short' >&2"
    done = run_with(tmp_path, STARTS + said)
    assert done.returncode == 0, done.stderr
    text = re.sub(r"\n +", " | ", done.stderr)
    assert "distrun: MPI's launcher says: | *** An error occurred in MPI_Recv\n" in text, done.stderr
    assert text.endswith("distrun: MPI's launcher says: | *** MPI_ERR_TRUNCATE: too short\n"), done.stderr


def test_what_the_shell_has_left_of_torchrun_contradicts_nothing(tmp_path: Path) -> None:
    done = run_with(tmp_path, STARTS, WORLD_SIZE="7")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] rank 0", "[1] rank 1"], done.stderr


def test_hosts_of_which_slurm_tells_no_gpus_have_their_tasks(tmp_path: Path) -> None:
    """Without --mpi, distrun asks the hosts for their GPUs."""
    job = {**HET, "SLURM_TASKS_PER_NODE_HET_GROUP_1": "1"}
    done = run_with(tmp_path, on_two_hosts(STARTS), options=("--network", "lo"), **job)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] rank 0", "[1] rank 1"], done.stderr
    assert (
        "as -H here:1,other:1 would give" in done.stderr
        and "With --mpi distrun does not ask the hosts for their GPUs" in done.stderr
    )


def test_one_line_for_each_host_is_one_rank_each_where_nobody_can_ask(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("localhost\nother\n")
    job = {"PBS_NODEFILE": str(tmp_path / "nodes"), "PBS_JOBID": "7"}
    done = run_with(tmp_path, on_two_hosts(STARTS), options=("--network", "lo"), **job)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] rank 0", "[1] rank 1"], done.stderr
    assert "With --mpi distrun does not ask the hosts for their GPUs" in done.stderr


def test_mpirun_is_told_that_root_may_start_the_job(tmp_path: Path) -> None:
    words = f'echo "$@" >{tmp_path}/words\n'
    for options, expected in ((("--allow-run-as-root",), True), ((), False)):
        done = run_with(tmp_path, words + STARTS, options=options)
        assert done.returncode == 0, done.stderr
        assert (" --allow-run-as-root /bin/sh" in (tmp_path / "words").read_text()) == expected


def test_what_is_true_on_this_host_only_stays_with_its_ranks(tmp_path: Path) -> None:
    """MPI's launcher passes its variables to all hosts. On another host they would replace that host's own values."""
    seen = f"echo ${{DISPLAY-none}} >{tmp_path}/seen\n"
    there = STARTS.replace(" PMIX_RANK=$rank", " PMIX_RANK=$rank XDG_RUNTIME_DIR=there")
    own = {"DISPLAY": ":7", "XDG_RUNTIME_DIR": "here"}
    look = "echo $RANK ${DISPLAY-none} $XDG_RUNTIME_DIR"
    with two_machines(seen + there, tmp_path) as mpirun:
        done = run_with(tmp_path, mpirun, options=TWO_HOSTS, script=look, **own)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] 0 :7 here", "[1] 1 none there"], done.stderr
    assert (tmp_path / "seen").read_text() == "none\n"
    done = run_with(tmp_path, seen + STARTS, options=(), script=look, **own)
    assert sorted(done.stdout.splitlines()) == ["[0] 0 :7 here", "[1] 1 :7 here"], done.stderr
    assert (tmp_path / "seen").read_text() == ":7\n"


def test_a_host_by_a_name_that_distrun_does_not_know_for_this_one_s(tmp_path: Path) -> None:
    """Open MPI may know this host by a name that distrun does not know. It starts the wrappers here without ssh."""
    own = {"CUDA_VISIBLE_DEVICES": "2,3", "DISPLAY": ":7"}
    look = "echo $RANK $CUDA_VISIBLE_DEVICES $DISPLAY"
    options = ("--network", "lo", "-H", "this-one-on-ib:2")
    done = run_with(tmp_path, STARTS, options=options, script=look, **own)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] 0 2,3 :7", "[1] 1 2,3 :7"], done.stderr


def test_devices_that_srun_gave_a_task_are_its_own(tmp_path: Path) -> None:
    """Also on the head's host, whose own variable may list all devices."""
    given = STARTS.replace(" PMIX_RANK=$rank", " PMIX_RANK=$rank CUDA_VISIBLE_DEVICES=$rank")
    own = {"CUDA_VISIBLE_DEVICES": "0,1", "ZE_AFFINITY_MASK": "2,3"}
    look = "echo $RANK $CUDA_VISIBLE_DEVICES ${ZE_AFFINITY_MASK-none}"
    with two_machines(given, tmp_path) as elsewhere:
        for mpirun, options, ranks in (
            (given, (), ["0 0 2,3", "1 1 2,3"]),
            (given, ("-x", "CUDA_VISIBLE_DEVICES"), ["0 0,1 2,3", "1 0,1 2,3"]),
            (elsewhere, TWO_HOSTS, ["0 0 2,3", "1 1 none"]),
        ):
            done = run_with(tmp_path, mpirun, options=options, script=look, **own)
            assert done.returncode == 0, done.stderr
            assert sorted(done.stdout.splitlines()) == [f"[{rank[0]}] {rank}" for rank in ranks], done.stderr


def test_wrappers_are_told_how_long_the_launcher_waits(tmp_path: Path) -> None:
    """The key comes after all hosts have connected. One of them may be late by --start-timeout."""
    words = f"printf '%s\\n' \"$@\" >{tmp_path}/words\n"
    for options, seconds in (((), "60"), (("--start-timeout", "600"), "600")):
        done = run_with(tmp_path, words + STARTS, options=options)
        assert done.returncode == 0, done.stderr
        given = (tmp_path / "words").read_text().splitlines()
        assert given[-2] == seconds and given[-1].startswith("127.0.0.1:"), given


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["1", "127.0.0.1:1"], "MPI's launcher did not pass on the key of the job: the deadline passed"),
        (["127.0.0.1:1"], "has another version of distrun. Install the same version on all hosts"),
        ([], "has another version of distrun. Install the same version on all hosts"),
    ],
    ids=["no-key", "other-version", "no-word"],
)
def test_a_wrapper_waits_as_long_as_it_is_told(words: list[str], text: str) -> None:
    task = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
    silent, writer = os.pipe()
    command = [launcher_path(), "agent", "--mpi", *words]
    done = subprocess.run(
        command,
        env=task | {"PMIX_NAMESPACE": "job", "PMIX_RANK": "0"},
        stdin=silent,
        capture_output=True,
        text=True,
        timeout=25,
    )
    os.close(silent)
    os.close(writer)
    assert done.returncode == 69 and text in done.stderr, done.stderr


def test_a_wrapper_waits_as_long_for_the_key_that_another_one_shares() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        number = theirs.fileno()
        done = subprocess.run(
            [launcher_path(), "agent", "--mpi", "1", "--key-by-pmi", "127.0.0.1:1"],
            env={"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "PMI_FD": str(number)},
            pass_fds=[number],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=25,
        )
    late = "MPI's launcher did not pass on the key of the job: the deadline passed"
    assert done.returncode == 69 and late in done.stderr, done.stderr


@pytest.fixture
def without_pidfd(python: str, programs: Path) -> list[str]:
    return [python, str(programs / "without_call.py"), "pidfd_open"]


def test_the_end_of_mpirun_is_noticed_without_a_pidfd(tmp_path: Path, without_pidfd: list[str]) -> None:
    begin = time.monotonic()
    done = run_with(tmp_path, "echo no such option; exit 3", *without_pidfd)
    assert done.returncode != 0 and "it ended before all ranks had started" in done.stderr, done.stderr
    assert "no such option" in done.stderr, done.stderr
    assert time.monotonic() - begin < 30, "it was not noticed before its time was over"


def test_a_job_ends_with_mpirun_without_a_pidfd(tmp_path: Path, without_pidfd: list[str]) -> None:
    done = run_with(tmp_path, STARTS, *without_pidfd)
    end = time.time()
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] rank 0", "[1] rank 1"], done.stderr
    last = max(float(line.split()[1]) for line in done.stderr.splitlines() if line.startswith("["))
    assert end - last < 10, "mpirun, which had ended long ago, was waited for"


# Does not end at TERM. One of its children stays behind in a new session.
SLOW = """
trap '' TERM
echo $$ >FOLDER/pids
sleep 1000 &
echo $! >>FOLDER/pids
setsid sh -c 'echo $$ >>FOLDER/pids; exec sleep 1000' &
until [ $(wc -l <FOLDER/pids) = 3 ]; do sleep 0.05; done
touch FOLDER/started
while :; do sleep 1000; done
"""


def processes(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "pids").read_text().split()]


def alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def start_slow(folder: Path, *options: str, **env: str) -> subprocess.Popen[str]:
    program = folder / "mpirun"
    program.write_text("#!/bin/sh\n" + SLOW.replace("FOLDER", str(folder)))
    program.chmod(0o755)
    return subprocess.Popen(
        [launcher_path(), "--mpi", "-np", "2", *options, "true"],
        env={"PATH": f"{folder}:/usr/bin:/bin", **env},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def until(happened: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def end_slow(job: subprocess.Popen[str], folder: Path, code: int) -> str:
    _, errors = job.communicate(timeout=60)
    assert job.returncode == code, errors
    assert [pid for pid in processes(folder) if alive(pid)] == [], errors
    return errors


@pytest.mark.parametrize(
    ("number", "options"),
    [
        (signal.SIGINT, ()),
        (signal.SIGTERM, ()),
        (signal.SIGHUP, ()),
        (signal.SIGUSR1, ("--preempt-signal", "USR1")),
        (signal.SIGTERM, ("--preempt-signal", "TERM")),
    ],
    ids=["int", "term", "hup", "notice-usr1", "notice-term"],
)
def test_a_signal_while_mpirun_has_not_brought_the_ranks(
    tmp_path: Path, number: signal.Signals, options: tuple[str, ...]
) -> None:
    job = start_slow(tmp_path, *options)
    until((tmp_path / "started").exists)
    job.send_signal(number)
    errors = end_slow(job, tmp_path, 128 + number)
    assert f"got {number.name} while MPI's launcher was starting: 0 ranks of 2 have come" in errors


def test_a_notice_that_nobody_asked_for_and_ctrl_backslash_end_nothing(tmp_path: Path) -> None:
    job = start_slow(tmp_path, "--timeout", "3")
    until((tmp_path / "started").exists)
    job.send_signal(signal.SIGUSR1)
    job.send_signal(signal.SIGUSR2)
    job.send_signal(signal.SIGQUIT)
    end_slow(job, tmp_path, 124)


def test_a_second_signal_waits_for_nothing(tmp_path: Path) -> None:
    job = start_slow(tmp_path)
    until((tmp_path / "started").exists)
    begin = time.monotonic()
    job.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    job.send_signal(signal.SIGTERM)
    end_slow(job, tmp_path, 143)
    assert time.monotonic() - begin < 2.5, "the second signal changed nothing"


def test_the_time_of_a_job_runs_while_mpirun_starts(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    job = start_slow(tmp_path, "--timeout", "2", "--report", str(report))
    errors = end_slow(job, tmp_path, 124)
    late = r"--timeout of 2 s: MPI's launcher was still starting: 0 ranks of 2 have come, not those of \S+"
    assert re.search(late, errors), errors
    assert json.loads(report.read_text())["cause"]["kind"] == "timed_out"


@pytest.mark.parametrize("with_guard", [False, True], ids=["launcher", "guard-first"])
def test_nothing_stays_when_the_launcher_is_killed_while_mpirun_starts(tmp_path: Path, with_guard: bool) -> None:
    job = start_slow(tmp_path)
    until((tmp_path / "started").exists)
    if with_guard:
        children = Path(f"/proc/{job.pid}/task/{job.pid}/children")
        os.kill(int(children.read_text().split()[0]), signal.SIGKILL)
        errors = end_slow(job, tmp_path, 69)
        assert "distrun's guard of mpirun" in errors and "killed by signal 9 (SIGKILL)" in errors
        return
    job.kill()
    job.communicate(timeout=60)
    until(lambda: not any(alive(pid) for pid in processes(tmp_path)))


def test_the_first_process_of_a_container_hears_signals_while_mpirun_starts(tmp_path: Path) -> None:
    program = tmp_path / "mpirun"
    program.write_text("#!/bin/sh\n" + SLOW.replace("FOLDER", str(tmp_path)))
    program.chmod(0o755)
    command = ["unshare", "--pid", "--fork", "--mount-proc", launcher_path(), "--mpi", "-np", "2", "true"]
    job = subprocess.Popen(
        command, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    if job.poll() is None:
        with suppress(AssertionError):
            until(lambda: (tmp_path / "started").exists() or job.poll() is not None)
    if job.poll() is not None:
        pytest.skip(f"no namespace of processes here: {job.communicate()[1]}")
    first = int(Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()[0])
    os.kill(first, signal.SIGTERM)
    _, errors = job.communicate(timeout=60)
    assert job.returncode == 143, errors
    assert "got SIGTERM while MPI's launcher was starting" in errors


def test_the_report_names_mpirun_if_it_is_killed(tmp_path: Path) -> None:
    """The status is 75: a service that the ranks need on a host is gone. The program itself has not failed."""
    report = tmp_path / "report.json"
    killed = "echo $$ >FOLDER/mpirun.pid\n".replace("FOLDER", str(tmp_path)) + STARTS
    script = f"sleep 1; [ $RANK = 0 ] && kill -9 $(cat {tmp_path}/mpirun.pid); exec sleep 1000"
    done = run_with(tmp_path, killed, options=("--report", str(report)), script=script)
    assert done.returncode == 75, done.stderr
    assert re.search(r"mpirun \(pid \d+\) was killed by signal 9 \(SIGKILL\) on host \S+\. This ended", done.stderr)
    cause = json.loads(report.read_text())
    assert (cause["cause"]["kind"], cause["rank"], cause["exit_code"]) == ("carrier_lost", None, 75)


def test_the_report_names_mpirun_if_it_ends_the_ranks(tmp_path: Path) -> None:
    ends = STARTS.replace("wait\n", "sleep 2; kill -TERM $(pgrep -P $$); wait; exit 9\n")
    done = run_with(tmp_path, ends, script="exec sleep 1000")
    assert done.returncode == 75, done.stderr
    assert re.search(r"mpirun \(pid \d+\) exited with code 9 on host", done.stderr), done.stderr
