"""Builds and runs the tests of the named files, for scripts/dev. dev_cxx.py and dev_python.py choose the tests."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from configparser import ConfigParser
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from lib.dev_cxx import SOURCES, Includes
from lib.dev_python import PROGRAMS, Choice, Program, framework_of, module_name, takes_checks
from lib.tree import ROOT

BUILD = ROOT / "build/edit"
PACKAGE = BUILD / "package/distrun"
RULES = Path(__file__).with_name("dev.ini")
LIMIT = 600.0  # seconds of one test
LINES_OF_A_FAILURE = 60
PRODUCT = ("runtime", "launcher", "bindings", "frameworks")
NATIVE = {"tensorflow": ["distrun_tensorflow"], "jax": ["distrun_jax"], "keras": ["distrun_tensorflow", "distrun_jax"]}


@dataclass
class Wanted:
    """The tests to run, and the targets to build for them."""

    sources: set[str] = field(default_factory=set)  # test files in C++
    ctest: set[str] = field(default_factory=set)
    pytest: dict[str, None] = field(default_factory=dict)  # in order; each one is the arguments of pytest
    programs: set[Program] = field(default_factory=set)
    native: set[str] = field(default_factory=set)
    nothing: list[str] = field(default_factory=list)  # files without a test


@dataclass(frozen=True)
class Run:
    title: str
    command: tuple[str, ...]
    passes: str = ""  # a text that the output must contain
    folder: Path = ROOT
    environment: tuple[tuple[str, str], ...] = ()


def changed_files() -> list[str]:
    status = ["git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=all", "--no-renames"]
    lines = subprocess.run(status, check=True, capture_output=True, text=True).stdout.splitlines()
    for line in lines:
        if not (ROOT / line[3:]).exists():
            print(f"deleted  {line[3:]}: what used it has to change as well; `scripts/test --quick` builds all")
    return [line[3:] for line in lines if (ROOT / line[3:]).is_file()]


@cache
def rules() -> dict[str, list[str]]:
    """Returns the tests for each pattern, in the order of the file."""
    read = ConfigParser(interpolation=None)
    read.read(RULES)
    return {pattern: read[pattern]["tests"].splitlines() for pattern in read.sections()}


def all_rules() -> list[str]:
    return [rule for tests in rules().values() for rule in tests]


def rule_for(path: str) -> list[str]:
    for pattern, tests in rules().items():
        if fnmatch(path, pattern):
            return [test.replace("{stem}", Path(path).stem) for test in tests]
    return []


def tests_with_program(path: str) -> list[str]:
    """Returns the tests of a program that tests start: those that name it; the whole file if the name is in a list."""
    name, found = Path(path).name, []
    for file in sorted([*ROOT.glob("test/python/test_*.py"), *ROOT.glob("test/e2e/**/test_*.py")]):
        if name in file.read_text():
            found.append(f"{file.relative_to(ROOT)} -k {shlex.quote(Path(path).stem)}")
    return found


def choose_python(path: str, wanted: Wanted, choice: Choice) -> None:
    if path.startswith(("bindings/python/", "frameworks/")):
        name = module_name(path)
        wanted.pytest.update(dict.fromkeys(choice.unit_tests(name)))
        wanted.programs.add(choice.program(name))
        wanted.native.update(NATIVE.get(framework_of(name), []))
    elif Path(path).name.startswith("test_"):
        wanted.pytest[path] = None
    elif path.startswith(PROGRAMS):
        text = (ROOT / path).read_text()
        if takes_checks(text):
            wanted.programs.add(Program.of_file(path))
        else:
            wanted.pytest.update(dict.fromkeys(tests_with_program(path)))
    else:
        wanted.nothing.append(path)


def choose(paths: list[str]) -> Wanted:
    wanted, includes, choice = Wanted(), None, None
    for path in paths:
        named = rule_for(path)
        for rule in named:
            if rule.startswith("ctest "):
                wanted.ctest.add(rule.removeprefix("ctest "))
            else:
                wanted.pytest[rule] = None
        if named:
            continue
        if path.endswith(SOURCES):
            includes = includes or Includes()
            tests = includes.tests_of(path)
            wanted.sources.update(tests)
            if not tests:
                wanted.nothing.append(path)
        elif path.endswith(".py"):
            choice = choice or Choice()
            choose_python(path, wanted, choice)
        elif path.endswith(".md"):
            continue
        else:
            wanted.nothing.append(path)
    if any(text.startswith("test/e2e/frameworks/") for text in wanted.pytest):
        wanted.native.update(NATIVE["keras"])
    return wanted


@dataclass(frozen=True)
class Test:
    """A test of ctest."""

    name: str
    command: tuple[str, ...]
    folder: Path
    environment: tuple[tuple[str, str], ...]

    def run(self, *arguments: str) -> Run:
        title = " ".join([self.name, *arguments])
        return Run(title, (*self.command, *arguments), folder=self.folder, environment=self.environment)


def read_tests(file: Path) -> list[Test]:
    """Reads ctest's files. ctest itself does not list the command of a program that is not built yet."""
    found, text = [], file.read_text()
    for name, command in re.findall(r"^add_test\(\[=\[(.+?)\]=\] (.*)\)$", text, re.MULTILINE):
        properties = re.search(rf"^set_tests_properties\(\[=\[{re.escape(name)}\]=\] .*$", text, re.MULTILINE)
        variables = re.search(r' ENVIRONMENT "([^"]*)"', properties[0] if properties else "")
        pairs = [pair.partition("=") for pair in variables[1].split(";")] if variables else []
        environment = tuple((key, value.replace("'", "")) for key, _, value in pairs)
        found.append(Test(name, tuple(shlex.split(command)), file.parent, environment))
    return found


class Built:
    """The tests and objects of the preset `edit`, as CMake and ninja list them."""

    def __init__(self) -> None:
        self.tests = [test for file in BUILD.glob("**/CTestTestfile.cmake") for test in read_tests(file)]
        self.objects: dict[str, set[str]] = {}  # by executable
        for line in (BUILD / "build.ninja").read_text().splitlines():
            if found := re.match(r"build (test/\S+): CXX_EXECUTABLE_LINKER\S+ (.*?)(?: \|.*)?$", line):
                self.objects[found[1]] = set(found[2].split())
        entries = json.loads((BUILD / "compile_commands.json").read_text())
        self.object_of: dict[str, set[str]] = {}
        for entry in entries:
            source = os.path.relpath(entry["file"], ROOT)
            words = entry["command"].split()
            self.object_of.setdefault(source, set()).add(words[words.index("-o") + 1])

    def tests_of(self, sources: set[str]) -> list[Run]:
        """Returns the runs for test files.

        An executable with several test files runs only the cases of these files, without those with very many ranks or
        tensors ([scale]: seconds). The conformance suite runs as a whole.
        """
        runs = []
        for test in self.tests:
            if len(test.command) != 1:
                continue
            executable = os.path.relpath(test.command[0], BUILD)
            objects = self.objects.get(executable, set())
            mine = sorted(source for source in sources if self.object_of.get(source, set()) & objects)
            if not mine:
                continue
            proper = [source for source in mine if f"/{Path(executable).name}.dir/" in " ".join(self.object_of[source])]
            whole = len(proper) != len(mine) or any("distrun_conformance.dir" in name for name in objects)
            tags = (
                [] if whole else ["--filenames-as-tags", ",".join(f"[#{Path(source).stem}]~[scale]" for source in mine)]
            )
            runs.append(test.run(*tags))
        return runs

    def named(self, patterns: set[str]) -> list[Run]:
        return [test.run() for test in self.tests if any(re.fullmatch(one, test.name) for one in patterns)]

    def targets(self, runs: list[Run]) -> list[str]:
        """Returns the executables in the commands, with ninja's names."""
        inside = f"{BUILD}/"
        words = [word for run in runs for part in run.command for word in part.split() if word.startswith(inside)]
        return sorted({word.removeprefix(inside) for word in words})


def stage_package() -> None:
    """Makes the Python package from links to the tree and to the build's libraries, so that nothing is installed."""
    (PACKAGE / "lib").mkdir(parents=True, exist_ok=True)
    own = (ROOT / "bindings/python/distrun").iterdir()
    links = {PACKAGE / one.name: one for one in own if one.name != "__pycache__"}
    links |= {PACKAGE / one.parent.name: one.parent for one in (ROOT / "frameworks").glob("*/__init__.py")}
    links |= {PACKAGE / "lib" / file.name: file for file in BUILD.glob("runtime/api/libdistrun*.so")}
    for old in [*PACKAGE.iterdir(), *(PACKAGE / "lib").iterdir()]:
        if old.is_symlink() and links.get(old) != old.readlink():
            old.unlink()
    for link, file in links.items():
        if not link.is_symlink():
            link.symlink_to(file)


def python_of(environment: str) -> str:
    if not environment:
        return sys.executable
    python = ROOT / f"build/environments/{environment}/bin/python"
    if not python.exists():
        print(f"   making the environment {environment}, once")
        subprocess.run([sys.executable, str(ROOT / "scripts/lib/environments.py"), "make", environment], check=True)
    return str(python)


def python_runs(wanted: Wanted, listed: bool) -> list[Run]:
    command = str(BUILD / "launcher/distrun")
    own = {
        "PYTHONPATH": str(PACKAGE.parent),
        "TEST_DISTRUN": command,
        "CUDA_VISIBLE_DEVICES": "",
    }
    environment = tuple({**own, "TF_CPP_MIN_LOG_LEVEL": "2", "JAX_PLATFORMS": "cpu"}.items())
    runs = []
    for program in sorted(wanted.programs, key=lambda one: one.path):
        python = "python" if listed else python_of(program.environment)
        line = (command, "-np", "2", "--oversubscribe", "--timeout", "300", python, program.path, *program.checks)
        title = " ".join([Path(program.path).name, *program.checks])
        keras = (("KERAS_BACKEND", "torch"),) if not program.environment else ()  # tests of Keras set their own
        runs.append(Run(title, line, passes="all checks passed", environment=environment + keras))
    by_options: dict[tuple[str, ...], list[str]] = {}
    for text in wanted.pytest:
        file, *options = shlex.split(text)
        by_options.setdefault(tuple(options), []).append(file)
    for extra, names in by_options.items():
        line = (sys.executable, "-m", "pytest", "-q", "-x", "-m", "not full", *names, *extra)
        runs.append(Run(" ".join([*names, *extra]), line, environment=environment))
    return runs


def build(targets: list[str]) -> bool:
    started = time.monotonic()
    done = subprocess.run(["ninja", "-C", str(BUILD), *targets], capture_output=True, text=True)
    if done.returncode != 0:
        print("\n".join(line for line in done.stdout.splitlines() if not line.startswith("[")))
    print(f"   built in {time.monotonic() - started:.1f} s" if done.returncode == 0 else "FAILED   the build")
    return done.returncode == 0


def execute(run: Run) -> tuple[Run, bool, str, float]:
    started = time.monotonic()
    try:
        done = subprocess.run(
            run.command, cwd=run.folder, env={**os.environ, **dict(run.environment)}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=LIMIT,
        )  # fmt: skip
        text, good = done.stdout, done.returncode == 0 and run.passes in done.stdout
    except subprocess.TimeoutExpired as late:
        said = late.stdout or ""
        text = said.decode(errors="replace") if isinstance(said, bytes) else said
        text, good = f"{text}\nnot over after {LIMIT:.0f} s", False
    return run, good, text, time.monotonic() - started


def run_all(runs: list[Run]) -> bool:
    """Runs one test per processor at the same time. Returns True if all passed."""
    passed = True
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for future in as_completed([pool.submit(execute, run) for run in runs]):
            run, good, text, seconds = future.result()
            passed = passed and good
            if not good:
                print("\n".join(text.splitlines()[-LINES_OF_A_FAILURE:]))
            print(f"{'ok' if good else 'FAILED':8} {seconds:5.1f} s  {run.title}", flush=True)
    return passed


def main(arguments: list[str]) -> int:
    started = time.monotonic()
    parser = argparse.ArgumentParser(prog="scripts/dev")
    parser.add_argument("--list", action="store_true", help="only name the tests")
    parser.add_argument("--from", dest="folder", type=Path, default=ROOT, help=argparse.SUPPRESS)
    parser.add_argument("paths", nargs="*", help="files; without one those that git says are changed")
    given = parser.parse_args(arguments)
    paths = [os.path.relpath((given.folder / name).resolve(), ROOT) for name in given.paths] or changed_files()
    absent = [path for path in paths if path.startswith("..") or not (ROOT / path).is_file()]
    if absent:
        print(f"scripts/dev: {', '.join(absent)} is no file of this tree", file=sys.stderr)
        return 2
    wanted = choose(paths)
    built = Built() if wanted.sources or wanted.ctest else None
    native = [*built.tests_of(wanted.sources), *built.named(wanted.ctest)] if built else []
    targets = built.targets(native) if built else []
    python = python_runs(wanted, given.list)
    if python:
        targets += ["distrun", "distrun_shared", *sorted(wanted.native)]
    for path in wanted.nothing:
        print(f"no test  {path}")
    if given.list:
        print("\n".join(run.title for run in [*native, *python]))
        return 0
    if not native and not python:
        why = "these files have no test" if wanted.nothing else "pages are checked by scripts/check"
        print(f"nothing was run: {why}")
        return 2 if wanted.nothing else 0
    if targets and not build(targets):
        return 1
    if python:
        stage_package()
    passed = run_all([*native, *python])
    print(f"{'passed' if passed else 'failed'} after {time.monotonic() - started:.1f} s")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
