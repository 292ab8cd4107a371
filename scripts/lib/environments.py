"""The virtual environments of the tests, from scripts/lib/environments.ini.

environments.py names plain|full    prints those of scripts/test and of scripts/test --full, one per line
environments.py make NAME           makes build/environments/NAME, unless it exists with these packages
environments.py pinned NAME...      prints these packages of .venv with versions, for pip
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from configparser import ConfigParser, SectionProxy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_suffix(".ini")
FOLDER = ROOT / "build/environments"
SITE = "import sysconfig; print(sysconfig.get_path('purelib'))"


def read() -> ConfigParser:
    found = ConfigParser(interpolation=None)
    found.read_string(LIST.read_text())
    return found


def names(mode: str) -> list[str]:
    modes = {"plain": ["plain"], "full": ["plain", "full"]}[mode]
    return [name for name, section in read().items() if section.get("made by") in modes]


def pinned(wanted: list[str]) -> list[str]:
    lines = read()[".venv"]["packages"].split()
    by_name = {re.split("[=>]=", line)[0]: line for line in lines}
    return [by_name[name] for name in wanted] or lines


def find_python(version: str) -> str | None:
    """Returns a CPython of this version: the running one, one on PATH, or pyenv's. None if there is none."""
    installed = Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")
    for candidate in [sys.executable, f"python{version}", *map(str, installed)]:
        path = shutil.which(candidate)
        if path is None:
            continue
        answer = subprocess.run([path, "-c", "import sys; print(sys.version)"], capture_output=True, text=True)
        if answer.returncode == 0 and answer.stdout.startswith(version + "."):
            return path
    return None


def python_for(section: SectionProxy) -> str | None:
    """Returns the running Python if the section supports it, else the newest supported one."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    versions = section.get("pythons", own).split()
    order = sorted(versions, key=lambda version: (version == own, versions.index(version)), reverse=True)
    return next((python for version in order if (python := find_python(version))), None)


def install(folder: Path, python: str, section: SectionProxy) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    wanted = folder / "requirements.txt"
    for packages, options in ((section["packages"], []), (section.get("alone", ""), ["--no-deps"])):
        wanted.write_text(packages)
        # Compiling all modules takes half of the time. An import compiles the modules that are used.
        pip = [str(folder / "bin/python"), "-m", "pip", "install", "-q", "--no-compile"]
        subprocess.run([*pip, *options, "-r", str(wanted)], check=True)


def link_distrun(folder: Path) -> None:
    """Links the package and the command of the running environment's distrun. It may be installed later."""
    site = subprocess.run([folder / "bin/python", "-c", SITE], capture_output=True, text=True, check=True).stdout
    package, command = Path(sysconfig.get_path("purelib")) / "distrun", Path(sys.executable).with_name("distrun")
    for link, target in ((Path(site.strip()) / "distrun", package), (folder / "bin/distrun", command)):
        link.unlink(missing_ok=True)
        link.symlink_to(target)


def make(name: str) -> None:
    section = read()[name]
    folder = FOLDER / name
    # Written last: an environment without this file is unfinished, and is made again.
    made, content = folder / "made-of.txt", "".join(f"{key} = {value}\n" for key, value in section.items())
    if not made.exists() or made.read_text() != content:
        python = python_for(section)
        if python is None:
            print(f"not made: needs one of Python {section['pythons']}; its tests skip and say so")
            return
        install(folder, python, section)
        made.write_text(content)
    link_distrun(folder)


def main(arguments: list[str]) -> int:
    if arguments[0] == "make":
        make(arguments[1])
    else:
        print(*(names(arguments[1]) if arguments[0] == "names" else pinned(arguments[1:])), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
