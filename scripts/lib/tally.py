"""Adds up JUnit files: lists each failure and each skip with its reason, then the one closing line.

tally.py FOLDER [SUITE=STATUS ...]     SUITE=failed counts a suite that could not run as one failure.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def reason_of(element: ElementTree.Element) -> str:
    return (element.get("message") or (element.text or "").strip() or "no reason given").splitlines()[0]


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0])
    failures = [name.split("=")[0] for name in arguments[1:] if name.endswith("=failed")]
    passed = len([name for name in arguments[1:] if name.endswith("=passed")])
    skips = []
    for report in sorted(folder.glob("*.xml")):
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            name = f"{report.stem}: {case.get('classname', '')}.{case.get('name', '')}".replace(": .", ": ")
            skipped = case.find("skipped")
            if case.find("failure") is not None or case.find("error") is not None:
                failures.append(name)
            elif skipped is not None or case.get("status") in ("notrun", "disabled"):
                skips.append(f"{name}: {reason_of(skipped) if skipped is not None else 'not run'}")
            else:
                passed += 1
    print()
    for skip in skips:
        print(f"skipped  {skip}")
    for failure in failures:
        print(f"FAILED   {failure}")
    print(f"{passed} passed, {len(failures)} failed, {len(skips)} skipped")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
