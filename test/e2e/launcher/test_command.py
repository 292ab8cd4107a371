"""The command with small programs as ranks: exit codes, environment, output, and that nothing is left."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ..conftest import StartJob, agent_of, launcher_path

Completed = subprocess.CompletedProcess[str]


def run(*arguments: str, stdin: str = "", env: dict[str, str] | None = None, cwd: Path | None = None) -> Completed:
    return subprocess.run(
        [launcher_path(), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **(env or {})},
        cwd=cwd,
    )


def shell(*options: str, script: str, **more: object) -> Completed:
    return run(*options, "sh", "-c", script, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["-np", "0", "true"], 64, "-np 0: '0' is not a number of ranks"),
        (["-np", "x", "true"], 64, "'x' is not a number of ranks"),
        (["-np", "2", "-H", "localhost:x", "true"], 64, "column 11"),
        (["-np", "2"], 64, "no program is given"),
        (["--insecure", "true"], 64, "not an option of distrun: leave it out. distrun always authenticates"),
        (["--nope", "true"], 64, "--nope is not an option"),
        (["-np", "6", "-H", "localhost:4", "true"], 69, "--oversubscribe"),
        (["-np", "2", "-H", "nowhere.invalid:2", "true"], 69, "check the name"),
        (["-np", "2", "no-such-program"], 127, "no-such-program was not found"),
        (["-np", "2", "./no/such.py"], 127, "no/such.py"),
        (["-np", "2", "-m", "no_such_module"], 127, "module no_such_module is not installed for"),
        (["-np", "2", sys.executable, "-B", "-m", "json.nothing"], 127, "module json.nothing is not installed for"),
        (["-np", "1", "--ssh-identity", "/no/key", "true"], 64, "--ssh-identity /no/key: No such file or directory"),
        (
            ["check", "-H", "localhost:1", "word"],
            64,
            "distrun: word is not an option of distrun check. A check runs no program",
        ),
        (["check", "-H", "localhost:1", "-m", "word"], 64, "distrun: -m is not an option of distrun check"),
        (["check", "-H", "h1,h2", "--nproc-per-node", "2"], 64, "distrun: leave out --nproc-per-node: a check"),
        (["check", "word"], 64, "distrun: word is not an option of distrun check. Type distrun check --help"),
        (["check", "--jsno"], 64, "distrun: --jsno is not an option of distrun check; did you mean --json?"),
        (
            ["check", "-H", "localhost:1", "--jsno"],
            64,
            "distrun: --jsno is not an option of distrun check; did you mean --json?",
        ),
        (["agent", "--conect", "h:1"], 64, "--conect is not an option of distrun agent; did you mean --connect?"),
        (["agent", "--key_file"], 64, "distrun: --key-file needs a value"),
        (["–np", "2", "true"], 64, "The text has the character U+2013 (en dash)"),  # noqa: RUF001
        (["-np", "1", "/no/a\u2011b"], 127, "The text has the character U+2011 (non-breaking hyphen)"),
        (["check", "--ssh-port", "22"], 64, "distrun: --ssh-port needs hosts: give -H, --hostfile or --config"),
        (["-np", "3", "--tf-roles", "ps=1,worker=2", "true"], 64, "If your program runs in every role"),
        (["-np", "2", "--tf-own-servers", "true"], 64, "--tf-own-servers needs --tf-roles"),
        (["-np", "2", "--tf-roles", "worker=2", "--tf-own-servers", "true"], 64, "needs a ps in --tf-roles"),
        (["-np", "2", "/etc/passwd"], 126, "is not executable"),
        (["-np", "2", "--timeout", "0.3", "--grace", "1", "sleep", "60"], 124, "--timeout"),
    ],
)
def test_refusals_and_their_codes(arguments: list[str], code: int, text: str) -> None:
    done = run(*arguments)
    assert done.returncode == code, done.stderr
    assert text in done.stderr


def test_a_program_with_servers_of_its_own_runs_in_every_role_and_its_ps_ends_with_the_workers(tmp_path: Path) -> None:
    role = """case $TF_CONFIG in
        *'"type": "ps"'*) trap 'sleep 0.3; echo saved; exit 1' TERM; : > up; while :; do sleep 0.05; done;;
        *) until [ -e up ]; do sleep 0.05; done; echo trains;;
    esac"""
    done = shell("-np", "3", "--tf-roles", "ps=1,worker=2", "--tf-own-servers", script=role, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] saved", "[1] trains", "[2] trains"]


def test_a_server_of_the_program_that_does_not_end_is_killed_after_the_grace_period(tmp_path: Path) -> None:
    role = """case $TF_CONFIG in
        *'"type": "ps"'*) trap '' TERM; : > up; while :; do sleep 0.05; done;;
        *) until [ -e up ]; do sleep 0.05; done;;
    esac"""
    options = ("-np", "2", "--tf-roles", "ps=1,worker=1", "--tf-own-servers", "--grace", "0.5")
    started = time.monotonic()
    done = shell(*options, script=role, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - started < 30


def test_ranks_say_their_settings_and_where_these_come_from() -> None:
    started = ("-np", "2", "--log-level", "info", "--fusion-threshold", "1MiB", sys.executable, "-c")
    done = run(*started, "import distrun; distrun.init()")
    assert done.returncode == 0 and done.stderr.count("settings ") == 2, done.stderr
    assert "fusion_threshold=1MiB (env)" in done.stderr and "backend=auto (default)" in done.stderr, done.stderr


def test_check_lists_backends_and_says_what_is_wrong_apart_from_them() -> None:
    shown = json.loads(run("check", "--json", env={"DISTRUN_PLUGINS": "/tmp/other.so"}).stdout)
    assert shown["backends"]["self"] == "ok (built in)" and shown["backends"]["tcp"] == "ok (built in)"
    assert {"self", "shm", "tcp", "gloo", "mpi", "nccl"} <= set(shown["backends"])
    assert all(state.startswith(("ok", "not available")) for state in shown["backends"].values())
    assert len(shown["warnings"]) == 1 and "'/tmp/other.so' of DISTRUN_PLUGINS is ignored" in shown["warnings"][0]
    refused = run("check", "--build", "--json", env={"DISTRUN_FUSION_THRESHOLD": "lots"})
    assert refused.returncode == 64 and refused.stdout == ""
    assert "DISTRUN_FUSION_THRESHOLD" in refused.stderr and "'lots'" in refused.stderr.replace('"', "'")


@pytest.mark.parametrize("words", [[], ["check"], ["agent"], ["check", "-H", "localhost:1"]])
def test_help_has_one_line_of_at_most_100_columns_for_each_option(words: list[str]) -> None:
    done = run(*words, "--help")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert [line for line in done.stdout.splitlines() if len(line) > 100] == []
    assert re.search(r"^  --\S+ .*  ?\S", done.stdout, re.MULTILINE)


def test_help_of_a_topic_and_of_one_that_is_not_known() -> None:
    done = run("help", "hosts")
    assert done.returncode == 0 and "\n  --ssh-port PORT\n" in done.stdout, done.stderr
    unknown = run("help", "hots")
    assert unknown.returncode == 64 and unknown.stdout == ""
    assert "did you mean hosts?" in unknown.stderr and "\n  placement " in unknown.stderr


@pytest.mark.parametrize("module", ["namespace.inner.train", "package.train", "package", "train", "json.tool"])
def test_modules_that_are_there_are_found_and_imported_by_nobody_else(tmp_path: Path, module: str) -> None:
    files = ("namespace/inner/train.py", "package/__init__.py", "package/train.py", "package/__main__.py", "train.py")
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("print('here')\n")
    words = [tmp_path / "data.json"] if module == "json.tool" else []
    (tmp_path / "data.json").write_text('{"here": 1}')
    done = run("-np", "1", "--stdin", "none", "-m", module, *words, cwd=tmp_path)
    assert done.returncode == 0 and "is not installed" not in done.stderr, done.stderr
    count = {"package.train": 2, "package": 2}.get(module, 1)
    assert done.stdout.count("here") == count, done.stdout


def test_a_look_for_a_module_that_hangs_ends_without_a_pidfd_too(tmp_path: Path, python: str, programs: Path) -> None:
    """As in a container whose seccomp profile does not know pidfd_open, with Python on a slow file server."""
    slow = tmp_path / "python"
    slow.write_text('#!/bin/sh\n[ "$1" != -c ] || exec sleep 100\necho started\n')
    slow.chmod(0o755)
    words = [python, str(programs / "without_call.py"), "pidfd_open", launcher_path(), "-np", "1"]
    missing = subprocess.run([*words, "-m", "no_such_module"], capture_output=True, text=True, timeout=60)
    assert missing.returncode == 127, missing.stderr
    done = subprocess.run([*words, str(slow), "-m", "x"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "[0] started\n"), done.stderr


def test_a_package_that_adds_to_its_path_may_have_more_modules_than_can_be_seen(tmp_path: Path) -> None:
    extends = "import pkgutil\n__path__ = pkgutil.extend_path(__path__, __name__)\n"
    for part, text in (("one", extends), ("two", extends)):
        (tmp_path / part / "shared").mkdir(parents=True)
        (tmp_path / part / "shared/__init__.py").write_text(text)
    (tmp_path / "two/shared/train.py").write_text("print('here')\n")
    done = run("-np", "1", "-m", "shared.train", env={"PYTHONPATH": f"{tmp_path}/one:{tmp_path}/two"})
    assert done.stdout == "[0] here\n", done.stderr
    (tmp_path / "one/empty").mkdir()
    (tmp_path / "one/empty/__init__.py").touch()
    done = run("-np", "1", "-m", "empty.train", env={"PYTHONPATH": f"{tmp_path}/one"})
    assert done.returncode == 127 and "module empty.train is not installed" in done.stderr, done.stderr


@pytest.fixture
def foreign_directory(tmp_path: Path) -> Path:
    """A directory with files of the user, named like modules that distrun imports. Each leaves a trace if it runs."""
    for name in ("json", "statistics", "platform", "runpy", "tokenize", "tensorflow", "distrun"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'trace')!r}, 'a').write('{name} ')\n")
    return tmp_path


def test_check_runs_nothing_of_the_directory_that_it_is_typed_in(foreign_directory: Path) -> None:
    done = run("check", "-H", "localhost", cwd=foreign_directory)
    assert not (foreign_directory / "trace").exists()
    assert done.returncode == 0, done.stdout + done.stderr


def test_check_looks_at_the_hosts_of_a_config_file_with_one_rank_on_each_which_may_use_all_its_cpus(
    tmp_path: Path,
) -> None:
    config = tmp_path / "distrun.toml"
    config.write_text("num-proc = 8\nhosts = node1:4,node2:4\nbind-to = core\n")
    done = run("check", "--config", str(config), "--explain=json")
    assert done.returncode == 0, done.stdout + done.stderr
    shown = json.loads(done.stdout)
    assert [rank["host"] for rank in shown["ranks"]] == ["node1", "node2"]
    assert all("because of --bind-to none" in rank["why"]["cpus"] for rank in shown["ranks"]), shown["ranks"]


@pytest.mark.parametrize("option", [("--torch-backend", "distrun"), ("--tf-keras3-mwms",)])
@pytest.mark.parametrize("command", [["sub/x.py", "-m", "a"], ["-m", "sub.x"]])
def test_a_program_by_way_of_a_module_of_ours_finds_its_own_modules_where_it_would_without(
    foreign_directory: Path, python: str, option: tuple[str, ...], command: list[str]
) -> None:
    (foreign_directory / "sub").mkdir()
    (foreign_directory / "sub/x.py").write_text("import sys\nprint(sys.argv[1:], sys.path)\n")

    def printed(*options: str) -> str:
        done = run("-np", "1", *options, python, *command, cwd=foreign_directory)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    plain = printed()
    assert printed(*option) == plain and not (foreign_directory / "trace").exists()


def test_a_variable_wins_over_the_config_file_and_a_flag_over_both(tmp_path: Path) -> None:
    config = tmp_path / "distrun.toml"
    config.write_text("cache_capacity = 1\nshutdown_timeout = 1\nstart_timeout = 1\n")
    done = shell(
        "-np", "1", "--config", str(config), "--start-timeout", "3",
        script="echo $DISTRUN_CACHE_CAPACITY $DISTRUN_SHUTDOWN_TIMEOUT $DISTRUN_START_TIMEOUT",
        env={"DISTRUN_SHUTDOWN_TIMEOUT": "2", "DISTRUN_START_TIMEOUT": "2", "DISTRUN_CACHE_CAPACITY": ""},
    )  # fmt: skip
    assert done.stdout == "[0] 1 2 3\n", done.stderr


def test_mistakes_in_a_config_file_are_named(tmp_path: Path) -> None:
    config = tmp_path / "distrun.toml"
    config.write_text("grace = 1\nfusion_treshold = 1\n")
    done = run("--config", str(config), "true")
    assert done.returncode == 64
    assert (
        f"{config}, line 2: fusion_treshold is not an option of distrun; did you mean fusion-threshold?" in done.stderr
    )


def test_an_unknown_variable_is_warned_of_once(python: str) -> None:
    script = "import os, distrun; os.environ['DISTRUN_FUSON_THRESHOLD'] = '1'; distrun.init()"
    started = ("-np", "3", "--oversubscribe", python, "-c", script)
    done = run(*started, env={"DISTRUN_CACHE_CAPACTIY": "1"})
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("DISTRUN_CACHE_CAPACTIY") == 1, done.stderr
    assert done.stderr.count("DISTRUN_FUSON_THRESHOLD is not a setting") == 1, done.stderr


def test_output_that_cannot_be_written_is_told_and_ends_with_a_code(tmp_path: Path) -> None:
    """A full disk does not end training. A job that fails for another reason keeps its own exit code."""
    for script, code in (("echo out; sleep 0.5; echo out; touch done", 74), ("echo out; exit 3", 3)):
        with open("/dev/full", "w") as full:
            command = [launcher_path(), "-np", "2", "sh", "-c", script]
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, cwd=tmp_path)
        assert done.returncode == code, done.stderr
        assert done.stderr.count("standard output cannot be written: No space left on device") == 1, done.stderr
    assert (tmp_path / "done").exists()


def test_the_last_lines_of_the_first_cause_are_of_both_streams() -> None:
    done = shell("-np", "1", script="echo old >&2; sleep 0.2; echo step 7; kill -9 $$")
    assert done.returncode == 137
    assert "The last lines it wrote:\n  | old\n  | step 7\n" in done.stderr, done.stderr


def test_a_fault_of_the_disk_is_no_reader_that_has_gone() -> None:
    # Writing to an unmapped address of /proc/self/mem fails with EIO.
    with open("/proc/self/mem", "w") as faulty:
        command = [launcher_path(), "-np", "1", "sh", "-c", "echo out; sleep 0.5; echo over >&2"]
        done = subprocess.run(command, stdout=faulty, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 74 and "[0] over" in done.stderr, done.stderr
    assert done.stderr.count("standard output cannot be written: Input/output error") == 1, done.stderr


@pytest.mark.parametrize("place", ["standard output", "--output-dir"])
def test_the_limit_of_a_files_size_is_as_a_full_disk(tmp_path: Path, place: str) -> None:
    ignored = "while read -r name value; do [ $name != SigIgn: ] || echo ignored $value >&2; done < /proc/self/status"
    script = f"i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; {ignored}; echo over >&2"
    options = ["--output-dir", str(tmp_path / "logs")] if place == "--output-dir" else []
    limited = ["sh", "-c", 'ulimit -f 8; exec "$@"', "sh", launcher_path(), "-np", "1", *options, "sh", "-c", script]
    with open("/dev/null" if options else tmp_path / "out", "w") as out:
        done = subprocess.run(limited, stdout=out, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 74 and "[0] over" in done.stderr, done.stderr
    assert len(re.findall(f"distrun: {place}.*: File too large", done.stderr)) == 1, done.stderr
    found = re.search(r"ignored ([0-9a-f]+)", done.stderr)
    assert found and not int(found[1], 16) >> (signal.SIGXFSZ - 1) & 1, done.stderr


def test_exit_code_is_that_of_the_first_failing_rank() -> None:
    done = shell("-np", "3", "--grace", "2", script="[ $RANK = 1 ] && { echo broken >&2; exit 42; }; sleep 60")
    assert done.returncode == 42
    assert "rank 1 on host localhost" in done.stderr and "exited with code 42" in done.stderr
    assert done.stderr.count("broken") == 1, "what the rank wrote has just been seen"


def test_signal_is_named() -> None:
    done = shell("-np", "3", script="[ $RANK = 2 ] && kill -SEGV $$; sleep 60")
    assert done.returncode == 139
    assert "rank 2" in done.stderr and "killed by signal 11 (SIGSEGV)" in done.stderr


def test_ranks_that_never_call_init_may_exit_as_they_like() -> None:
    assert shell("-np", "2", script="[ $RANK = 0 ] && exit 0; sleep 0.5").returncode == 0


def test_a_directory_that_was_removed_is_refused(tmp_path: Path) -> None:
    """Otherwise ranks would run in / without any message."""
    (tmp_path / "gone").mkdir()
    command = f"cd {tmp_path}/gone && rmdir ../gone && exec {launcher_path()} -np 1 pwd"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 64, done.stdout
    assert "this folder has no path, so ranks cannot run in it" in done.stderr


def test_arguments_arrive_as_typed() -> None:
    words = ["a b", "$HOME", "`id`", "q'q", "x;y", "*", "line\nline", "", "-np", "--tag"]
    done = run("-np", "1", "--tag", "none", "sh", "-c", 'printf "<%s>" "$@"', "sh", *words)
    assert done.stdout.rstrip("\n") == "".join(f"<{word}>" for word in words)


def test_environment_of_ranks() -> None:
    script = 'echo "$RANK|$WORLD_SIZE|$MINE|$PMIX_RANK|$no_grpc_proxy|$TF_CONFIG"'
    own = {"PMIX_RANK": "9", "http_proxy": "http://proxy:3128", "no_proxy": "x"}
    done = shell("-np", "2", "--tag", "none", "-x", "MINE=1 2", script=script, env=own)
    for line in done.stdout.splitlines():
        rank, size, mine, outer, direct, tf = line.split("|")
        assert (size, mine, outer) == ("2", "1 2", "")
        assert direct.startswith("x,") and direct.endswith("127.0.0.1,localhost")
        config = json.loads(tf)
        assert config["task"] == {"type": "worker", "index": int(rank)}
        assert len(set(config["cluster"]["worker"])) == 2
    assert len(done.stdout.splitlines()) == 2


def test_standard_input_goes_to_rank_0() -> None:
    done = shell("-np", "2", script='echo "$RANK got $(cat)"', stdin="hello\n")
    assert sorted(done.stdout.splitlines()) == ["[0] 0 got hello", "[1] 1 got "]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-", "<&- >&- 2>&-"])
def test_closed_standard_descriptors_are_empty_ones(closed: str) -> None:
    command = ["sh", "-c", f'"$0" -np 2 sh -c "cat; echo done" {closed}', launcher_path()]
    assert subprocess.run(command, capture_output=True, timeout=30).returncode == 0


def test_a_wrapper_that_closes_the_descriptor_of_the_key_is_named(python: str) -> None:
    """The next descriptor that is opened gets the number of the key's descriptor."""
    init = f"exec 3<&-; exec {python} -c 'import distrun.numpy as hvd; hvd.init()'"
    done = run("-np", "2", "sh", "-c", init)
    assert done.returncode not in (0, 70), done.stdout + done.stderr
    assert "this descriptor is closed" in done.stderr and "activate the environment before distrun" in done.stderr


def test_lines_stay_whole() -> None:
    script = 'i=0; while [ $i -lt 200 ]; do printf "r$RANK-"; printf "%0500d\\n" $i; i=$((i+1)); done; printf last'
    done = shell("-np", "4", script=script)
    lines = done.stdout.splitlines()
    assert len(lines) == 4 * 201
    for line in lines:
        rank = line[1]
        assert line == f"[{rank}] last" or (line.startswith(f"[{rank}] r{rank}-") and len(line) == 4 + 3 + 500), line


def test_output_directory(tmp_path: Path) -> None:
    done = shell("-np", "2", "--output-dir", str(tmp_path / "d"), script="echo out$RANK; echo err$RANK >&2")
    assert done.returncode == 0
    for rank in (0, 1):
        assert (tmp_path / f"d/rank.{rank}.out").read_text() == f"out{rank}\n"
        assert (tmp_path / f"d/rank.{rank}.err").read_text() == f"err{rank}\n"
    merged = (tmp_path / "d/merged.log").read_text().splitlines()
    assert sorted(merged) == ["[0] err0", "[0] out0", "[1] err1", "[1] out1"]


def test_a_job_that_does_not_start_leaves_the_logs_of_the_one_before(tmp_path: Path) -> None:
    assert shell("-np", "1", "-v", "--output-dir", str(tmp_path), script="echo a long line; echo b >&2").returncode == 0
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert before["rank.0.out"] == "a long line\n" and "[0] b\n" in before["merged.log"]
    assert run("-np", "1", "-v", "--output-dir", str(tmp_path), "no-such-program").returncode == 127
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before
    assert shell("-np", "1", "-v", "--output-dir", str(tmp_path), script="echo c").returncode == 0
    assert (tmp_path / "rank.0.out").read_text() == "c\n"
    assert (tmp_path / "rank.0.err").read_text() == ""
    merged = (tmp_path / "merged.log").read_text()
    assert "a long line" not in merged and "[0] c\n" in merged and "cores:" in merged


def test_a_log_that_is_cut_while_it_is_written_goes_on_at_its_beginning(tmp_path: Path) -> None:
    """logrotate's copytruncate cuts a log in this way."""
    log = tmp_path / "rank.0.out"
    cut = f"until [ -s {log} ]; do sleep 0.01; done; : > {log}"
    done = shell("-np", "1", "--output-dir", str(tmp_path), script=f"echo a long line; {cut}; echo b")
    assert done.returncode == 0, done.stderr
    assert log.read_bytes() == b"b\n"


@pytest.mark.parametrize("full", ["rank.0.out", "merged.log"])
def test_logs_that_cannot_be_written_are_told_and_end_with_a_code(tmp_path: Path, full: str) -> None:
    (tmp_path / full).symlink_to("/dev/full")
    done = shell("-np", "1", "--output-dir", str(tmp_path), script="echo out")
    assert done.returncode == 74, done.stderr
    assert done.stdout == "[0] out\n"
    shown = f"distrun: --output-dir: {tmp_path / full} cannot be written; what it does not take is missing there: "
    assert done.stderr.count("cannot be written") == 1 and shown + "No space left on device" in done.stderr, done.stderr
    others = {"rank.0.out": "out\n", "merged.log": "[0] out\n"}
    del others[full]
    assert all((tmp_path / name).read_text().startswith(text) for name, text in others.items())


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_logs_in_a_directory_of_others_go_into_plain_files_only(tmp_path: Path, kind: str) -> None:
    (tmp_path / "mine").write_text("precious")
    logs = tmp_path / "logs"
    logs.mkdir()
    logs.chmod(0o777)
    if kind == "link":
        (logs / "rank.0.err").symlink_to(tmp_path / "mine")
    else:
        os.mkfifo(logs / "rank.0.err")
    refused = run("-np", "1", "--output-dir", str(logs), "true")
    assert refused.returncode == 69, refused.stderr
    assert f"{logs}/rank.0.err is a link or no plain file" in refused.stderr, refused.stderr
    assert (tmp_path / "mine").read_text() == "precious"
    (logs / "rank.0.err").unlink()
    assert run("-np", "1", "--output-dir", str(logs), "true").returncode == 0


def test_a_reader_that_goes_away_ends_the_job() -> None:
    command = f"{shlex.quote(launcher_path())} -np 2 --grace 2 yes | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
    assert done.stdout.split()[-1] == "141"


def test_a_port_that_was_named_for_pytorch_and_names_without_effect() -> None:
    done = shell("-np", "2", "-x", "MASTER_PORT=29517", "-x", "RANK=7", script="echo $RANK at $MASTER_PORT")
    assert sorted(line.split("] ")[1] for line in done.stdout.splitlines()) == ["0 at 29517", "1 at 29517"]
    assert done.stderr == "distrun: RANK of -x or --env-file has no effect: distrun sets a value for each rank\n"
    refused = run("-np", "1", "-x", "MASTER_PORT=any", "true")
    assert refused.returncode == 64 and "'any' is not a port. Write -x MASTER_PORT=29500" in refused.stderr


def test_a_hundred_ranks() -> None:
    done = shell("-np", "100", script="echo $RANK")
    assert done.returncode == 0, done.stderr
    assert sorted(int(line.split()[1]) for line in done.stdout.splitlines()) == list(range(100))


READY = 'setsid sleep 300 & echo "ready $RANK $$"; sleep 300'


def test_nothing_survives_the_launcher(start_job: StartJob) -> None:
    job = start_job("-np", "3", "sh", "-c", READY)
    job.ranks(3)
    job.process.kill()
    assert job.finish() == -signal.SIGKILL


def test_nothing_survives_the_agent(start_job: StartJob) -> None:
    job = start_job("-np", "3", "sh", "-c", READY)
    pids = job.ranks(3)
    # The group's name has the job's number. If no group can be made, there is none.
    group = re.search(r"(?m)^0::.*/(distrun-ranks-\S+)$", Path(f"/proc/{pids[0]}/cgroup").read_text())
    os.kill(agent_of(job.process.pid), signal.SIGKILL)
    assert job.finish() == 75
    # os.walk skips directories that others remove at the same time.
    groups = {name for _, names, _ in os.walk("/sys/fs/cgroup") for name in names}
    assert group is None or group[1] not in groups, group
    assert "agent" in job.text and "SIGKILL" in job.text


def test_ranks_that_ignore_term_are_killed_after_the_grace_period(start_job: StartJob) -> None:
    job = start_job("-np", "2", "--grace", "1", "sh", "-c", f"trap '' TERM; {READY}")
    job.ranks(2)
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 143


def test_second_ctrl_c_kills_at_once(start_job: StartJob) -> None:
    job = start_job("-np", "2", "--grace", "100", "sh", "-c", f"trap '' INT TERM; {READY}")
    job.ranks(2)
    job.signal(signal.SIGINT)
    time.sleep(0.3)  # less than 250 ms apart they are one
    job.signal(signal.SIGINT)
    assert job.finish() == 130


SAVES = """
import os, signal, sys, time
try:
    print("ready", os.environ["RANK"], os.getpid(), flush=True)
    time.sleep(300)
except KeyboardInterrupt:
    time.sleep(0.5)
    open(sys.argv[1] + os.environ["RANK"], "w").close()
    sys.exit(int(sys.argv[2]))
"""


@pytest.mark.parametrize(("stopped", "times"), [(False, 1), (True, 1), (False, 3)])
def test_ctrl_c_reaches_a_python_program_as_one(
    start_job: StartJob, python: str, tmp_path: Path, stopped: bool, times: int
) -> None:
    """The job's exit code is that of Ctrl-C, whatever code the ranks end with. A program around distrun may pass the
    signal on, so it arrives several times at once."""
    job = start_job("-np", "2", "--grace", "60", python, "-c", SAVES, f"{tmp_path}/saved.", "3")
    for pid in job.ranks(2).values():
        if stopped:
            os.kill(pid, signal.SIGSTOP)
    for _ in range(times):
        job.signal(signal.SIGINT)
    assert job.finish(20) == 130, job.text  # well before TERM is sent
    assert sorted(path.name for path in tmp_path.iterdir()) == ["saved.0", "saved.1"]
    assert "interrupted; ranks get INT and 60 s to end, TERM after half of it" in job.text
    assert "exit" not in job.text, job.text  # a rank that ends is not reported as a failure


def test_ranks_that_ignore_ctrl_c_get_term_after_half_of_the_grace_period(start_job: StartJob) -> None:
    saves = "trap '' INT; trap 'echo saved; exit 0' TERM; echo ready $RANK $$; while :; do sleep 0.1; done"
    job = start_job("-np", "2", "--grace", "4", "sh", "-c", saves)
    job.ranks(2)
    before = time.monotonic()
    job.signal(signal.SIGINT)
    assert job.finish() == 130, job.text
    assert time.monotonic() - before > 1.9 and job.text.count("saved") == 2, job.text


@pytest.mark.parametrize("numbers", [[signal.SIGHUP] * 3, [signal.SIGTERM, signal.SIGHUP, signal.SIGTERM]])
def test_signals_that_come_together_do_not_kill(start_job: StartJob, numbers: list[signal.Signals]) -> None:
    """Several signals come together if a terminal is closed, or if a service manager ends a scope."""
    saves = "trap 'sleep 0.5; echo saved; exit 0' TERM; echo ready $RANK $$; while :; do sleep 0.1; done"
    job = start_job("-np", "2", "sh", "-c", saves)
    job.ranks(2)
    for number in numbers:
        job.signal(number)
    assert job.finish() == 128 + numbers[0], job.text
    assert job.text.count("saved") == 2, job.text


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_user_signals_are_forwarded(start_job: StartJob, number: signal.Signals) -> None:
    name = number.name.removeprefix("SIG")
    script = f'trap "echo got $RANK; exit 0" {name}; echo "ready $RANK $$"; while :; do sleep 0.1; done'
    job = start_job("-np", "2", "sh", "-c", script)
    job.ranks(2)
    job.process.send_signal(number)
    assert job.finish() == 0, job.text
    assert "got 0" in job.text and "got 1" in job.text


def test_what_a_successful_job_leaves_behind_is_ended(start_job: StartJob) -> None:
    job = start_job("-np", "1", "--grace", "1.5", "sh", "-c", "setsid sleep 300 & exit 0")
    assert job.finish() == 0
    assert "have ended, but processes that they started still run" in job.text
