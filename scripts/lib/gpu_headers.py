"""The headers of CUDA and NCCL from PyPI, against which test/backend/nccl/abi_test.cc holds our own declarations.

gpu_headers.py FOLDER name==version ...: all their header files, in FOLDER as one include folder in place of what was
there, and made-of.txt, which names them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path


def unpack(wheel: Path, to: Path) -> None:
    """What lies below `include` in a wheel, whatever the folder is in which that lies."""
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
        headers.rename(to)  # whole or not at all: who finds the folder takes it for complete


if __name__ == "__main__":
    main()
