"""--report FILE: how a job ended, for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ..conftest import StartJob
from .test_command import run, shell


def read(path: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(path.read_text())
    assert report["format"] == 1
    assert sorted(path.parent.iterdir()) == [path]  # nothing is left beside it
    return report


def test_a_good_job_has_no_cause(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("an older one")
    assert shell("-np", "2", "--report", str(path), script="echo fine").returncode == 0
    report = read(path)
    assert report["exit_code"] == 0 and report["cause"] is None and report["rank"] is None, report
    assert report["followers"] == [] and report["last_lines"] == [], report


def test_an_exception_in_a_rank(start_job: StartJob, python: str, programs: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    job = start_job("-np", "3", "--oversubscribe", "--report", str(path), python, programs / "faults.py", "raises")
    assert job.finish() == 1
    report = read(path)
    assert report["exit_code"] == 1 and report["rank"] == 1 and report["pid"] > 0, report
    assert report["cause"]["kind"] == "raised" and report["cause"]["signal"] is None, report
    assert "the data of rank 1 is broken" in report["cause"]["text"], report
    program = programs / "faults.py"
    place = report["place"]
    assert "raise ValueError" in program.read_text().splitlines()[place["line"] - 1], report
    assert Path(place["file"]) == program and f"(faults.py:{place['line']})" in report["cause"]["text"], report
    assert report["tensor"] is None, report
    assert any("the data of rank 1 is broken" in line for line in report["last_lines"]), report
    assert {one["rank"] for one in report["followers"]} == {0, 2}, report
    assert all("RankLost" in one["last_line"] for one in report["followers"] if not one["ended_by_distrun"]), report


MISMATCH = """
import numpy as np
import distrun.numpy as hvd

hvd.init()
hvd.allreduce(np.ones(3 + hvd.rank(), np.float32), name="grad")
"""
ABSENT = """
import os
import time
import numpy as np
import distrun.numpy as hvd

hvd.init()
if hvd.rank() == 1:
    time.sleep(60 if os.environ.get("STALLS") else 0)
else:
    hvd.allreduce(np.ones(3, np.float32), name="grad")
"""


@pytest.mark.parametrize(
    ("program", "variables", "kind", "line"),
    [
        (MISMATCH, {}, "raised", 6),
        (ABSENT, {}, "left_early", None),
        (ABSENT, {"STALLS": "1", "DISTRUN_STALL_SHUTDOWN_TIME": "1"}, "stalled", None),
    ],
    ids=["mismatch", "early leave", "stall"],
)
def test_an_operation_that_fails_names_its_tensor(
    start_job: StartJob,
    python: str,
    tmp_path: Path,
    program: str,
    variables: dict[str, str],
    kind: str,
    line: int | None,
) -> None:
    file, path = tmp_path / "train.py", tmp_path / "report/report.json"
    file.write_text(program)
    path.parent.mkdir()
    sent = [word for name in variables for word in ("-x", name)]
    job = start_job("-np", "2", "--oversubscribe", "--grace", "2", "--report", path, *sent, python, file, env=variables)
    assert job.finish() != 0, job.text
    report = read(path)
    assert report["cause"]["kind"] == kind and report["tensor"] == "allreduce.grad", report
    assert report["place"] == (None if line is None else {"file": str(file), "line": line}), report
    assert report["rank"] in ([0, 1] if kind == "raised" else [1]), report


def test_a_killed_rank(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    script = 'if [ "$RANK" = 1 ]; then echo last words; kill -KILL $$; fi; exec sleep 60'
    done = shell("-np", "2", "--report", "report.json", script=script, cwd=tmp_path)
    assert done.returncode == 137, done.stderr
    report = read(path)
    assert report["exit_code"] == 137 and report["rank"] == 1, report
    assert report["cause"]["kind"] == "killed" and report["cause"]["signal"] == 9, report
    assert report["cause"]["signal_name"] == "SIGKILL" and report["cause"]["exit_code"] is None, report
    assert f"rank 1 on host {report['host']} (pid {report['pid']}) was {report['cause']['text']}.\n" in done.stderr
    assert report["last_lines"] == ["last words"], report
    (other,) = report["followers"]
    assert other["rank"] == 0 and other["ended_by_distrun"] and other["cause"]["signal"] == 15, report


@pytest.mark.parametrize(
    ("arguments", "code", "kind"),
    [
        (["-np", "2", "no-such-program"], 127, "not_started"),
        (["-np", "1", "--timeout", "0.2", "sleep", "60"], 124, "timed_out"),
        (["-np", "3", "-H", "localhost:2", "true"], 69, "not_started"),
        (["-np", "1", "--agents", "1", "--listen", "127.0.0.1:0", "--timeout", "0.2", "true"], 124, "timed_out"),
    ],
)
def test_a_job_that_no_rank_ended(tmp_path: Path, arguments: list[str], code: int, kind: str) -> None:
    path, keys = tmp_path / "reports/report.json", tmp_path / "key"
    path.parent.mkdir()
    keys.write_bytes(bytes(range(32)))
    keys.chmod(0o600)
    key = ["--key-file", str(keys)] if "--agents" in arguments else []
    done = run("--report", str(path), *key, *arguments)
    assert done.returncode == code, done.stderr
    report = read(path)
    assert report["exit_code"] == code and report["rank"] is None, report
    assert report["cause"]["kind"] == kind, report
    if kind == "not_started":
        assert report["cause"]["text"] in done.stderr, report


def test_a_usage_error_does_not_write(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    assert run("-np", "x", "--report", str(path), "true").returncode == 64
    assert run("-np", "1", "--ssh-identity", "/no/key", "--report", str(path), "true").returncode == 64
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_cannot_be_a_report_is_refused(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    for path, text in [
        (tmp_path, "it is a folder; name a file in it"),
        ("/dev/null", "it is a device, a pipe or a socket; name a file"),
        (tmp_path / "none" / "report.json", "none: No such file or directory"),
    ]:
        done = run("-np", "1", "--report", str(path), "touch", str(marker))
        assert done.returncode == 64 and f"--report {path}" in done.stderr and text in done.stderr, done.stderr
    assert not marker.exists()


def test_a_report_that_cannot_be_written_is_output_that_is_lost(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    for script, code in [("rm -r folder", 74), ("rm -r folder; exit 3", 3)]:
        folder.mkdir()
        done = shell("-np", "1", "--report", "folder/report.json", script=script, cwd=tmp_path)
        assert done.returncode == code, done.stderr
        assert "distrun: cannot write the file of --report: folder/report.json" in done.stderr, done.stderr
