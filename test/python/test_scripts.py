"""The project's own scripts: the parts of them that make decisions."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from .conftest import find_command

ROOT = Path(__file__).resolve().parents[2]


def load(name: str) -> ModuleType:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        spec = importlib.util.spec_from_file_location(f"scripts_{Path(name).stem}", ROOT / "scripts" / name)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses look up the module there
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.pop(0)


SECURITY_FIRST = """\
Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main

# The release itself.
Types: deb deb-src
URIs: http://mirror.example/debian http://second.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc
"""


def test_backports_come_from_the_stanza_of_the_release_itself() -> None:
    entry = load("lib/add_backports.py").from_deb822(SECURITY_FIRST, "bookworm")
    assert entry == (
        "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm-backports\nComponents: main\n"
        "Signed-By: \n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        SECURITY_FIRST.replace("Types: deb deb-src", "Types: deb-src"),
        SECURITY_FIRST.replace("Components: main contrib", "Components: contrib"),
        SECURITY_FIRST.replace("Suites: bookworm b", "Enabled: no\nSuites: bookworm b"),
        SECURITY_FIRST.replace("Suites: bookworm bookworm-updates", "Suites: trixie"),
    ],
)
def test_other_stanzas_do_not_serve(text: str) -> None:
    assert load("lib/add_backports.py").from_deb822(text, "bookworm") is None


def test_backports_come_from_a_one_line_entry_with_its_options() -> None:
    text = (
        "# deb http://old.example/debian bookworm main\n"
        "deb-src http://mirror.example/debian bookworm main\n"
        "deb http://mirror.example/debian-security bookworm-security main\n"
        "deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian bookworm contrib main\n"
    )
    module = load("lib/add_backports.py")
    assert module.from_one_line(text, "bookworm") == (
        "deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian bookworm-backports main\n"
    )
    assert module.from_one_line(text, "trixie") is None


def test_the_tally_counts_every_report_and_fails_when_anything_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.xml").write_text(
        '<testsuites><testsuite><testcase classname="t" name="good"/>'
        '<testcase classname="t" name="bad"><failure message="x"/></testcase>'
        '<testcase classname="t" name="gone"><skipped message="no GPU here"/></testcase></testsuite></testsuites>'
    )
    tally = load("lib/tally.py")
    assert tally.main([str(tmp_path), "check=passed", "build=failed"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "2 passed, 2 failed, 1 skipped"
    assert any("t.gone: no GPU here" in line for line in lines)
    (tmp_path / "a.xml").write_text('<testsuite><testcase name="good"/></testsuite>')
    assert tally.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 0 failed, 0 skipped"


@pytest.mark.parametrize(("cases", "code"), [(17, 0), (18, 1)])
def test_the_tally_fails_when_much_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cases: int, code: int
) -> None:
    tests = "".join(f'<testcase name="{number}"/>' for number in range(100))
    (tmp_path / "a.xml").write_text(f"<testsuite>{tests}</testsuite>")
    assert load("lib/tally.py").main([str(tmp_path), "--left-out", str(cases)]) == code
    assert f"left to --full: {cases} of {100 + cases} cases" in capsys.readouterr().out


def test_the_tally_names_the_test_in_which_a_suite_was_over_its_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "e2e.xml").write_text('<testsuite><testcase name="good"/></testsuite>')
    (tmp_path / "e2e.running").write_text("test_kill.py::test_one")
    assert load("lib/tally.py").main([str(tmp_path), "e2e=124", "python=137"]) == 1
    assert capsys.readouterr().out.splitlines()[1:] == [
        "FAILED   e2e: over its limit, in test_kill.py::test_one",
        "FAILED   python: ended with 137 and left no report",
        "1 passed, 2 failed, 0 skipped",
    ]


CTEST_REPORT = """\
<testsuite>
<testcase name="abi" classname="abi" status="run"><system-out>
-----
its functions are as the header has them
-----
../../test/abi_test.cc:79
.....

../../test/abi_test.cc:80: SKIPPED:
explicitly with message:
  the header is not on this machine: install the package that has it and
  name its folder

=====
test cases:  29 |  28 passed | 1 skipped
</system-out></testcase>
<testcase name="root" classname="root" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/><system-out>
/tree/root_test.cc:9: SKIPPED:

=====
test cases: 1 | 1 skipped
</system-out></testcase>
</testsuite>"""


def test_the_tally_counts_skips_inside_catch2_executables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "dev-ctest.xml").write_text(CTEST_REPORT)
    assert load("lib/tally.py").main([str(tmp_path), "dev-ctest=0"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "skipped  dev-ctest: abi.abi: abi_test.cc:80: the header is not on this machine: install the package"
        " that has it and name its folder",
        "skipped  dev-ctest: root.root: root_test.cc:9: no reason given",
        "1 passed, 0 failed, 2 skipped",
    ]


FAILED_REPORT = """\
<testsuite>
<testcase classname="t" name="asserts"><failure message="AssertionError: [0] begins&#10;&#10;assert 124 == 0">
def test_asserts(): ...</failure></testcase>
<testcase classname="t" name="errs"><error message="fixture">E</error></testcase>
<testcase name="races" classname="races" status="fail"><failure message=""/><system-out>first
MANY
SUMMARY: data race
</system-out></testcase>
</testsuite>"""


def test_the_tally_tells_how_each_failure_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "e2e.xml").write_text(FAILED_REPORT.replace("MANY", "more\n" * 20 + "x" * 1000))
    assert load("lib/tally.py").main([str(tmp_path), "e2e=1"]) == 1
    assert capsys.readouterr().out.splitlines()[1:] == [
        "FAILED   e2e: t.asserts",
        "         | AssertionError: [0] begins",
        "         | assert 124 == 0",
        "FAILED   e2e: t.errs",
        "         | fixture",
        "FAILED   e2e: races.races",
        *["         | more"] * 10,
        "         | " + "x" * 300,
        "         | SUMMARY: data race",
        "0 passed, 3 failed, 0 skipped",
    ]


GOOD = '<testsuite><testcase name="good"/></testsuite>'
BAD = '<testsuite><testcase name="good"/><testcase name="bad"><error message="x"/></testcase></testsuite>'


@pytest.mark.parametrize(
    ("report", "code", "line"),
    [
        (GOOD, 0, "1 passed, 0 failed, 0 skipped"),
        (BAD, 1, "1 passed, 1 failed, 0 skipped"),
        (GOOD, 2, "1 passed, 1 failed, 0 skipped"),  # interrupted
        ("<testsuite/>", 5, "0 passed, 1 failed, 0 skipped"),  # no test was found
        (GOOD[:30], 137, "0 passed, 1 failed, 0 skipped"),
        (None, 0, "0 passed, 1 failed, 0 skipped"),
    ],
)
def test_the_tally_sees_a_suite_that_stopped_early(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], report: str | None, code: int, line: str
) -> None:
    if report is not None:
        (tmp_path / "e2e.xml").write_text(report)
    assert load("lib/tally.py").main([str(tmp_path), f"e2e={code}"]) == (" 0 failed" not in line)
    assert capsys.readouterr().out.splitlines()[-1] == line


SOURCE = """\
#include <a>
#pragma GCC diagnostic push(x)
namespace a {
struct S {
  int f() {
    return 1;
  }
};
int g(int x) {
  const char* s = "}";
  auto l = [&] { return x; };
  // }
  return l();
}
}  // namespace a
"""


def test_function_lengths_see_past_namespaces_types_and_the_preprocessor() -> None:
    budgets = load("check_budgets.py")
    assert sorted(budgets.cxx_functions(SOURCE)) == [(5, 3), (9, 6)]
    assert budgets.shell_functions("f() {\n  true\n}\n") == [(1, 3)]


@pytest.mark.parametrize(
    "head",
    [
        "template <class T> void f(T a) {",
        "template <class T, class... Rest>\nrequires(std::is_same_v<T, int>)\nvoid f(T a, Rest... rest) {",
        'extern "C" int f() {',
        "void f(int a, Options o = {}) {",
        "void f(std::function<void()> g = [] { return; }, int a = 1) {",
        "static struct foo f() {",
        "X::X(int a) : a_(a) {",
        "[[nodiscard]] std::vector<int> X::f() const && {",
    ],
)
def test_every_kind_of_function_is_measured(head: str) -> None:
    text = f"namespace n {{\n{head}\n" + "  g();\n" * 100 + "}\n}\n"
    [(_, length)] = load("check_budgets.py").cxx_functions(text)
    assert length >= 102


@pytest.mark.parametrize(
    "head",
    [
        "class A final : public B {",
        "struct alignas(64) A {",
        "template <class T>\nstruct A<T*> {",
        "enum class E : int {",
    ],
)
def test_a_type_is_no_function(head: str) -> None:
    assert load("check_budgets.py").cxx_functions(f"{head}\n" + "  int a;\n" * 100 + "};\n") == []


def test_a_test_is_listed_by_its_own_path() -> None:
    listed = load("check_budgets.py").is_listed
    lists = {Path("test/unit"): "FILES net/socket_test.cc", Path("test/unit/net"): "FILES\n  secure_socket_test.cc)"}
    assert listed(Path("test/unit/net/secure_socket_test.cc"), lists)
    # not a match: the end of another name, and another folder's list
    assert not listed(Path("test/unit/net/socket_test.cc"), lists)
    assert listed(Path("test/unit/net/socket_test.cc"), {Path("test/unit"): lists[Path("test/unit")]})


TAGS = """\
!_TAG_FILE_FORMAT\t2\t/extended format/
count\ta/x.h\t/^  int count;$/;"\tm\tclass:n::X\ttyperef:typename:int
go\ta/x.h\t/^  void go();$/;"\tp\tclass:n::X\tsignature:()
go\ta/x.h\t/^inline void X::go() {$/;"\tf\tclass:n::X\tsignature:()
here\ta/x.h\t/^  int here() { return 1; }$/;"\tf\tclass:n::X\tsignature:()
here\ta/x.h\t/^  int here(int a) { return a; }$/;"\tf\tclass:n::X\tsignature:(int a)
go\ta/x.cc\t/^void X::go() {$/;"\tf\tclass:n::X\tsignature:()
free\ta/x.h\t/^void free();$/;"\tp\tsignature:()
"""


def test_members_of_a_class_are_counted_once() -> None:
    """A field, a method with its body elsewhere, and two methods defined in the class body."""
    [one] = load("lib/cxx_classes.py").classes_of(TAGS.splitlines()).values()
    assert (one.name, one.fields, one.members, one.files) == ("class:n::X", 1, 4, {"a/x.h"})


def test_large_classes_and_folders_are_faults_unless_excepted(monkeypatch: pytest.MonkeyPatch) -> None:
    budgets, used = load("check_budgets.py"), set[str]()
    assert budgets.large_classes({}, used) != []
    large = load("lib/cxx_classes.py").Class("class:n::X", fields=46, files={"runtime/base/x.h"})
    public = load("lib/cxx_classes.py").Class("class:n::Y", fields=50, files={"bindings/cpp/include/distrun/y.hpp"})
    found = {"class:n::X": large, "class:n::Y": public}
    assert budgets.large_classes(found, used) == ["class n::X: 46 members, at most 45"]
    monkeypatch.setattr(budgets, "EXCEPTIONS", {"class n::X": "a reason"})
    assert budgets.large_classes(found, used) == [] and used == {"class n::X"}
    folder = [Path(f"runtime/a/{number}.h") for number in range(25)]
    tests = [Path(f"test/a/{number}.cc") for number in range(40)]
    programs = [Path(f"test/programs/{number}.py") for number in range(50)]
    assert budgets.large_folders([*folder, *tests, *programs], used) == ["runtime/a: 25 source files, at most 24"]


def test_preprocessor_conditions_are_counted_per_thousand_lines() -> None:
    assert load("check_budgets.py").conditions(["#if A\n#endif\n", "# ifdef B\nint a;\n"]) == 500


def test_folder_cycles_are_found() -> None:
    floors = load("check_floors.py")
    assert floors.cycles({"a": {"a", "b"}, "b": {"c"}, "c": set()}) == []
    assert sorted(floors.cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}})) == [
        f"{folder}: is part of a cycle of folders" for folder in "abc"
    ]


def test_front_ends_that_python_may_import() -> None:
    check = load("check_floors.py").check_python
    program = "import distrun.numpy.ops\nfrom distrun import keras, errors\nimport_module('distrun.mxnet')\n"
    assert check("frameworks/tensorflow/x.py", program) == ["frameworks/tensorflow/x.py: may not import distrun.mxnet"]
    assert len(check("bindings/python/distrun/x.py", program)) == 3
    (fault,) = check("frameworks/torch/x.py", "import os\nos.environ.get('RANK')\n")
    assert fault.startswith("frameworks/torch/x.py:2: reads or writes the environment")
    assert check("frameworks/keras/_keras.py", "import os\nos.environ.get('TF_USE_LEGACY_KERAS')\n") == []


def shell(script: str) -> str:
    """The output of a script that has read common.sh."""
    command = ["bash", "-c", f'. "$0"\n{script}', str(ROOT / "scripts/lib/common.sh")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("gxx", "offered", "chosen"),
    [
        ("12", "19 16 15 14", "14"),  # Debian 12
        ("13", "18 17 16 15 14", "18"),  # Ubuntu 24.04
        ("14", "19 18 17", "19"),  # Debian 13
        ("12", "17 16", "17"),
        ("12", "", ""),
    ],
)
def test_clang_is_chosen_by_what_it_must_compile(gxx: str, offered: str, chosen: str) -> None:
    assert shell(f"choose_clang {gxx} {offered}").split() == chosen.split()


def test_catch2_is_installed_from_the_packages_that_a_release_has() -> None:
    backport = "3.7.1-0.4~bpo12+1"
    debian = f"catch2 | {backport} | one\ncatch2 | 2.13.10-1 | two\nlibcatch2-dev | {backport} | one\n"
    assert shell(f"printf %s '{debian}' | of_version '{backport}'").split() == [
        f"catch2={backport}",
        f"libcatch2-dev={backport}",
    ]
    ubuntu = "    catch2 | 3.4.0-1 | one\n    catch2 | 3.4.0-1 | two\n"
    assert shell(f"printf %s '{ubuntu}' | of_version 3.4.0-1").split() == ["catch2=3.4.0-1"]


def test_ctrl_c_ends_the_script_and_not_only_its_step(tmp_path: Path) -> None:
    """The step handles the signal, as pytest does."""
    there = tmp_path / "there"
    handles = f"import signal, sys\nsignal.signal(2, lambda *_: sys.exit(2))\nopen('{there}', 'w')\nsignal.pause()\n"
    (tmp_path / "step.py").write_text(handles)
    steps = f"step one {sys.executable} {tmp_path}/step.py || step two true"
    script = f". {ROOT}/scripts/lib/common.sh; LOGS={tmp_path}; {steps}"
    started = subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 60
    while not there.exists():
        assert time.monotonic() < deadline and started.poll() is None
        time.sleep(0.01)
    os.killpg(started.pid, signal.SIGINT)
    printed, _ = started.communicate(timeout=60)
    assert started.returncode == 130 and "two" not in printed, printed


def test_sudo_hands_on_the_proxy(tmp_path: Path) -> None:
    for name, text in (("sudo", 'echo "$@"'), ("id", "echo 1000")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    said = shell(f"PATH={tmp_path}:$PATH; unset no_proxy; export https_proxy=http://proxy:3128; apt_get_install x")
    assert "https_proxy=http://proxy:3128" in said and "no_proxy" not in said
    assert "-o DPkg::Lock::Timeout=600 install" in said


def test_two_runs_in_one_tree_are_refused(tmp_path: Path) -> None:
    """A file that a killed run has left counts only while a process with its number runs the same command."""
    start = f"LOGS={tmp_path}; no_other_run scripts/other; echo runs"
    other = subprocess.Popen(["sh", "-c", "sleep 60; : scripts/other"])
    try:
        (tmp_path / "other.pid").write_text(str(other.pid))
        refused = shell(f"({start}) 2>&1 || true")
        assert f"process {other.pid} already runs scripts/other in this tree" in refused and "runs\n" not in refused
        (tmp_path / "other.pid").write_text(str(os.getpid()))
        assert shell(start) == "runs\n"
    finally:
        other.kill()
        other.wait()
    assert shell(start) == "runs\n"


def test_without_a_home_the_compiler_s_cache_is_in_the_build_folder() -> None:
    tell = 'echo "${CCACHE_DIR:-its own}"'
    start = f". {ROOT}/scripts/lib/common.sh; {tell}"
    assert shell(f"unset CCACHE_DIR XDG_CACHE_HOME; HOME=/proc bash -c '{start}'").strip() == f"{ROOT}/build/ccache"
    assert shell(f"CCACHE_DIR=/elsewhere bash -c '{start}'").strip() == "/elsewhere"


def test_a_clang_counts_where_its_tidy_is_offered_too() -> None:
    names = [
        "clang-13",
        "clang-tidy-13",
        "clang-18",
        "clang-tidy-18",
        "clang-14",
        "clang-tidy-14",
        "clang-15",
        "clang-16-doc",
    ]
    assert shell(f"apt-cache() {{ printf '%s\\n' {' '.join(names)}; }}\noffered_clangs").split() == ["18", "14"]


@pytest.mark.parametrize("mine", [False, True])
def test_services_are_kept_from_starting_only_while_packages_are_installed(tmp_path: Path, mine: bool) -> None:
    """The policy of a killed run is removed. An administrator's policy stays."""
    policy = tmp_path / "policy-rc.d"
    text = shell("echo $POLICY_MARK") if mine else "#!/bin/sh\nexit 101\n"
    policy.write_text(text)
    install = f'as_root() {{ [ "$2" = update ] || cat "$POLICY"; [ $1 != apt-get ] && "$@" || true; }}; POLICY={policy}'
    printed = shell(f"{install}; apt_install some-package")
    assert "exit 101" in printed
    assert not policy.exists() if mine else policy.read_text() == text


def test_an_environment_whose_making_was_interrupted_is_made_again(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    assert "make the Python environment" in shell(f"VENV={tmp_path}/venv; need_venv; [ -x $VENV/bin/pip ]")
    assert shell(f"VENV={tmp_path}/venv; need_venv") == ""


def test_headers_of_other_versions_are_fetched_anew(tmp_path: Path) -> None:
    (tmp_path / "build/gpu-headers").mkdir(parents=True)
    need = f'ROOT={tmp_path}; step() {{ echo "$@"; }}; need_gpu_headers'
    packages = [word for word in shell(need).split() if "==" in word]
    assert any(word.startswith("nvidia-nccl") for word in packages)
    (tmp_path / "build/gpu-headers/made-of.txt").write_text(" ".join(packages) + "\n")
    assert shell(need) == ""


def test_somebody_elses_clone_is_listed() -> None:
    """root sees a user's clone in this way. A variable of git simulates it."""
    env = {"PATH": os.environ["PATH"], "GIT_TEST_ASSUME_DIFFERENT_OWNER": "1", "GIT_CONFIG_GLOBAL": "/dev/null",
           "GIT_CONFIG_SYSTEM": "/dev/null"}  # fmt: skip
    done = subprocess.run([sys.executable, ROOT / "scripts/check_docs.py"], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wheel_that_was_built_on_a_newer_machine_says_what_it_needs() -> None:
    wheel = load("check_wheel.py")
    needs = wheel.newest_versions(
        "0 DF *UND* 0 (GLIBC_2.9) open\n0 DF *UND* 0 (GLIBC_2.38) __isoc23_fscanf\n0 (GLIBCXX_3.4.32) x"
    )
    assert needs == {"GLIBC": (2, 38), "GLIBCXX": (3, 4, 32)}
    with pytest.raises(wheel.Skip, match=r"needs GLIBC_2\.38 and GLIBCXX_3\.4\.32, since this machine has glibc 2\.39"):
        wheel.judge_versions(needs, (2, 39))
    with pytest.raises(AssertionError, match=r"needs GLIBC_2\.38"):
        wheel.judge_versions(needs, (2, 36))
    wheel.judge_versions({"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29)}, (2, 39))


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a GPU: scripts/gpu_check would test it")
def test_gpu_check_says_that_nothing_was_tested(tmp_path: Path) -> None:
    wheel = tmp_path / "distrun-0-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("distrun-0.data/scripts/distrun", "")
    command = [ROOT / "scripts/gpu_check", wheel, "--python", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 77, done.stdout + done.stderr
    assert "nothing was tested: no NVIDIA GPU on this machine" in done.stdout


def test_gpu_check_leaves_mpi_out_only_where_distrun_says_why() -> None:
    why_not_mpi = load("lib/gpu_check.py").why_not_mpi
    refused = "(mpi: does not support cuda tensors (libmpi.so.40; no CUDA tensors: it is not GPU-aware)); x"
    assert why_not_mpi(f"distrun: {refused}\nmore").startswith("it is not GPU-aware")
    worlds = "libmpi.so.40 (Open MPI v4.1.4) puts this rank into a world of 1, and"
    assert why_not_mpi(f"not available: {worlds} these are 2 ranks").startswith(worlds)
    assert why_not_mpi("AssertionError: wrong sum") == ""


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("mpirun (Open MPI) 4.1.4", ""),
        ("mpirun (Open MPI) 5.0.8", ""),
        (
            "HYDRA build details:\n    Version:    4.0.2",
            "mpirun is not Open MPI's, which --mpi needs; it says: HYDRA build",
        ),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.9", "mpirun is not Open MPI's"),
        ("", "mpirun is not Open MPI's, which --mpi needs; it says: nothing"),
    ],
)
def test_gpu_check_passes_over_an_mpirun_of_another_mpi_and_may_be_root(
    version: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check = load("lib/gpu_check.py")
    started: list[dict[str, str]] = []
    monkeypatch.setattr(check.shutil, "which", lambda name: f"/usr/bin/{name}")

    def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        if command == ("mpirun", "--version"):
            return subprocess.CompletedProcess(command, 0, version, "")
        started.append(variables)
        return subprocess.CompletedProcess(command, 0, "", "")

    assert check.by_mpi(SimpleNamespace(python="python", command=tmp_path / "distrun", run=run), 2)
    said = capsys.readouterr().out
    if why:
        assert not started
        assert f"not run: {why}" in said
        return
    assert "ok" in said
    (variables,) = started
    assert variables["OMPI_ALLOW_RUN_AS_ROOT"] == variables["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] == "1"
    assert variables["PRTE_ALLOW_RUN_AS_ROOT"] == variables["PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"] == "1"


def test_gpu_check_tests_the_launcher_of_the_wheel(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plug-in beside the Python with torch may belong to another build."""
    check, ran = load("lib/gpu_check.py"), []

    def run(*command: str, **_: str) -> subprocess.CompletedProcess[str]:
        ran.append(command)
        return subprocess.CompletedProcess(command, 0, "23203", "")

    monkeypatch.setattr(check, "why_nothing", lambda _: "")
    environment = SimpleNamespace(python="python", command="/wheel/distrun", ask=lambda _: "1", run=run)
    assert check.check(SimpleNamespace(np=0, nccl_tests=""), environment) == 0
    (tests,) = (command for command in ran if "pytest" in command)
    assert tests[tests.index("--command") + 1] == "/wheel/distrun"
    monkeypatch.setattr(pytestconfig.option, "command", "/wheel/distrun", raising=False)
    assert find_command(pytestconfig) == "/wheel/distrun"


def test_ranks_share_a_gpu_only_where_nccl_can(capsys: pytest.CaptureFixture[str]) -> None:
    choose_ranks = load("lib/gpu_check.py").choose_ranks
    assert choose_ranks(0, 4, 23203) == (4, {})
    assert choose_ranks(0, 1, 23203) == (2, {"NCCL_MULTI_RANK_GPU_ENABLE": "1"})
    assert capsys.readouterr().out == ""
    assert choose_ranks(0, 1, 22003) == (1, {})
    assert "ranks cannot share a GPU before NCCL 2.30" in capsys.readouterr().out


def test_a_picture_of_a_terminal_breaks_lines_at_spaces_only() -> None:
    terminal = load("lib/terminal.py")
    words = "".join(f"{'x' * (3 + n % 7)} " for n in range(60)).rstrip()
    ends = [*terminal.breaks(words), len(words)]
    parts = [words[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    assert len(parts) > 3 and [word for part in parts for word in part.split()] == words.split()
    assert max(len(part.rstrip()) for part in parts) <= terminal.COLUMNS
    assert terminal.breaks("x" * terminal.COLUMNS) == [] and terminal.breaks(f"{'x' * terminal.COLUMNS} y") == [111]
    with pytest.raises(ValueError, match="a word has more than 110 columns"):
        terminal.breaks("x " + "y" * 111)
