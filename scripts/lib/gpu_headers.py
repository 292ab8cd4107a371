"""Gets the headers of CUDA and NCCL from PyPI. test/backend/nccl/abi_test.cc compares our declarations with them.

gpu_headers.py FOLDER name==version ...: replaces FOLDER by one include folder with all header files of these packages,
and made-of.txt with the packages.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path


def unpack(wheel: Path, to: Path) -> None:
    """Extracts the files below a folder `include` of a wheel, wherever that folder is."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            _, found, name = member.filename.partition("/include/")
            if found and not member.is_dir():
                path = to / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(member))


def main() -> None:
    to, packages = Path(sys.argv[1]), sys.argv[2:]
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=to.parent) as folder:
        wheels, headers = Path(folder, "wheels"), Path(folder, "headers")
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(wheels), *packages]
        subprocess.run(command, check=True)
        for wheel in wheels.iterdir():
            unpack(wheel, headers)
        (headers / "made-of.txt").write_text(" ".join(packages) + "\n")
        shutil.rmtree(to, ignore_errors=True)
        headers.rename(to)  # atomic, because an existing folder counts as complete


if __name__ == "__main__":
    main()
