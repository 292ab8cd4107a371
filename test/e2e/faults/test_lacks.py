"""A rank can have no more threads or descriptors. The others learn at once which rank this is, and what it lacks.

The rank lives on, so that they do not learn it from its end.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..conftest import Job, StartJob, needs_backend

REFUSED = r"refused (\d) ([\d.]+) (\w+): (.*)"
OPTIONS = ("-np", "3", "--oversubscribe")
# Waiting ranks check once a second. The rest is for an overloaded machine. Without the report they waited 300 s.
SOON = 30.0
NO_THREAD = r"Is the limit of processes reached \(ulimit -u, or pids.max of the container\)"
NO_FILE = r"Too many open files|more files. Raise the limit `ulimit -Hn`"


@pytest.fixture
def few_processes() -> Iterator[Path]:
    """A cgroup that can limit the number of processes and threads in it."""
    for mount in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup"):
        group = Path(mount) / f"distrun-test-{uuid.uuid4().hex}"
        try:
            group.mkdir()
        except OSError:
            continue
        if (group / "pids.max").exists():
            yield group
            group.rmdir()
            return
        group.rmdir()
    pytest.skip("needs a cgroup with pids.max")


def case(backend: str, when: str, more: int, what: str) -> object:
    marks = needs_backend(backend) if backend == "gloo" else ()
    return pytest.param(backend, when, more, what, marks=marks, id=f"{backend}-{when}-{more}")


def check(job: Job, what: str, limited: int = 1) -> None:
    refused = {int(match[1]): (float(match[2]), match[4]) for match in re.finditer(REFUSED, job.text)}
    assert set(refused) == {0, 1, 2}, job.text
    for rank, (seconds, why) in refused.items():
        assert seconds < SOON, job.text
        assert re.search(what, why), job.text
        assert rank == limited or re.search(rf"rank {limited}\b", why), job.text


@pytest.mark.parametrize(
    ("backend", "when", "more", "what"),
    [
        case("tcp", "init", 0, NO_THREAD),  # the thread of the engine
        case("gloo", "init", 2, NO_THREAD),  # the thread of the group
        case("gloo", "init", 3, NO_THREAD),  # a thread of Gloo's own
        case("gloo", "set", 0, NO_THREAD),
    ],
)
def test_a_rank_without_threads(
    start_job: StartJob, python: str, programs: Path, few_processes: Path, tmp_path: Path,
    backend: str, when: str, more: int, what: str,
) -> None:  # fmt: skip
    words = (programs / "lacks.py", tmp_path, 1, when, "threads", more, few_processes)
    job = start_job(*OPTIONS, "--backend", backend, python, *words)
    job.finish()
    check(job, what)


@pytest.mark.parametrize(
    ("backend", "when", "more", "what"),
    [
        case("tcp", "init", 3, NO_FILE),  # the first one after the channel to the launcher
        case("tcp", "init", 5, NO_FILE),  # for the control plane
        case("gloo", "init", 8, NO_FILE),  # for the group's thread
        case("gloo", "init", 10, NO_FILE),
        case("tcp", "set", 0, NO_FILE),
        case("gloo", "set", 0, NO_FILE),
    ],
)
def test_a_rank_without_descriptors(
    start_job: StartJob, python: str, programs: Path, tmp_path: Path, backend: str, when: str, more: int, what: str
) -> None:
    words = (programs / "lacks.py", tmp_path, 1, when, "files", more)
    job = start_job(*OPTIONS, "--backend", backend, python, *words)
    job.finish()
    check(job, what)


# The first rank accepts the connections of the others: on the control plane, for shared memory, and in the ring.
@pytest.mark.parametrize("more", [10, 12, 13])
def test_the_first_rank_without_descriptors_for_the_others(
    start_job: StartJob, python: str, programs: Path, tmp_path: Path, more: int
) -> None:
    words = (programs / "lacks.py", tmp_path, 0, "init", "files", more)
    job = start_job(*OPTIONS, "--backend", "tcp", python, *words)
    job.finish()
    check(job, NO_FILE, limited=0)


def test_a_rank_that_has_a_socket_to_the_launcher_and_nothing_else(
    start_job: StartJob, python: str, programs: Path, tmp_path: Path
) -> None:
    """The rank cannot use the store, so it sends the reason to the launcher, which ends the job."""
    job = start_job(*OPTIONS, "--grace", "1", python, programs / "lacks.py", tmp_path, 1, "init", "files", "1")
    assert job.finish() == 1, job.text
    assert re.search(r"rank 1 on host \S+ \(pid \d+\) failed: the launcher's channel cannot .*: Too many", job.text)


def test_a_rank_that_has_what_it_needs(
    start_job: StartJob, python: str, programs: Path, few_processes: Path, tmp_path: Path
) -> None:
    words = (programs / "lacks.py", tmp_path, 1, "init", "threads", "100", few_processes)
    job = start_job(*OPTIONS, python, *words)
    assert job.finish() == 0, job.text
    assert len(re.findall(r"went \d", job.text)) == 3, job.text
