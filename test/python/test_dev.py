"""scripts/dev: the tests that an edit concerns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .test_scripts import load

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("path", "test"),
    [
        ("runtime/engine/agreement/coordinator.cc", "test/unit/engine/coordinator_test.cc"),
        ("runtime/net/identity/job_key.cc", "test/unit/net/job_key_test.cc"),
        ("launcher/report/lines/fold.cc", "test/unit/launcher/report/fold_test.cc"),
        ("runtime/base/settings.def", "test/unit/base/settings_test.cc"),
        ("test/unit/net/wire_test.cc", "test/unit/net/wire_test.cc"),
    ],
)
def test_an_edit_in_cxx_runs_the_tests_that_include_the_file(path: str, test: str) -> None:
    assert test in load("lib/dev_cxx.py").Includes().tests_of(path)


def test_an_edit_of_one_folder_runs_no_test_of_another() -> None:
    chosen = load("lib/dev_cxx.py").Includes().tests_of("launcher/report/lines/fold.cc")
    assert chosen == ["test/unit/launcher/report/fold_test.cc"]


def test_an_edit_in_python_runs_the_checks_that_name_what_it_defines() -> None:
    choice = load("lib/dev_python.py").Choice()
    sampler = choice.program("distrun.torch.sampler")
    assert sampler.path.endswith("/shares_and_join.py") and "check_sampler" in sampler.checks
    reducer = choice.unit_tests("distrun.torch._reducer")
    assert any("test_world_of_one.py::" in name for name in reducer), reducer


def test_every_file_of_the_product_has_a_test() -> None:
    dev = load("lib/dev.py")
    listed = load("lib/tree.py").files(".cc", ".h", ".hpp", ".c", ".cu", ".def", ".py", under=dev.PRODUCT)
    without = dev.choose([path.as_posix() for path in listed]).nothing
    assert without == []
    assert all((ROOT / source).exists() for source in dev.choose(["runtime/base/log.cc"]).sources)


def test_paths_are_those_of_the_folder_where_it_is_typed(capsys: pytest.CaptureFixture[str]) -> None:
    assert load("lib/dev.py").main(["--from", str(ROOT / "bindings/python/distrun"), "--list", "_hooks.py"]) == 0
    assert "test/python/test_hooks.py::" in capsys.readouterr().out


@pytest.mark.parametrize("path", ["no/such/file.cc", "launcher", "/etc/passwd"])
def test_what_is_no_file_of_the_tree_is_refused(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert load("lib/dev.py").main([path]) == 2
    assert Path(path).name in capsys.readouterr().err


def test_where_nothing_is_run_nothing_has_passed(capsys: pytest.CaptureFixture[str]) -> None:
    assert load("lib/dev.py").main(["docs/diagrams/floors.svg"]) == 2
    assert capsys.readouterr().out.endswith("nothing was run: these files have no test\n")
    assert load("lib/dev.py").main(["README.md"]) == 0


@pytest.mark.parametrize(
    ("path", "library"),
    [("bindings/tensorflow/ops.cc", "distrun_tensorflow"), ("frameworks/jax/functions.py", "distrun_jax")],
)
def test_what_a_framework_loads_is_built(path: str, library: str) -> None:
    assert library in load("lib/dev.py").choose([path]).native


def test_the_package_has_everything_that_is_in_the_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dev = load("lib/dev.py")
    libraries = tmp_path / "build/runtime/api"
    libraries.mkdir(parents=True)
    for name in ("libdistrun.so", "libdistrun_jax.so"):
        (libraries / name).touch()
    monkeypatch.setattr(dev, "BUILD", tmp_path / "build")
    monkeypatch.setattr(dev, "PACKAGE", tmp_path / "package/distrun")
    dev.stage_package()
    staged = {path.name for path in (tmp_path / "package/distrun").iterdir()}
    own = {path.name for path in (ROOT / "bindings/python/distrun").iterdir()} - {"__pycache__"}
    assert staged >= own | {"torch", "jax", "lib"}, own - staged
    assert (tmp_path / "package/distrun/lib/libdistrun_jax.so").resolve() == libraries / "libdistrun_jax.so"


def test_the_rules_name_tests_that_are_there() -> None:
    """An outdated name would silently run nothing."""
    text = "\n".join((ROOT / path).read_text() for path in load("lib/tree.py").files("CMakeLists.txt", under=["test"]))
    for rule in load("lib/dev.py").all_rules():
        if rule.startswith("ctest "):
            name = rule.removeprefix("ctest ").split("\\")[0]
            assert re.search(rf"(distrun_test|conformance_test|mpi_test|add_executable)\({name}\s", text), rule
        else:
            assert (ROOT / rule.split()[0]).exists(), rule
