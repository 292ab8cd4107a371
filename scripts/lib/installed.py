"""Exit code 0 if every requirement given (name, name==version, name>=version) is installed in this environment."""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, version


def numbers(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", text.split("+")[0])]


def satisfied(requirement: str) -> bool:
    name, operator, wanted = (*re.split(r"(==|>=)", requirement, maxsplit=1), "", "")[:3]
    try:
        found = version(name.split("[")[0])
    except PackageNotFoundError:
        return False
    if operator == "==":
        return numbers(found) == numbers(wanted)
    return not operator or numbers(found) >= numbers(wanted)


sys.exit(0 if all(satisfied(requirement) for requirement in sys.argv[1:]) else 1)
