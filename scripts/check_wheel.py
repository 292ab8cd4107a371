#!/usr/bin/env python3
"""Checks the wheel: its name, the needs of its native files, and that it works alone.

    check_wheel.py dist/distrun-*.whl [--junit FILE]
    check_wheel.py dist/distrun-*.whl --needs       only says which glibc it needs
    check_wheel.py dist/distrun-*.whl --twice       only builds it twice more, in two folders, and compares all three

Native files: glibc at most 2.34, GLIBCXX at most 3.4.29. This check is skipped, with the needed versions, if this
machine's headers are too new; the wheel then serves machines of its age. DT_NEEDED is within libc, libm, libstdc++,
libgcc_s and ld-linux; a plug-in may add its own library. The files have the hardening of cmake/DistrunHardening.cmake
and no path of this machine. The SBOM names the same libraries as licenses/. Then, for each CPython 3.10 to 3.13 found:
an empty environment, no compiler on PATH, an installation, a job of two ranks; and an editable install of the tree.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from lib.environments import find_python

ROOT = Path(__file__).resolve().parents[1]
GLIBC = (2, 34)
GLIBCXX = (3, 4, 29)
# From 2.38 on, the headers use new functions (__isoc23_strtol) in C++, and the g++ of that time adds its own.
TOO_NEW = (2, 38)
NEEDED = {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"}
VERSIONS = ("3.10", "3.11", "3.12", "3.13")
PROGRAM = """
import distrun.numpy as hvd, numpy as np
hvd.init()
assert hvd.allreduce(np.ones(3, np.float32), op=hvd.Sum, name="x")[0] == hvd.size() == 2
print("works", hvd.rank())
"""


class Skip(Exception):
    """A check cannot run on this machine. The text says why."""


def run(*command: str | Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=env, timeout=600)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def native_files(folder: Path) -> list[Path]:
    found = [path for path in folder.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
    assert found, "the wheel has no native file"
    return found


def check_name(wheel: Path, _: Path) -> None:
    assert re.fullmatch(r"distrun-[\w.]+-py3-none-linux_x86_64\.whl", wheel.name), wheel.name


def check_contents(_: Path, folder: Path) -> None:
    names = {path.name for path in folder.rglob("*")}
    wanted = {"libdistrun.so", "distrun", "distrun.h", "distrun-config.cmake", "__init__.py", "py.typed"}
    wanted |= {path.name for path in (ROOT / "bindings/cpp/include/distrun").iterdir()}
    wanted |= {f"libdistrun_{name}.so" for name in ("backend_gloo", "backend_mpi", "backend_nccl", "jax", "tensorflow")}
    wanted |= {"LICENSE", "CLI11.txt", "libsodium.txt", "distrun_protected.pth"}
    assert wanted <= names, f"missing from the wheel: {sorted(wanted - names)}"


def newest_versions(symbols: str) -> dict[str, tuple[int, ...]]:
    """Returns the newest versions of glibc and libstdc++ in the output of objdump -T."""
    found: dict[str, tuple[int, ...]] = {}
    for prefix, text in re.findall(r"\((GLIBC|GLIBCXX)_([\d.]+)\)", symbols):
        found[prefix] = max(found.get(prefix, ()), numbers(text))
    return found


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))


def judge_versions(needs: dict[str, tuple[int, ...]], machine: tuple[int, ...]) -> None:
    """Fails if a wheel needs newer versions than promised. `machine` is the glibc of the machine that built it."""
    limits = {"GLIBC": GLIBC, "GLIBCXX": GLIBCXX}
    beyond = [f"{name}_{'.'.join(map(str, found))}" for name, found in sorted(needs.items()) if found > limits[name]]
    if beyond and machine >= TOO_NEW:
        here = ".".join(map(str, machine))
        raise Skip(
            f"needs {' and '.join(beyond)}, since this machine has glibc {here}; build it on Debian 12 for others"
        )
    assert not beyond, f"needs {' and '.join(beyond)}, at most {limits}"


def needs_of(folder: Path) -> dict[str, tuple[int, ...]]:
    return newest_versions("".join(run("objdump", "-T", path) for path in native_files(folder)))


def check_symbol_versions(_: Path, folder: Path) -> None:
    judge_versions(needs_of(folder), numbers(os.confstr("CS_GNU_LIBC_VERSION") or ""))


def check_needed(_: Path, folder: Path) -> None:
    for path in native_files(folder):
        needed = set(re.findall(r"NEEDED\s+(\S+)", run("objdump", "-p", path)))
        extra = needed - NEEDED
        allowed = 1 if "plugins" in path.parts else 0
        assert len(extra) <= allowed, f"{path.name} needs {sorted(extra)}"


def check_exports(_: Path, folder: Path) -> None:
    (library,) = folder.rglob("libdistrun.so")
    defined = re.findall(r"^[0-9a-f]+ [TDBRVW] (\S+)$", run("nm", "-D", "--defined-only", library), re.MULTILINE)
    strays = [name for name in defined if not name.startswith("distrun_")]
    assert defined and not strays, f"libdistrun.so exports {strays[:5]}"


def check_hardening(_: Path, folder: Path) -> None:
    """Checks the headers of each file, and the fortified functions of the C library that it calls."""
    called = {}
    for path in native_files(folder):
        headers = run("readelf", "-hldW", path)
        assert re.search(r"^ *GNU_RELRO ", headers, re.MULTILINE), f"{path.name} has no read-only relocations (relro)"
        assert "BIND_NOW" in headers, f"{path.name} binds lazily, so relro does not cover its table of functions"
        assert re.search(r"^ *GNU_STACK .* RW +0x", headers, re.MULTILINE), f"the stack of {path.name} is executable"
        assert " DYN (" in headers, f"{path.name} is not position-independent"
        assert "INTERP" not in headers or re.search(r"FLAGS_1.*\bPIE\b", headers), f"{path.name} is no PIE"
        rpaths = re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", headers)
        assert not rpaths, f"{path.name} looks for libraries in {rpaths}"
        called[path.name] = set(re.findall(r" U (\w+)@", run("nm", "-D", "--undefined-only", path)))
        assert "__stack_chk_fail" in called[path.name], f"{path.name} has no stack protector"
    for name in ("libdistrun.so", "distrun"):
        assert any(function.endswith("_chk") for function in called[name]), f"{name} calls no fortified function"


def check_paths(_: Path, folder: Path) -> None:
    here = str(ROOT).encode()
    copied = [
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and here in path.read_bytes()
    ]
    assert not copied, f"the folder of this build stands in {copied}"


def check_sbom(_: Path, folder: Path) -> None:
    (path,) = folder.glob("*.dist-info/sboms/*.cdx.json")
    bom = json.loads(path.read_text())
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.6"), bom
    components = {component["name"]: component for component in bom["components"]}
    licensed = {path.stem for path in (ROOT / "licenses").glob("*.txt")}
    assert set(components) == licensed, f"the SBOM has {sorted(components)}, and licenses/ has {sorted(licensed)}"
    headers = {"libsodium": "sodium/version.h", "CLI11": "CLI/Version.hpp"}
    for name, component in components.items():
        source = f"#include <{headers[name]}>\nSODIUM_VERSION_STRING CLI11_VERSION\n"
        done = subprocess.run(["c++", "-xc++", "-E", "-"], input=source, capture_output=True, text=True, check=True)
        assert f'"{component["version"]}"' in done.stdout, f"{name} {component['version']} is not what was compiled"
        assert component["purl"].endswith(component["version"]) and component["licenses"], component
    references = {bom["metadata"]["component"]["bom-ref"], *(part["bom-ref"] for part in bom["components"])}
    (dependencies,) = bom["dependencies"]
    assert {dependencies["ref"], *dependencies["dependsOn"]} == references, dependencies


def copy_tree(to: Path) -> None:
    """Copies the files that git tracks, in their present state."""
    if not (ROOT / ".git").exists():
        raise Skip("this tree is not git's, so its sources are not told from what was built")
    for name in run("git", "-C", ROOT, "ls-files", "-z").split("\0"):
        if name and (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, to / name)
            (to / name).chmod((ROOT / name).stat().st_mode)


def build_again(folder: Path, umask: int, **environment: str) -> Path:
    """Builds the wheel of a copy of the tree in `folder`."""
    copy_tree(folder)
    env = {**os.environ, "CCACHE_BASEDIR": str(folder), "CCACHE_NOHASHDIR": "1", **environment}
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", "out", "."]
    subprocess.run(command, cwd=folder, env=env, umask=umask, check=True, timeout=1800)
    (wheel,) = (folder / "out").glob("*.whl")
    return wheel


def check_twice(wheel: Path) -> None:
    """Checks that two copies in two folders, with two umasks, with and without ccache, build the same bytes as
    `wheel`."""
    ours = {item.filename: item.CRC for item in zipfile.ZipFile(wheel).infolist()}
    whole = hashlib.sha256(wheel.read_bytes()).hexdigest()
    with tempfile.TemporaryDirectory() as folder:
        others = [
            build_again(Path(folder) / "a", 0o022),
            build_again(Path(folder) / "another/copy", 0o077, CCACHE_DISABLE="1"),
        ]
        for other in others:
            theirs = {item.filename: item.CRC for item in zipfile.ZipFile(other).infolist()}
            different = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
            assert not different, f"the wheel of {other.parents[1]} differs in {different}"
            theirs_whole = hashlib.sha256(other.read_bytes()).hexdigest()
            assert theirs_whole == whole, f"the members are the same in the wheel of {other.parents[1]}, sha256 is not"
    print(f"ok       three builds, one sha256: {whole}")


def run_job(environment: Path) -> None:
    """Runs two ranks in a virtual environment. PATH is only its own bin: no compiler, and no other distrun."""
    bin_folder = environment / "bin"
    program = environment / "program.py"
    program.write_text(PROGRAM)
    env = {"PATH": str(bin_folder), "HOME": str(environment), "VIRTUAL_ENV": str(environment)}
    out = run(bin_folder / "distrun", "-np", "2", bin_folder / "python", program, env=env)
    assert "works 0" in out and "works 1" in out, out
    run(bin_folder / "distrun", "check", "--build", env=env)


def make_environment(python: str, folder: str) -> None:
    run(python, "-m", "venv", "--without-pip", folder)


def install(folder: str, *words: str | Path) -> None:
    """Installs with this Python's pip. It takes long to install pip in each environment and to compile all modules."""
    run(sys.executable, "-m", "pip", "--python", Path(folder) / "bin/python", "install", "-q", "--no-compile", *words)


def check_python(version: str) -> Callable[[Path, Path], None]:
    def check(wheel: Path, _: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            python = find_python(version)
            if python is None:
                raise Skip(f"Python {version} is not on this machine")
            make_environment(python, folder)
            install(folder, wheel, "numpy")
            run_job(Path(folder))

    return check


def check_editable(_: Path, __: Path) -> None:
    """Checks `pip install -e .`: Python comes from the source tree, native files from the environment."""
    with tempfile.TemporaryDirectory() as folder:
        make_environment(sys.executable, folder)
        install(folder, "scikit-build-core>=1.0", "numpy")
        install(folder, "--no-build-isolation", "--no-deps", "-e", ROOT)
        run_job(Path(folder))
        where = run(Path(folder) / "bin/python", "-c", "import distrun; print(distrun.__file__)").strip()
        assert Path(where) == ROOT / "bindings/python/distrun/__init__.py", where


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--junit", type=Path)
    parser.add_argument("--needs", action="store_true")
    parser.add_argument("--twice", action="store_true")
    options = parser.parse_args()
    wheel = options.wheel.resolve()
    checks: dict[str, Callable[[Path, Path], None]] = {
        "name": check_name,
        "contents": check_contents,
        "symbol versions": check_symbol_versions,
        "needed libraries": check_needed,
        "exports": check_exports,
        "hardening": check_hardening,
        "paths": check_paths,
        "sbom": check_sbom,
        "editable install": check_editable,
        **{f"python {version}": check_python(version) for version in VERSIONS},
    }
    if options.twice:
        try:
            check_twice(wheel)
        except Skip as skip:
            print(f"skipped  {skip}")
        return 0
    suite = ElementTree.Element("testsuite", name="wheel")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        zipfile.ZipFile(wheel).extractall(folder)
        if options.needs:
            needs = {name: ".".join(map(str, version)) for name, version in needs_of(Path(folder)).items()}
            print(f"it needs glibc {needs['GLIBC']} and libstdc++'s GLIBCXX_{needs['GLIBCXX']}, or newer")
            return 0
        for name, check in checks.items():
            case = ElementTree.SubElement(suite, "testcase", classname="wheel", name=name)
            try:
                check(wheel, Path(folder))
                print(f"ok       {name}")
            except Skip as skip:
                ElementTree.SubElement(case, "skipped", message=str(skip))
                print(f"skipped  {name}: {skip}")
            except Exception:
                failed += 1
                ElementTree.SubElement(case, "failure").text = traceback.format_exc()
                print(f"FAILED   {name}\n{traceback.format_exc()}")
    if options.junit:
        ElementTree.ElementTree(suite).write(options.junit)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
