"""How the command finds the parts of its installation: --cflags, --libs, check."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from ..conftest import launcher_path


def test_compiler_and_linker_flags_of_an_installation_at_a_path_with_a_space(tmp_path: Path) -> None:
    prefix = tmp_path / "a (new) place"
    for name in ("bin/distrun", "lib/libdistrun.so", "include/distrun/distrun.h"):
        (prefix / name).parent.mkdir(parents=True)
        (prefix / name).touch()
    shutil.copy(launcher_path(), prefix / "bin/distrun")
    done = subprocess.run([prefix / "bin/distrun", "--cflags", "--libs"], capture_output=True, text=True, check=True)
    expected = [f"-I{prefix}/include", f"-L{prefix}/lib", f"-Wl,-rpath,{prefix}/lib", "-ldistrun"]
    assert shlex.split(done.stdout) == expected


@pytest.mark.parametrize(
    "package", ["distrun", "lib/python3.12/site-packages/distrun", "lib/pypy3.10/site-packages/distrun"]
)
def test_flags_of_a_wheel_with_and_without_a_target_of_its_own(tmp_path: Path, package: str) -> None:
    for name in ("lib/libdistrun.so", "include/distrun/distrun.h"):
        (tmp_path / package / name).parent.mkdir(parents=True)
        (tmp_path / package / name).touch()
    (tmp_path / "bin").mkdir()
    shutil.copy(launcher_path(), tmp_path / "bin/distrun")
    done = subprocess.run([tmp_path / "bin/distrun", "--cflags", "--libs"], capture_output=True, text=True, check=True)
    lib = tmp_path / package / "lib"
    assert done.stdout.split() == [f"-I{tmp_path / package}/include", f"-L{lib}", f"-Wl,-rpath,{lib}", "-ldistrun"]


def test_of_several_pythons_installations_the_last_counts(tmp_path: Path) -> None:
    """After an upgrade of the system, several Pythons share one place for commands."""
    command = tmp_path / "bin/distrun"
    homes = [tmp_path / f"lib/python3.{minor}/site-packages/distrun" for minor in (10, 11, 12)]
    for name in ("bin", *(f"{home}/{folder}" for home in homes for folder in ("lib", "include/distrun"))):
        (tmp_path / name).mkdir(parents=True)
    shutil.copy(launcher_path(), command)
    changed = 0
    for home in (*homes, homes[1]):
        library = home / "lib/libdistrun.so"
        library.touch()
        while library.stat().st_ctime_ns <= changed:  # the kernel's clock for file times has a coarse resolution
            library.touch()
        changed = library.stat().st_ctime_ns
        (home / "include/distrun/distrun.h").touch()
        done = subprocess.run([command, "--cflags", "--libs"], capture_output=True, text=True, check=True)
        assert done.stdout.split()[:2] == [f"-I{home}/include", f"-L{home}/lib"]
    done = subprocess.run([command, "check", "--build"], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert f"library: {homes[1]}/lib/libdistrun.so" in lines, done.stdout
    older = " ".join(f"{home}/lib/libdistrun.so" for home in (homes[2], homes[0]))
    assert f"older installations, not used by this program: {older}" in lines, done.stdout


@pytest.mark.parametrize(("flag", "missing"), [("--cflags", "distrun/distrun.h"), ("--libs", "libdistrun.so")])
def test_flags_of_an_installation_without_its_parts_are_an_error(tmp_path: Path, flag: str, missing: str) -> None:
    (tmp_path / "bin").mkdir()
    shutil.copy(launcher_path(), tmp_path / "bin/distrun")
    done = subprocess.run([tmp_path / "bin/distrun", flag], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (69, "")
    assert f"{missing} was not found" in done.stderr and f" {tmp_path}/distrun\n" in done.stderr, done.stderr
