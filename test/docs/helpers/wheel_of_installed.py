"""Writes a wheel of the distrun that this Python has into a folder, and empty wheels of other packages beside it.

A page that shows how to install distrun needs no compiler then, and no network: wheel_of_installed.py FOLDER
"""

from __future__ import annotations

import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

EMPTY = ("optax", "tensorflow")  # what a page installs with distrun
INFO = "{name}-{version}.dist-info"


def write(folder: Path, name: str, version: str, files: dict[str, bytes]) -> None:
    info = INFO.format(name=name, version=version)
    tag = "py3-none-any"
    files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n".encode(),
    } | files
    with zipfile.ZipFile(folder / f"{name}-{version}-{tag}.whl", "w", zipfile.ZIP_STORED) as wheel:
        for path, content in files.items():
            member = zipfile.ZipInfo(path)
            member.external_attr = 0o755 << 16
            wheel.writestr(member, content)
        wheel.writestr(f"{info}/RECORD", "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"]))


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    installed = distribution("distrun")
    info = INFO.format(name="distrun", version=installed.version)
    files = {}
    for path in installed.files or []:
        if path.name in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "WHEEL") or path.suffix == ".pyc":
            continue
        is_program = path.parts[0] == ".." and path.parent.name == "bin"
        target = f"{info.removesuffix('.dist-info')}.data/scripts/{path.name}" if is_program else path.as_posix()
        files[target] = Path(str(path.locate())).read_bytes()
    write(folder, "distrun", installed.version, files)
    for name in EMPTY:
        write(folder, name, "0", {})


if __name__ == "__main__":
    main()
