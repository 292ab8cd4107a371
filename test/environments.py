"""The Pythons of the virtual environments that scripts/test makes. scripts/lib/environments.ini lists them.

TEST_ENVIRONMENT_<NAME> names a folder to use instead of one: TEST_ENVIRONMENT_TENSORFLOW_2_18=/opt/tf218.
"""

from __future__ import annotations

import os
import re
from configparser import ConfigParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def variable(name: str) -> str:
    return "TEST_ENVIRONMENT_" + re.sub(r"\W", "_", name).upper()


def find_environment(name: str) -> Path | None:
    """The environment's Python, or None if it does not exist."""
    folder = os.environ.get(variable(name)) or ROOT / "build/environments" / name
    python = Path(folder) / "bin/python"
    return python if python.exists() else None


def why_absent(name: str) -> str:
    if variable(name) in os.environ:
        return f"{variable(name)} names {os.environ[variable(name)]}, where no bin/python is"
    listed = ConfigParser(interpolation=None)
    listed.read(ROOT / "scripts/lib/environments.ini")
    option = {"plain": "scripts/test (without --quick)", "full": "scripts/test --full"}[listed[name]["made by"]]
    pythons = " or ".join(listed[name]["pythons"].split())
    return f"the environment {name} is not there: {option} makes it, with Python {pythons}"


def environment_python(name: str) -> Path:
    """The environment's Python. Skips the test if it does not exist."""
    python = find_environment(name)
    if python is None:
        pytest.skip(why_absent(name))
    return python
