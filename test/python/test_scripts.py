"""The house's own scripts: the parts that decide something are right about it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def load(name: str) -> ModuleType:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        spec = importlib.util.spec_from_file_location(Path(name).stem, ROOT / "scripts" / name)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
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


def test_folder_cycles_are_found() -> None:
    floors = load("check_floors.py")
    assert floors.cycles({"a": {"a", "b"}, "b": {"c"}, "c": set()}) == []
    assert sorted(floors.cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}})) == [
        f"{folder}: is part of a cycle of folders" for folder in "abc"
    ]


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a GPU: scripts/gpu_check would test it")
def test_gpu_check_says_that_nothing_was_tested(tmp_path: Path) -> None:
    wheel = tmp_path / "distrun-0-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("distrun-0.data/scripts/distrun", "")
    command = [ROOT / "scripts/gpu_check", wheel, "--python", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 77, done.stdout + done.stderr
    assert "nothing was tested: no NVIDIA GPU on this machine" in done.stdout


def test_ranks_share_a_gpu_only_where_nccl_can(capsys: pytest.CaptureFixture[str]) -> None:
    choose_ranks = load("lib/gpu_check.py").choose_ranks
    assert choose_ranks(0, 4, 23203) == (4, {})
    assert choose_ranks(0, 1, 23203) == (2, {"NCCL_MULTI_RANK_GPU_ENABLE": "1"})
    assert capsys.readouterr().out == ""
    assert choose_ranks(0, 1, 22003) == (1, {})
    assert "ranks cannot share a GPU before NCCL 2.30" in capsys.readouterr().out
