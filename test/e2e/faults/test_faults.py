"""Failures other than a killed rank: exceptions, early exits, mismatches, stalls, signals, limits, foreign clients."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from cgroups import limited_memory

from ..conftest import Job, StartJob, agent_of, launcher_path, marked_processes
from ..strangers import assert_no_memory_for, listening_ports, memory, strangers


@pytest.fixture
def faults(start_job: StartJob, python: str, programs: Path):  # type: ignore[no-untyped-def]
    def start(name: str, *arguments: str, size: int = 2) -> Job:
        return start_job("-np", str(size), "--oversubscribe", *arguments, python, programs / "faults.py", name)

    return start


def test_exception_is_what_the_user_sees_first(faults) -> None:  # type: ignore[no-untyped-def]
    job = faults("raises", size=3)
    assert job.finish() == 1
    first = job.text.index("the data of rank 1 is broken")
    assert "RankLost" not in job.text[:first], job.text


def test_a_rank_without_memory_is_the_first_cause_though_the_others_end_before_it(faults) -> None:  # type: ignore[no-untyped-def]
    job = faults("starved", size=3)
    assert job.finish() == 7, job.text
    said = r"out of memory: the output of allgather .*: no memory for \d+ bytes.*\. Run fewer ranks on its host"
    assert re.search(rf"distrun: rank 1 on host \S+ \(pid \d+\) failed: {said}", job.text), job.text
    assert set(re.findall(r"raised ([012]) \w+ ranks=\[1\]", job.text)) == set("012"), job.text


def test_a_rank_that_cannot_write_where_it_receives_is_the_cause(faults) -> None:  # type: ignore[no-untyped-def]
    job = faults("unusable", "--backend", "tcp", size=3)
    assert job.finish() == 7, job.text
    said = "unusable memory: tcp: the memory of a tensor cannot be written. Does it map a file that is read-only"
    assert re.search(rf"distrun: rank 1 on host \S+ \(pid \d+\) failed: {said}", job.text), job.text
    assert set(re.findall(r"raised ([012]) \w+ ranks=\[1\]", job.text)) == set("012"), job.text


def test_leaving_early_is_named(faults) -> None:  # type: ignore[no-untyped-def]
    job = faults("leaves", "-x", "DISTRUN_SHUTDOWN_TIMEOUT=300", size=3)  # no rank waits this long
    assert job.finish(60) == 76, job.text
    assert len(re.findall(r"raised [02] RankLeft ranks=\[1\] tensor=allreduce.needed", job.text)) == 2, job.text


@pytest.mark.parametrize("control", ["shm", "tcp"])
@pytest.mark.parametrize("explicit", ["", "1"])
@pytest.mark.parametrize("late", ["", "1"])
@pytest.mark.parametrize("apart", ["0", "2"])
def test_leaving_far_apart_is_no_failure(faults, apart: str, late: str, explicit: str, control: str) -> None:  # type: ignore[no-untyped-def]
    """One rank leaves long before or after the others. distrun names those that have not left, and the job succeeds."""
    variables = {"APART": apart, "APART_LATE": late, "APART_EXPLICIT": explicit, "SIZE": "3"}
    settings = {"DISTRUN_SHUTDOWN_TIMEOUT": "0.5", "DISTRUN_CONTROL": control}
    passed = [word for name, value in {**variables, **settings}.items() for word in ("-x", f"{name}={value}")]
    job = faults("apart", "--backend", control, *passed, size=3)
    assert job.finish() == 0, job.text
    assert "left early" not in job.text and "error" not in job.text.lower(), job.text
    working = f"rank {apart} " if late else ("ranks 1" if apart == "0" else "ranks 0")
    assert re.search(rf"{working}.*did not leave within [\d.]+ s", job.text), job.text
    if apart == "0" and not late:
        assert "Rank 0 coordinates the job, so it waits for them" in job.text, job.text
    else:
        assert "leaves without waiting any longer" in job.text, job.text


def test_what_never_completes_ends_the_job_when_its_rank_leaves(faults) -> None:  # type: ignore[no-untyped-def]
    job = faults("unfinished", "-x", "DISTRUN_SHUTDOWN_TIMEOUT=1")
    assert job.finish(60) == 1, job.text
    assert re.search(
        r"raised 1 Timeout usable=False shutdown: 'allreduce.alone' did not complete within --shutdown-timeout",
        job.text,
    ), job.text
    assert re.search(r"raised 0 Rank(Left|Lost) usable=False rank 1 .*'allreduce.alone'", job.text), job.text


def test_a_rank_that_does_not_come_ends_the_job(faults) -> None:  # type: ignore[no-untyped-def]
    job = faults("absent", "-x", "DISTRUN_START_TIMEOUT=1", "--grace", "1")
    assert job.finish(60) == 1, job.text
    assert re.search(r"raised 0 Timeout usable=False .*rank 1 did not call init\(\) within 1 s", job.text), job.text
    assert re.search(r"rank 1 on host \S+ \(pid \d+\) blocked the other ranks: ", job.text), job.text


def test_giving_up_with_a_code_is_no_early_leave(faults) -> None:  # type: ignore[no-untyped-def]
    job = faults("exits")
    assert job.finish() == 3, job.text
    assert "rank 1 on host" in job.text and "exited with code 3.\n  This ended the job" in job.text, job.text


def test_vanishing_with_code_0_is_a_failure(faults) -> None:  # type: ignore[no-untyped-def]
    job = faults("vanishes")
    assert job.finish() == 76, job.text
    assert "rank 1" in job.text


def test_mismatch_is_an_error_on_every_rank_and_the_job_goes_on(faults) -> None:  # type: ignore[no-untyped-def]
    job = faults("mismatch", size=3)
    assert job.finish() == 0, job.text
    assert len(re.findall(r"raised \d Mismatch ranks=\[1\] tensor=allreduce.shapes .*\(4,\).*\(3,\)", job.text)) == 3, (
        job.text
    )
    assert (
        len(re.findall(r"raised \d Mismatch ranks=\[1\] tensor=allreduce.dtypes .*float64.*float32", job.text)) == 3
    ), job.text
    assert len(re.findall(r"after \d 3", job.text)) == 3


def test_timeline_has_all_ranks(start_job: StartJob, python: str, programs: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    job = start_job("-np", "2", "--timeline", str(path), python, programs.parents[2] / "examples/numpy_pi.py")
    assert job.finish() == 0, job.text
    events = json.loads(path.read_text())
    assert {event["pid"] for event in events if event["ph"] == "X"} == {0, 1}


def test_timeline_that_cannot_be_written_ends_the_job_at_its_start(faults) -> None:  # type: ignore[no-untyped-def]
    job = faults("mismatch", "--timeline", "/does/not/exist.json")
    assert job.finish() != 0
    assert "cannot write '/does/not/exist.json'" in job.text
    assert "Mismatch" not in job.text


def test_forgotten_tensor_is_named(faults, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    seen = tmp_path / "seen"
    job = faults("forgets", "-x", "DISTRUN_STALL_WARNING_TIME=1", "-x", f"SEEN={seen}")
    job.wait_lines(r"waiting for rank 1 \(\S+\) to submit allreduce 'allreduce.forgotten'", errors=True)
    seen.touch()
    assert job.finish() == 0, job.text


def test_ctrl_c_gets_through(faults) -> None:  # type: ignore[no-untyped-def]
    """Ctrl-C takes effect within one second on a machine that is not overloaded."""
    job = faults("interrupted")
    pids = job.ranks(2)
    time.sleep(0.3)
    begin = time.monotonic()
    os.kill(pids[0], signal.SIGINT)
    job.wait_lines(r"interrupted 0")
    assert time.monotonic() - begin < 5.0
    assert job.finish() == 130, job.text


def test_sigterm_handler_runs_in_a_blocked_wait(faults, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    seen = tmp_path / "seen"
    job = faults("sigterm", "-x", f"SEEN={seen}")
    pids = job.ranks(2)
    time.sleep(0.3)
    os.kill(pids[0], signal.SIGTERM)
    job.wait_lines("handler ran")  # rank 1 has not submitted the operation: the wait blocks
    seen.touch()
    assert job.finish() == 0, job.text
    assert "done 0 True" in job.text


def test_ctrl_c_of_the_job_gets_through_to_all(faults) -> None:  # type: ignore[no-untyped-def]
    job = faults("interrupted")
    job.ranks(2)
    job.signal(signal.SIGINT)
    assert job.finish() == 130, job.text
    assert "interrupted 0" in job.text and "interrupted 1" in job.text, job.text


@pytest.mark.parametrize("name", ["DISTRUN_FUSION_THRESHOLD=many", "DISTRUN_BACKEND=carrier-pigeon"])
def test_bad_setting_names_itself(faults, name: str) -> None:  # type: ignore[no-untyped-def]
    job = faults("threads", "-x", name)
    assert job.finish() not in (0, 70), job.text
    variable, value = name.split("=")
    assert variable in job.text and value in job.text, job.text


def test_unknown_setting_is_a_warning_with_the_nearest_name(faults) -> None:  # type: ignore[no-untyped-def]
    job = faults("threads", "-x", "DISTRUN_FUSION_TRESHOLD=1")
    assert job.finish() == 0, job.text
    assert "DISTRUN_FUSION_TRESHOLD" in job.text and "DISTRUN_FUSION_THRESHOLD" in job.text, job.text


def assert_tcp_for_lack_of_memory(job: Job, why: str) -> None:
    """Both ranks report the choice of tcp and its reason. "tcp" alone proves nothing: each start-up line has it."""
    assert job.finish() == 0, job.text
    assert len(re.findall(r"sum 2$", job.text, re.MULTILINE)) == 2, job.text
    choice = rf"info:   not shm: .*\d+ bytes of shared memory do not fit: {why}"
    assert len(re.findall(choice, job.text)) == 2, job.text
    warning = rf"distrun: rank 0 warning: using tcp, not shm: rank \d .*: {why}"
    assert len(re.findall(warning, job.text, re.MULTILINE)) == 1, job.text


def test_a_limit_of_files_means_the_next_backend(faults) -> None:  # type: ignore[no-untyped-def]
    job = faults("limited", "-x", "DISTRUN_LOG_LEVEL=info")
    assert_tcp_for_lack_of_memory(job, r"the file size limit \(ulimit -f\) is 65536 bytes")


def test_a_memory_limit_means_the_next_backend(faults) -> None:  # type: ignore[no-untyped-def]
    """The limit is enough for the ranks' own memory and the control plane, but not for a window of 128 MiB as well."""
    settings = ("-x", "DISTRUN_LOG_LEVEL=info", "-x", "DISTRUN_SHM_WINDOW=16MiB")
    with limited_memory(128 << 20) as group:
        job = faults("limited", *settings, "-x", f"CGROUP={group}")
        assert_tcp_for_lack_of_memory(job, rf"only \d+ bytes are left of the limit of {128 << 20} bytes in {group}/")


# Rank 1 moves into this memory cgroup, by itself or with the shell around it, and then takes more than its limit.
HUNGRY = "x = []\nwhile True: x.append(bytearray(b'x' * (4 << 20)))"
MOVES = "[ $RANK = 0 ] && exec sleep 60; echo $$ > $CGROUP/cgroup.procs; "


@pytest.mark.parametrize("start", ["exec ", ""])
@pytest.mark.parametrize("below", [True, False])
def test_memory_that_runs_out_in_a_cgroup_of_the_rank(
    start_job: StartJob, python: str, start: str, below: bool
) -> None:
    """The cgroup is below the agent's, or beside it."""
    with limited_memory(64 << 20, below=below) as group:
        script = f'{MOVES}{start}"$0" -c "$1"; exit $?'
        job = start_job("-np", "2", "--grace", "1", "-x", f"CGROUP={group}", "sh", "-c", script, python, HUNGRY)
        assert job.finish() == 137, job.text
    how = r"was killed by signal 9 \(SIGKILL\)" if start else "exited with code 137"
    why = r"because the memory of its machine or container was used up"
    assert re.search(rf"rank 1 on host \S+ \(pid \d+\) {how}, {why}", job.text), job.text


@pytest.mark.parametrize("whole_job", [True, False])
def test_memfd_refused_means_the_next_backend(python: str, programs: Path, whole_job: bool) -> None:
    """memfd_create fails in the launcher too, which passes the job's key on, or in the ranks only."""
    refuse = [python, str(programs / "without_call.py"), "memfd_create"]
    job = [launcher_path(), "-np", "2", "-x", "DISTRUN_LOG_LEVEL=info"]
    program = [python, str(programs / "faults.py"), "no_memfd"]
    command = [*refuse, *job, *program] if whole_job else [*job, *refuse, *program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    assert len(re.findall(r"sum 2$", done.stdout, re.MULTILINE)) == 2, text
    assert "cpu: tcp" in text, text
    warning = (
        r"distrun: rank 0 warning: the ranks of \S+ cannot share memory .*\(rank 0: the system refuses memfd_create"
    )
    assert len(re.findall(warning, text, re.MULTILINE)) == 1, text


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root to mount a small /dev/shm")
def test_tiny_dev_shm_does_not_matter(start_job: StartJob, python: str, programs: Path) -> None:
    script = 'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$0" "$@"'
    job = start_job(
        "-np", "2", "-x", "DISTRUN_LOG_LEVEL=info", "unshare", "-m", "sh", "-c", script, python,
        programs / "faults.py", "threads",
    )  # fmt: skip
    assert job.finish() == 0, job.text
    assert "cpu: shm" in job.text, job.text


def test_init_and_shutdown_100_times(faults) -> None:  # type: ignore[no-untyped-def]
    job = faults("again")
    assert job.finish(120) == 0, job.text
    assert job.text.count("again ok") == 2


def test_forked_child_gets_a_clear_error(faults) -> None:  # type: ignore[no-untyped-def]
    job = faults("forks")
    assert job.finish() == 0, job.text
    assert job.text.count("was forked from rank") == 2 and job.text.count("parent 2") == 2, job.text


def test_a_rank_that_loses_its_connection_to_the_launcher_is_named(faults) -> None:  # type: ignore[no-untyped-def]
    """All ranks and the launcher name the rank. No rank says that the launcher is gone."""
    job = faults("cut_off", size=3)
    assert job.finish() == 1, job.text
    named = r"raised [012] \w+ ranks=\[1\] .*rank 1 \(\S+\) has lost its connection"
    assert len(re.findall(named, "\n".join(job.out))) == 3, job.text
    assert re.search(r"distrun: rank 1 on host \S+ has lost its connection .* but runs on", job.text), job.text


@pytest.mark.parametrize("late", [(), ("-x", "LATE_HEAD=1")], ids=["", "seen at once"])
def test_a_killed_rank_that_takes_long_to_be_gone_is_the_cause(faults, late: tuple[str, ...]) -> None:  # type: ignore[no-untyped-def]
    """The other ranks end before it, with an exception that its death has caused."""
    job = faults("takes_long_to_be_gone", *late, size=3)
    assert job.finish() == 137, job.text
    assert re.search(r"rank 1 on host \S+ \(pid \d+\) was killed by signal 9", job.text), job.text
    assert "runs on" not in job.text, job.text


def test_a_shell_that_outlives_the_process_of_its_rank(start_job: StartJob, python: str) -> None:
    """The ranks share one host, so no message may blame the network."""
    program = "import os, distrun; distrun.init(); os._exit(0)"
    job = start_job("-np", "2", "--oversubscribe", "sh", "-c", f"{python} -c '{program}'; sleep 7")
    job.finish()
    ended = r"of rank (\d) .* has ended .* distrun started there \(pid (\d+)\) runs on: .* \(pid (\d+)\) has ended"
    named = re.findall(ended, "\n".join(job.err))
    assert {rank for rank, _, _ in named} == {"0", "1"}, job.text
    assert all(shell != below for _, shell, below in named) and "network" not in job.text, job.text


def test_claimant_of_a_taken_rank_is_refused(faults) -> None:  # type: ignore[no-untyped-def]
    job = faults("claims")
    assert job.finish() == 0, job.text
    [holder] = job.wait_lines(r"holder (\d+)")
    ended = r"claimant with the {} key ended with 1: .*{}"
    taken = rf"process {holder[1]} is rank 0 already, so process \d+ cannot be it too"
    assert re.search(ended.format("true", taken), job.text), job.text
    assert re.search(ended.format("wrong", "the other side belongs to another job"), job.text), job.text
    assert job.text.count("sum 2") == 2, job.text


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("bad_setting", ["", "1"])
def test_no_descriptor_leads_to_the_key_after_init(faults, size: int, bad_setting: str) -> None:  # type: ignore[no-untyped-def]
    job = faults("holds_no_key", "-x", f"BAD_SETTING={bad_setting}", size=size)
    assert job.finish() == 0, job.text
    assert job.text.count(f"sum {size}") == size, job.text
    assert job.text.count("refused ") == (size if bad_setting else 0), job.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
@pytest.mark.parametrize("size", [1, 2])
def test_another_user_reads_no_key_of_a_program_without_init(faults, size: int) -> None:  # type: ignore[no-untyped-def]
    job = faults("guest_asks", size=size)
    assert job.finish() == 0, job.text
    assert job.text.count("the guest has nothing") == size, job.text


@pytest.mark.parametrize("mimic", ["none", "openmpi", "slurm"])
def test_what_a_rank_starts_is_alone_in_the_ways_that_the_error_names(faults, mimic: str) -> None:  # type: ignore[no-untyped-def]
    job = faults("starts", "--mimic", mimic, "-x", f"LAUNCHER={launcher_path()}")
    assert job.finish() == 0, job.text
    bare = "DISTRUN_*, WORLD_SIZE, TF_CONFIG and JAX_NUM_PROCESSES"
    ways = f"`distrun --no-detect -np 1 program`, or without the variables {bare}"
    assert len(re.findall(rf"same of rank \d ended with 1: .*{re.escape(ways)}", job.text)) == 2, job.text
    assert len(re.findall(r"launched of rank \d ended with 0: of 1$", job.text, re.MULTILINE)) == 2, job.text
    if mimic == "none":
        assert len(re.findall(r"bare of rank \d ended with 0: of 1$", job.text, re.MULTILINE)) == 2, job.text


@pytest.mark.parametrize("backend", ["shm", "tcp"])
def test_16_threads_submit(faults, backend: str) -> None:  # type: ignore[no-untyped-def]
    job = faults("threads", "--backend", backend)
    assert job.finish(120) == 0, job.text
    assert job.text.count("threads ok") == 2


def test_strangers_on_every_port(faults, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """The job runs on, allocates no memory for the foreign connections, and reports them."""
    seen = tmp_path / "seen"
    job = faults("works", "--backend", "tcp", "-x", "DISTRUN_CONTROL=tcp", "-x", f"SEEN={seen}")
    processes = [*job.ranks(2).values(), job.process.pid, agent_of(job.process.pid)]
    ports = listening_ports(processes)
    assert ports, "nobody listens"
    before = {pid: memory(pid) for pid in processes}
    with strangers(ports):
        assert_no_memory_for(before)
        seen.touch()
        assert job.finish(120) == 0, job.text
    assert len(job.wait_lines(r"done \d")) == 2
    job.wait_lines(r"distrun: warning: refused a connection of 127\.0\.0\.1:\d+ to .* \(store\): ", errors=True)


def test_more_ranks_than_files_may_be_open() -> None:
    words = ("-np", "100", "--oversubscribe", "true")
    limited = ["sh", "-c", 'ulimit -n 80; exec "$@"', "sh", launcher_path(), *words]
    done = subprocess.run(limited, capture_output=True, text=True, timeout=60)
    assert done.returncode == 69, done.stderr
    assert (
        "a connection to each of 100 ranks" in done.stderr
        and "Raise the limit `ulimit -Hn`, which is 80" in done.stderr
    )


def test_strangers_at_agents_that_wait_for_another(start_job: StartJob, tmp_path: Path) -> None:
    """Each agent listens for the others' probes until all agents are there."""
    go = tmp_path / "go"
    carrier = f'sh -c "test {{host}} != n3 || until test -e {go}; do sleep 0.05; done; {{agent}}"'
    hosts = ("--network", "lo", "--launch-with", carrier, "-H", "n1:1,n2:1,n3:1")
    job = start_job("-x", "DISTRUN_LOG_LEVEL=info", *hosts, "sh", "-c", "echo done $RANK")
    deadline = time.monotonic() + 60
    while len(ports := listening_ports(marked_processes(job.marker))) < 3:  # of the head and of two agents
        assert time.monotonic() < deadline and job.process.poll() is None, job.text
        time.sleep(0.05)
    before = {pid: memory(pid) for pid in ports.values()}
    with strangers(ports):
        assert_no_memory_for(before)
        go.touch()
        assert job.finish() == 0, job.text
    assert len(job.wait_lines(r"done \d")) == 3


def test_a_crash_on_a_thread_of_ours_shows_where_python_was(faults) -> None:  # type: ignore[no-untyped-def]
    job = faults("crashes")
    assert job.finish() == 139, job.text
    assert "Fatal Python error: Segmentation fault" in job.text, job.text
    assert re.search(r"faults\.py.* in crashes", job.text), job.text
