"""--explain: the plan of a job that is not started."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from ..conftest import launcher_path


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([launcher_path(), *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_explain_starts_nothing(tmp_path: Path) -> None:
    done = run("--explain=json", "-np", "4", "-H", "localhost:4", "touch", f"{tmp_path}/started")
    plan = json.loads(done.stdout)
    assert [rank["environment"]["RANK"] for rank in plan["ranks"]] == ["0", "1", "2", "3"]
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif("." in os.uname().nodename, reason="this machine's own name is a full one")
def test_explain_says_that_a_full_name_leads_to_another_machine() -> None:
    name = f"{os.uname().nodename}.of.another.invalid"
    done = run("--explain", "-H", f"{name}:1", "true")
    assert f"{name} is not an address of this machine, so distrun takes it for another host" in done.stdout, done


def test_explain_says_only_what_it_knows() -> None:
    """It asks no other host, so it does not know their cores and GPUs."""
    plan = json.loads(run("--explain=json", "-np", "3", "-H", "localhost:1,other:2", "true").stdout)
    here, there, _ = plan["ranks"]
    assert here["threads"] >= 1 and "this host" in here["why"]["gpu"], plan
    assert there["threads"] is None and there["environment"]["OMP_NUM_THREADS"] == "<cores / ranks>", plan
    text = run("--explain", "-np", "3", "-H", "localhost:1,other:2", "true").stdout
    assert "  2     other      1      ?     ?        ?\n" in text, text
    assert "ranks 1-2, cores and GPU: not known, because the host is asked when the job starts" in text, text
    needs = run("--explain", "--gpus-per-rank", "4", "-np", "2", "-H", "other:2", "true")
    assert needs.returncode == 0, needs.stderr


@pytest.mark.parametrize("more", [(), ("-x", "A=1", "-x", "B=2", "--tf-roles", "chief=1,worker=60,ps=3")])
def test_explain_has_at_most_40_lines(more: tuple[str, ...]) -> None:
    hosts = ",".join(f"h{host}:{host % 8 + 1}" for host in range(1, 17))
    text = run("--explain", "-np", "64", "-H", hosts, *more, "true").stdout
    assert len(text.splitlines()) <= 40 and "Environment that differs" in text, text


def test_explain_says_at_the_top_that_the_job_could_not_start() -> None:
    lines = run("--explain", "-np", "2", "no_such.py").stdout.splitlines()
    assert lines[2].startswith("The job could not start: script no_such.py on host localhost: "), lines
    lines = run("--explain", "-np", "2", "-H", "other:2", "no_such.py").stdout.splitlines()
    assert lines[2].startswith("On this machine the job could not start: script no_such.py on host "), lines


def test_explain_shows_what_was_given(tmp_path: Path) -> None:
    """Variables from -x, a file, a flag and the config file, unless ranks set them themselves or inherit them."""
    (tmp_path / "env").write_text("OF_FILE=f\nINHERITED\n")
    (tmp_path / "config").write_text("log-level = info\n")
    options = ["-x", "GIVEN=g", "-x", "RANK=7", "-x", "INHERITED", "--env-file", str(tmp_path / "env"),
               "--backend", "tcp", "--config", str(tmp_path / "config")]  # fmt: skip
    environment = {**os.environ, "INHERITED": "i"}
    environment.pop("DISTRUN_LOG_LEVEL", None)

    def explain(how: str) -> str:
        command = [launcher_path(), how, "-np", "2", *options, "true"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout

    expected = {
        "GIVEN": ("g", "-x"),
        "OF_FILE": ("f", "--env-file"),
        "DISTRUN_BACKEND": ("tcp", "flag"),
        "DISTRUN_LOG_LEVEL": ("info", "config file"),
    }
    common = explain("--explain").partition("Environment of all ranks")[2].partition("\n\n")[0].splitlines()
    for rank in json.loads(explain("--explain=json"))["ranks"]:
        for name, (value, why) in expected.items():
            assert (rank["environment"].get(name), rank["why"]["environment"].get(name)) == (value, why)
            assert f"  {name}={value}    {why}" in common
        assert rank["environment"]["RANK"] == str(rank["rank"]) and "INHERITED" not in rank["environment"]


def test_explain_in_json_is_utf_8_whatever_it_shows() -> None:
    values = [b"caf\xe9", 'caf\u00e9 \U0001f600 \\ " \x7f\t'.encode(), b"\xed\xa0\x80\xc0\xaf\xf5", b"\xe2\x82"]
    for value in values:
        command = [launcher_path(), "--explain=json", "-np", "1", "-x", b"TITLE=" + value, "true"]
        done = subprocess.run(command, capture_output=True, timeout=60, check=True)
        [rank] = json.loads(done.stdout.decode())["ranks"]
        assert rank["environment"]["TITLE"].encode(errors="surrogateescape") == value
