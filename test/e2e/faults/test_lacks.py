"""A rank that has no more threads or descriptors: the others hear it at once, which rank, and what it lacks."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..conftest import StartJob, needs_backend

REFUSED = r"refused (\d) ([\d.]+) (\w+): (.*)"
BACKENDS = ["tcp", pytest.param("gloo", marks=needs_backend("gloo"))]
# Those that wait look once in a second; the rest is for a machine that is overloaded. Before, it was 300 s.
SOON = 30.0


@pytest.fixture
def few_processes() -> Iterator[Path]:
    """A cgroup in which so few processes and threads can be, as its file pids.max says."""
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


def told_by(job_text: str) -> dict[int, tuple[float, str]]:
    return {int(match[1]): (float(match[2]), match[4]) for match in re.finditer(REFUSED, job_text)}


def check(text: str, what: str) -> None:
    told = told_by(text)
    assert set(told) == {0, 1, 2}, text
    for rank, (seconds, why) in told.items():
        assert seconds < SOON, text
        assert re.search(what, why), text
        assert rank == 1 or re.search(r"rank 1\b", why), text


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("when", ["init", "set"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_rank_without_threads(
    start_job: StartJob, python: str, programs: Path, few_processes: Path, tmp_path: Path, backend: str, when: str,
    most: int,
) -> None:  # fmt: skip
    """It lives on, so that its end tells the others nothing."""
    (few_processes / "pids.max").write_text(str(most))
    options = ("-np", "3", "--oversubscribe", "--backend", backend)
    job = start_job(*options, python, programs / "lacks.py", tmp_path, when, "threads", few_processes)
    job.finish()
    if "refused" not in job.text:
        assert len(re.findall(r"went \d", job.text)) == 3, job.text  # it needs no more than that
        return
    check(job.text, "ulimit -u, or pids.max")


@pytest.mark.parametrize("more", [0, 3])
@pytest.mark.parametrize("when", ["set"])  # in init() such a rank may not even reach the launcher
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_rank_without_descriptors(
    start_job: StartJob, python: str, programs: Path, tmp_path: Path, backend: str, when: str, more: int
) -> None:
    options = ("-np", "3", "--oversubscribe", "--backend", backend)
    job = start_job(*options, python, programs / "lacks.py", tmp_path, when, "files", str(more))
    job.finish()
    if "refused" not in job.text:
        assert len(re.findall(r"went \d", job.text)) == 3, job.text
        return
    check(job.text, "open files|ulimit -n|descriptors")


def test_the_limits_are_those_of_rank_1_alone(
    start_job: StartJob, python: str, programs: Path, few_processes: Path, tmp_path: Path
) -> None:
    (few_processes / "pids.max").write_text("100")
    words = (programs / "lacks.py", tmp_path, "init", "threads", few_processes)
    job = start_job("-np", "3", "--oversubscribe", python, *words)
    assert job.finish() == 0, job.text
    assert len(re.findall(r"went \d", job.text)) == 3, job.text
