#!/usr/bin/env python3
"""Runs the terminal blocks of a page and shows where the output differs from the page: run_page.py PAGE ..."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from docs.compare import differences
from docs.pages import Command, File, Page, PageError, read_page

ROOT = Path(__file__).resolve().parents[2]
HOSTS = ROOT / "test/cluster/hosts"
HOSTS_UNAVAILABLE = 69  # exit code of test/cluster/hosts
LIMIT = 300.0  # seconds for a page
HELPERS = Path(__file__).resolve().parent / "helpers"  # scripts for `% setup:` lines
DROPPED = ("DISTRUN_", "HOROVOD_", "SLURM_", "OMPI_", "PMI", "PYTEST_", "TEST_")
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", "TERM": "dumb"}
# What stands in the output for this machine's name and for the working folder: a page is for any machine.
THIS_HOST, THIS_FOLDER = "node1", "/home/me/work"
END = "trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n"


class CannotRun(RuntimeError):
    """The machine lacks what the page needs."""


@dataclass
class Outcome:
    command: Command
    code: int | None  # None: it did not run to its end
    output: str

    @property
    def faults(self) -> list[str]:
        if self.code is None:
            return ["it did not end"]
        found = [] if self.code == self.command.code else [f"exit code {self.code}, the page says {self.command.code}"]
        return found + ([] if not self.command.expected else differences(self.command.expected, self.output))


def checkout() -> Path:
    """The clone whose .venv and build/ this tree uses: its own, or for a git worktree the main one's."""
    if (ROOT / ".venv/bin/distrun").exists():
        return ROOT
    git = ["git", "-c", "safe.directory=*", "-C", str(ROOT), "rev-parse", "--path-format=absolute", "--git-common-dir"]
    done = subprocess.run(git, capture_output=True, text=True)
    main = Path(done.stdout.strip()).parent if done.returncode == 0 else ROOT
    return main if (main / ".venv/bin/distrun").exists() else ROOT


def search_path(page: Page) -> str:
    """PATH for the page: its environment's Python first, then distrun."""
    base = checkout()
    folders = [base / ".venv/bin"]
    if page.environment:
        folders.insert(0, base / "build/environments" / page.environment / "bin")
    for folder, program in ((folders[0], "python"), (folders[-1], "distrun")):
        if not (folder / program).exists():
            raise CannotRun(f"{folder / program} does not exist: run scripts/test")
    return ":".join([*map(str, folders), "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"])


def environment_of(page: Page) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(DROPPED)}
    for name in ("PYTHONPATH", "VIRTUAL_ENV", "COLUMNS", "LINES"):
        kept.pop(name, None)
    return kept | QUIET | {"HELPERS": str(HELPERS)}


def script_of(page: Page, work: Path, kept: Path) -> str:
    """Returns a bash script for all steps in one shell. Output and exit code of command N are in kept/N.*."""
    # A host in a box has its own PATH.
    lines = [END, f"export PATH={shlex.quote(search_path(page))}\n", f"cd {shlex.quote(str(work))}\n"]
    for number, step in enumerate(page.steps):
        at = kept / str(number)
        if isinstance(step, File):
            at.write_text(step.text)
            goal = shlex.quote(str(work / step.name))
            lines.append(f'mkdir -p "$(dirname {goal})"; cp {at} {goal}\n')
        else:
            at.write_text(step.text)
            lines.append(f'eval "$(cat {at})" >{at}.out 2>&1 </dev/null; echo $? >{at}.code\n')
    return "".join(lines)


def in_hosts(page: Page, shared: Path, command: list[str]) -> list[str]:
    options = ["--count", str(page.hosts), "--share", str(shared), *(["--slurm"] if page.slurm else [])]
    hosts = [sys.executable, str(HOSTS), *options, "--", *command]
    return hosts if os.geteuid() == 0 else ["sudo", "-n", "--preserve-env", *hosts]


def run_script(command: list[str], environment: dict[str, str], limit: float) -> tuple[int | None, str]:
    """Runs the shell of a page. Returns its exit code, or None after the limit, and its own output."""
    process = subprocess.Popen(
        command, env=environment, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    try:
        return process.wait(limit), process.stdout.read() if process.stdout else ""
    except subprocess.TimeoutExpired:
        return None, ""
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)


def run_page(page: Page, limit: float = LIMIT) -> list[Outcome]:
    """Runs the page's commands in a new working folder. Raises CannotRun."""
    if not page.commands:
        return []
    environment = environment_of(page)
    with tempfile.TemporaryDirectory(prefix="distrun-test-docs-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        work, kept = Path(folder) / "work", Path(folder) / "kept"
        work.mkdir()
        kept.mkdir()
        (work / "examples").symlink_to(ROOT / "examples")
        (kept / "script").write_text(script_of(page, work, kept))
        command = ["bash", str(kept / "script")]
        if page.hosts:
            command = in_hosts(page, Path(folder), command)
        code, said = run_script(command, environment, limit)
        if page.hosts and code == HOSTS_UNAVAILABLE:
            raise CannotRun(said.strip())
        name = socket.gethostname()
        outcomes = []
        for number, step in enumerate(page.steps):
            if isinstance(step, Command):
                out, ended = kept / f"{number}.out", kept / f"{number}.code"
                text = (out.read_text(errors="replace") if out.exists() else said).replace(str(work), THIS_FOLDER)
                if name and not page.hosts:
                    text = text.replace(name, THIS_HOST)
                outcomes.append(Outcome(step, int(ended.read_text()) if ended.exists() else None, text))
        return outcomes


def report(outcomes: list[Outcome]) -> str:
    """Returns the commands whose result is not the page's, with the whole output."""
    lines = []
    for outcome in outcomes:
        if outcome.faults:
            lines += [f"line {outcome.command.line}: $ {outcome.command.text}", *outcome.faults]
            lines += ["  the output:", *(f"  | {line}" for line in outcome.output.splitlines()[-100:])]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--all-output", action="store_true", help="print the output of every command")
    options = parser.parse_args()
    failed = False
    for path in options.pages:
        started = time.monotonic()
        try:
            outcomes = run_page(read_page(path))
        except (PageError, CannotRun) as error:
            print(error if isinstance(error, PageError) else f"{path}: {error}")
            failed = True
            continue
        if options.all_output:
            for outcome in outcomes:
                print(f"$ {outcome.command.text}\n{outcome.output}", end="")
        text = report(outcomes)
        failed |= bool(text)
        print(f"{path}: {len(outcomes)} commands, {time.monotonic() - started:.0f} s: {'DIFFERS' if text else 'ok'}")
        if text:
            print(text)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
