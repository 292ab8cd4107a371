"""Agents that another program starts: `distrun --agents N` and `distrun agent --connect`."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ..conftest import MARKER, end_marked, launcher_path
from ..strangers import assert_no_memory_for, memory, strangers

StartAgent = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.touch(mode=0o600)
    path.write_bytes(bytes(range(32)))
    return path


STARTED: list[subprocess.Popen[str]] = []  # by the current test


@pytest.fixture(autouse=True)
def nothing_stays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ends heads, agents and ranks with the test, whatever its result."""
    marker = uuid.uuid4().hex
    monkeypatch.setenv(MARKER, marker)
    yield
    end_marked(marker, STARTED)
    STARTED.clear()


class Head:
    """A head that waits for its agents at `address`."""

    def __init__(self, *arguments: str, output: int = subprocess.PIPE) -> None:
        # In its own process group, as in a shell with job control. Otherwise the kernel ignores SIGTSTP.
        self.process = subprocess.Popen(
            [launcher_path(), *arguments], stdout=output, stderr=subprocess.PIPE, text=True, preexec_fn=os.setpgrp
        )
        STARTED.append(self.process)
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        found = re.search(r"waiting for \d+ agents? at \S*:(\d+)", line)
        assert found, line
        self.address = f"127.0.0.1:{found[1]}"


@pytest.fixture
def start() -> StartAgent:
    def run(*arguments: str) -> subprocess.Popen[str]:
        STARTED.append(
            subprocess.Popen([launcher_path(), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        return STARTED[-1]

    return run


def agent(start: StartAgent, head: Head, key: Path, host: str) -> subprocess.Popen[str]:
    return start("agent", "--connect", head.address, "--key-file", str(key), "--host", host)


def test_the_job_starts_when_all_agents_have_come(start: StartAgent, key: Path) -> None:
    script = "echo $DISTRUN_RANK of $DISTRUN_SIZE on $DISTRUN_HOST"
    head = Head("-np", "4", "--agents", "2", "--listen", "127.0.0.1:0", "--key-file", str(key), "sh", "-c", script)
    second = agent(start, head, key, "n10")
    time.sleep(0.2)
    assert head.process.poll() is None
    first = agent(start, head, key, "n2")
    output, errors = head.process.communicate(timeout=30)
    assert head.process.returncode == 0, errors
    lines = sorted(line.split("] ")[1] for line in output.splitlines())
    assert lines == ["0 of 4 on n2", "1 of 4 on n2", "2 of 4 on n10", "3 of 4 on n10"]
    assert first.wait(30) == 0
    assert second.wait(30) == 0


def test_ranks_are_shared_out_evenly_and_every_agent_has_some(start: StartAgent, key: Path) -> None:
    listen = ["--listen", "127.0.0.1:0", "--key-file", str(key)]
    head = Head("-np", "4", "--agents", "3", *listen, "sh", "-c", "echo $DISTRUN_RANK on $DISTRUN_HOST")
    agents = [agent(start, head, key, host) for host in ("n1", "n2", "n3")]
    output, errors = head.process.communicate(timeout=30)
    assert head.process.returncode == 0, errors
    assert sorted(line.split("] ")[1] for line in output.splitlines()) == ["0 on n1", "1 on n1", "2 on n2", "3 on n3"]
    assert [each.wait(30) for each in agents] == [0, 0, 0]
    for words in (["-np", "2"], ["-np", "4", "--nproc-per-node", "2"]):
        refused = start(*words, "--agents", "3", *listen, "true")
        _, errors = refused.communicate(timeout=30)
        assert refused.returncode == 64 and "use --agents 2, or more ranks" in errors


def test_without_a_number_there_is_a_rank_for_each_slot(start: StartAgent, key: Path) -> None:
    """As with -H. One rank per agent would leave GPUs and cores idle."""
    named = start("-H", "localhost", "--tag", "none", "sh", "-c", "echo rank")
    slots = named.communicate(timeout=60)[0].count("rank")
    words = ["--listen", "127.0.0.1:0", "--key-file", str(key), "--network", "lo", "--tag", "none", "sh", "-c"]
    head = Head("--agents", "2", *words, "echo $DISTRUN_HOST of $WORLD_SIZE")
    agents = [agent(start, head, key, host) for host in ("n1", "n2")]
    output, errors = head.process.communicate(timeout=60)
    assert head.process.returncode == 0, errors
    assert sorted(output.splitlines()) == [f"{host} of {2 * slots}" for host in ("n1", "n2") for _ in range(slots)]
    assert [each.wait(30) for each in agents] == [0, 0]


def test_strangers_where_agents_are_to_come(start: StartAgent, key: Path) -> None:
    """The head turns the connections away and allocates no memory for them. The agents can still connect."""
    head = Head("-np", "2", "--agents", "2", "--listen", "127.0.0.1:0", "--key-file", str(key), "true")
    first = agent(start, head, key, "n1")
    before = {head.process.pid: memory(head.process.pid)}
    with strangers([int(head.address.rpartition(":")[2])]):
        assert head.process.poll() is None
        assert_no_memory_for(before)
        second = agent(start, head, key, "n2")
        _, errors = head.process.communicate(timeout=30)
    assert head.process.returncode == 0, errors
    assert re.search(r"refused a connection of 127\.0\.0\.1:\d+ to 127\.0\.0\.1:\d+", errors), errors
    assert [first.wait(30), second.wait(30)] == [0, 0]


def test_an_agent_may_come_before_its_head(start: StartAgent, key: Path) -> None:
    # The bound port is given to no other process. It does not listen, so a head with SO_REUSEADDR may use it.
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        address = f"127.0.0.1:{held.getsockname()[1]}"
        early = start("agent", "--connect", address, "--key-file", str(key), "--host", "h")
        time.sleep(0.7)
        head = Head("-np", "1", "--agents", "1", "--listen", address, "--key-file", str(key), "true")
        assert head.process.wait(30) == 0
        assert early.wait(30) == 0


def test_an_agent_needs_no_standard_input(key: Path) -> None:
    """`ssh -n host distrun agent --connect ...` gives a standard input that is at its end from the start."""
    arguments = ["agent", "--connect", "127.0.0.1:1", "--key-file", str(key), "--timeout", "3"]
    with subprocess.Popen([launcher_path(), *arguments], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as early:
        assert early.stdin is not None
        early.stdin.close()
        assert early.wait(20) == 69


def wait_until(happened: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_sigterm_ends_an_agent_that_looks_for_its_head(start: StartAgent, key: Path) -> None:
    early = start("agent", "--connect", "127.0.0.1:1", "--key-file", str(key), "--timeout", "60")
    children = ["pgrep", "-P", str(early.pid)]
    wait_until(lambda: subprocess.run(children, capture_output=True).returncode == 0)
    early.terminate()
    assert early.wait(10) == 128 + signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_what_is_typed_at_an_agent_ends_its_ranks_in_good_order(start: StartAgent, key: Path, number: int) -> None:
    """After Ctrl-C, or if the terminal is closed, all processes of the command get the signal."""
    script = "trap 'sleep 0.5; echo saved; exit 3' TERM; echo up; while :; do sleep 0.1; done"
    head = Head("-np", "1", "--agents", "1", "--listen", "127.0.0.1:0", "--key-file", str(key), "sh", "-c", script)
    alone = agent(start, head, key, "n1")
    assert head.process.stdout is not None and head.process.stdout.readline() == "[0] up\n"
    [child] = subprocess.run(["pgrep", "-P", str(alone.pid)], capture_output=True, text=True).stdout.split()
    for pid in (alone.pid, int(child)):
        os.kill(pid, number)
    output, errors = head.process.communicate(timeout=30)
    assert output == "[0] saved\n" and head.process.returncode == 3, errors
    assert alone.wait(30) == 3


@pytest.mark.parametrize("name", ["USR1", "TERM"])
def test_a_notice_at_the_process_that_was_started(
    start: StartAgent, key: Path, python: str, programs: Path, name: str
) -> None:
    """The first process of a pod gets the notice in this way. The ranks stop at the same step."""
    command = ["-np", "2", "--agents", "1", "--listen", "127.0.0.1:0", "--key-file", str(key), "--preempt-signal", name]
    head = Head(*command, python, str(programs / "steps.py"), "0.01")
    alone = agent(start, head, key, "n1")
    assert head.process.stdout is not None
    for _ in range(2):
        assert "ready" in head.process.stdout.readline()
    alone.send_signal(signal.Signals[f"SIG{name}"])
    output, errors = head.process.communicate(timeout=30)
    assert (head.process.returncode, alone.wait(30)) == (0, 0), errors
    assert f"the agent on host n1 got SIG{name}: all ranks are to stop" in errors and output.count("stopped") == 2


def test_sigterm_ends_an_agent_that_waits_for_the_others(start: StartAgent, key: Path) -> None:
    """A pod that is deleted gets SIGTERM. The agent of its replacement can connect."""
    head = Head("-np", "2", "--agents", "2", "--listen", "127.0.0.1:0", "--key-file", str(key), "true")
    twins = [agent(start, head, key, "n1") for _ in range(2)]
    # the head turns one away, because the other is there
    wait_until(lambda: any(each.poll() is not None for each in twins))
    [first] = [each for each in twins if each.poll() is None]
    first.terminate()
    assert first.wait(10) == 128 + signal.SIGTERM
    others = [agent(start, head, key, host) for host in ("n2", "n1")]
    _, errors = head.process.communicate(timeout=30)
    assert head.process.returncode == 0, errors
    assert [each.wait(10) for each in others] == [0, 0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_head_that_waits_for_agents(key: Path, number: int) -> None:
    """The head must handle the signal itself, because the first process of a container gets no others."""
    head = Head("-np", "2", "--agents", "2", "--listen", "127.0.0.1:0", "--key-file", str(key), "true")
    blocked = re.compile(r"SigBlk:\s*(\w+)")
    status = Path(f"/proc/{head.process.pid}/status")
    wait_until(lambda: bool(int(blocked.findall(status.read_text())[0], 16) >> (number - 1) & 1))
    head.process.send_signal(number)
    _, errors = head.process.communicate(timeout=30)
    assert head.process.returncode == 128 + number, errors
    assert f"got {signal.Signals(number).name}; 0 of 2 agents have connected" in errors, errors


def test_ranks_die_with_the_agent_that_was_killed_and_the_job_says_so(start: StartAgent, key: Path) -> None:
    seconds = f"1000.{os.getpid()}"  # this duration finds the processes of this test
    ranks = ["pgrep", "-f", f"^sleep {seconds}$"]
    head = Head("-np", "2", "--agents", "2", "--listen", "127.0.0.1:0", "--key-file", str(key), "sleep", seconds)
    agents = [agent(start, head, key, name) for name in ("n1", "n2")]
    children = ["pgrep", "-P", str(agents[1].pid)]
    wait_until(lambda: subprocess.run(ranks, capture_output=True).stdout.count(b"\n") == 2, 60)
    agent_below_guard = int(subprocess.run(children, capture_output=True, text=True).stdout.split()[0])
    subprocess.run(["kill", "-9", str(agent_below_guard)], check=True)
    _, errors = head.process.communicate(timeout=30)
    assert head.process.returncode == 75, errors
    assert "host n2 is lost" in errors
    assert agents[0].wait(30) == 128 + signal.SIGTERM
    assert agents[1].wait(30) == 128 + signal.SIGKILL
    assert subprocess.run(ranks, capture_output=True).returncode == 1


@pytest.mark.parametrize(("ends", "code"), [("exit 7", 7), ("kill -9 $$", 137)])
def test_an_agent_tells_by_its_code_that_its_rank_failed(start: StartAgent, key: Path, ends: str, code: int) -> None:
    script = f"[ $DISTRUN_RANK = 1 ] || sleep 1000; {ends}"
    head = Head("-np", "2", "--agents", "2", "--listen", "127.0.0.1:0", "--key-file", str(key), "sh", "-c", script)
    agents = [agent(start, head, key, name) for name in ("n1", "n2")]
    _, errors = head.process.communicate(timeout=30)
    assert head.process.returncode == code, errors
    assert [each.wait(30) for each in agents] == [128 + signal.SIGTERM, code]


def test_a_head_that_is_stopped_for_long_finds_its_ranks(start: StartAgent, key: Path, tmp_path: Path) -> None:
    """Ctrl-Z, while more output arrives than the connection holds. With setsid the writer is not stopped itself."""
    writes = f"until [ -e {tmp_path}/go ]; do sleep 0.1; done; yes $(seq -s, 99) | head -c 500000"
    script = f"echo ready >&2; exec setsid --wait sh -c '{writes}'"
    head = Head("-np", "8", "--agents", "1", "--listen", "127.0.0.1:0", "--key-file", str(key), "sh", "-c", script,
                output=subprocess.DEVNULL)  # fmt: skip
    alone = agent(start, head, key, "n1")
    assert head.process.stderr is not None
    while "ready" not in head.process.stderr.readline():
        pass
    head.process.send_signal(signal.SIGTSTP)
    wait_until(lambda: Path(f"/proc/{head.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    (tmp_path / "go").touch()
    time.sleep(8)
    assert alone.poll() is None
    head.process.send_signal(signal.SIGCONT)
    _, errors = head.process.communicate(timeout=30)
    assert (head.process.returncode, alone.wait(30)) == (0, 0), errors


def test_an_agent_tells_by_its_code_that_its_head_was_lost(start: StartAgent, key: Path) -> None:
    script = "echo started; exec sleep 1000"
    head = Head("-np", "1", "--agents", "1", "--listen", "127.0.0.1:0", "--key-file", str(key), "sh", "-c", script)
    alone = agent(start, head, key, "n1")
    assert head.process.stdout is not None and head.process.stdout.readline() == "[0] started\n"
    head.process.kill()
    assert alone.wait(30) == 75
    head.process.communicate()


def test_an_agent_tells_by_its_code_that_the_job_was_refused(start: StartAgent, key: Path) -> None:
    head = Head("-np", "1", "--agents", "1", "--listen", "127.0.0.1:0", "--key-file", str(key), "no-such-program")
    assert agent(start, head, key, "n1").wait(30) == 127
    assert head.process.wait(30) == 127
    head.process.communicate()


def test_who_has_not_the_key_is_turned_away(start: StartAgent, key: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.touch(mode=0o600)
    wrong.write_bytes(b"k" * 32)
    head = Head("-np", "1", "--agents", "1", "--listen", "127.0.0.1:0", "--key-file", str(key), "true")
    stranger = agent(start, head, wrong, "h")
    assert stranger.wait(30) == 69
    assert head.process.poll() is None
    agent(start, head, key, "h")
    _, errors = head.process.communicate(timeout=30)
    assert head.process.returncode == 0, errors
    assert re.search(r"refused a connection of 127\.0\.0\.1:\d+ to .*key", errors), errors


def test_both_sides_say_that_an_agent_was_turned_away(start: StartAgent, key: Path) -> None:
    head = Head("-np", "2", "--agents", "2", "--listen", "127.0.0.1:0", "--key-file", str(key), "true")
    twins = [agent(start, head, key, "n1") for _ in range(2)]
    wait_until(lambda: any(each.poll() is not None for each in twins))
    [second] = [each for each in twins if each.poll() is not None]
    assert second.returncode == 69
    assert "an agent of host n1 is here already; give each its own --host NAME" in second.communicate()[1]
    agent(start, head, key, "n2")
    _, errors = head.process.communicate(timeout=30)
    assert head.process.returncode == 0, errors
    assert "turned away agent:n1: an agent of host n1 is here already" in errors, errors


def test_a_head_waits_for_its_agents_for_start_timeout(start: StartAgent, key: Path) -> None:
    words = ["-np", "3", "--agents", "3", "--start-timeout", "3", "--listen", "127.0.0.1:0", "--key-file", str(key)]
    head = Head(*words, "true")
    agents = [agent(start, head, key, name) for name in ("n1", "n2")]
    _, errors = head.process.communicate(timeout=30)
    assert head.process.returncode == 69, errors
    assert "not all agents came within 3 s (--start-timeout): " in errors, errors
    assert re.search(r"2 of 3 agents have connected: n1, n2; 1 is missing\. Start distrun agent --connect", errors), (
        errors
    )
    assert [each.wait(30) for each in agents] == [69, 69]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["agent", "--connect", "h:1", "--key-file", "KEY", "--host", "a b"], 64, "' ' cannot be part of a host name"),
        (["agent", "--connect", "h:1", "--key-file", "KEY", "--host", "-o"], 64, "cannot start with '-'"),
        (["-np", "1", "--agents", "1", "true"], 64, "--key-file"),
        (["-np", "1", "--agents", "1", "--key-file", "KEY", "--timeout", "0.5", "true"], 124, "0 of 1 agent"),
        (["-np", "1", "--agents", "1", "--key-file", "KEY", "--env-file", "/no/such/file", "true"], 64, "--env-file"),
        (["-np", "1", "--agents", "1", "--key-file", "/does/not/exist", "true"], 69, "--key-file=/does/not/exist"),
        (["-np", "6", "--agents", "2", "--nproc-per-node", "2", "--key-file", "KEY", "true"], 64, "use --agents 3"),
        (["-np", "1", "--listen", "7000", "true"], 64, "--listen is only for agents that connect by themselves"),
        (["-np", "1", "--key-file", "k", "true"], 64, "--key-file is only for agents that connect by themselves"),
        (["-np", "1", "--agents", "x", "--key-file", "k", "true"], 64, "--agents x"),
        (["agent", "--connect", "h:1", "--nonsense", "1"], 64, "--nonsense"),
        (["agent", "--key-file", "k"], 64, "--connect HEAD:PORT is missing"),
        (["agent", "--connect", "127.0.0.1:1"], 64, "--key-file FILE is missing"),
        (["agent", "--connect", "127.0.0.1:1", "--key-file", "/does/not/exist"], 69, "--key-file=/does/not/exist"),
    ],
)
def test_refusals(key: Path, arguments: list[str], code: int, text: str) -> None:
    words = [str(key) if word == "KEY" else word for word in arguments]
    done = subprocess.run([launcher_path(), *words], capture_output=True, text=True, timeout=30)
    assert done.returncode == code, done.stderr
    assert text in done.stderr


def test_an_agent_that_a_person_starts_says_what_starts_it() -> None:
    done = subprocess.run(
        [launcher_path(), "agent"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr.startswith("distrun: distrun starts this agent itself") and done.stderr.count("\n") == 1
