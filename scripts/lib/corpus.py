"""`corpus.py unpack FILE FOLDER`, `corpus.py pack FOLDER FILE`: converts fuzz inputs between files and hex lines."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path


def unpack(packed: Path, folder: Path) -> None:
    for line in packed.read_text().split():
        data = bytes.fromhex(line)
        (folder / hashlib.sha1(data).hexdigest()).write_bytes(data)


def pack(folder: Path, packed: Path) -> None:
    inputs = {file.read_bytes() for file in folder.iterdir()}
    lines = sorted((data.hex() for data in inputs if data), key=lambda line: (len(line), line))
    packed.write_text("".join(line + "\n" for line in lines))


{"unpack": unpack, "pack": pack}[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
