"""The wrappers of distrun --tf-keras3-mwms, --torch-backend and --encrypt do not change the program.
test/e2e/frameworks has the tests with real Keras, test_c10d.py those with torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, sys
print(json.dumps([__name__, __file__, sys.argv[1:], sys.path, sys.modules["__main__"].__dict__ is globals()]))
sys.exit(3)
"""


@pytest.mark.parametrize("module", ["distrun._keras3_mwms", "distrun._torch_backend", "distrun._protected"])
@pytest.mark.parametrize("command", [["sub/x.py", "-m", "a"], ["-m", "sub.x", "a"], ["-m", "sub"]])
def test_a_program_runs_as_without_it(tmp_path: Path, command: list[str], module: str) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("x.py", "__main__.py"):
        (tmp_path / "sub" / name).write_text(PROGRAM)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )

    plain, mended = run(*command), run("-m", module, *command)
    assert plain.returncode == mended.returncode == 3, mended.stderr
    assert mended.stdout == plain.stdout
