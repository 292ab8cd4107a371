"""The terminal sessions of docs/diagrams/, which are drawn as pictures, are what distrun prints today."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from .compare import differences
from .pages import LEFT_OUT, Page
from .run_page import ROOT, search_path

DIAGRAMS = ROOT / "docs/diagrams"
# distrun may have to end some of the other ranks.
VARIES_FROM = "distrun: 3 other ranks "


@pytest.mark.slow
@pytest.mark.parametrize("session", sorted(DIAGRAMS.glob("*.session")), ids=lambda path: path.stem)
def test_session_is_up_to_date(session: Path, tmp_path: Path) -> None:
    prompt, *shown = session.read_text().splitlines()
    shutil.copy(session.with_suffix(".py"), tmp_path / "train.py")
    env = os.environ | {"PATH": search_path(Page())}
    done = subprocess.run(
        ["sh", "-c", prompt.removeprefix("$ ")], cwd=tmp_path, env=env, text=True, capture_output=True, timeout=60
    )
    varies = next((i for i, line in enumerate(shown) if line.startswith(VARIES_FROM)), len(shown))
    constant = shown[:varies]
    found = differences([*constant, LEFT_OUT], done.stdout + done.stderr)
    assert found == [], "\n".join([*found, "", "scripts/diagrams --record draws it anew"])
