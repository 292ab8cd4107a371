"""Adds up JUnit files: prints each skip with its reason, each failure with the end of its output, and a closing line.

tally.py FOLDER [SUITE=STATUS ...] [--left-out CASES]
                                       SUITE=passed, SUITE=failed and "SUITE=skipped: REASON" count as one test.
                                       SUITE=CODE is the exit code of a suite whose tests are in FOLDER/SUITE.xml. It
                                       counts as a failure if that file is missing, or if the code is not 0 and no
                                       test in the file has failed.
                                       CASES is the number of cases that only --full runs. Too large a share of all
                                       cases is a failure.
"""

from __future__ import annotations

import argparse
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

# A skipped case of a Catch2 executable. ctest's report has one test for the whole executable, with all its output.
SKIPPED_INSIDE = re.compile(r"^(\S.*:\d+): SKIPPED:\n(?:explicitly with messages?:\n((?:  .*\n)+))?", re.MULTILINE)

OVER_LIMIT = "124"  # timeout's exit code
MOST_LEFT_OUT = 0.15

# The part of a failed test's output to print. A run's closing lines are often all that is kept of it.
LINES_OF_A_FAILURE = 12
CHARACTERS_OF_A_LINE = 300


class Tally:
    def __init__(self) -> None:
        self.passed = 0
        self.failures: list[str] = []
        self.ends: dict[str, list[str]] = {}  # by failure
        self.skips: list[str] = []

    def add_report(self, report: Path) -> None:
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            self.add_case(
                f"{report.stem}: {case.get('classname', '')}.{case.get('name', '')}".replace(": .", ": "), case
            )

    def add_case(self, name: str, case: ElementTree.Element) -> None:
        inside = SKIPPED_INSIDE.findall(case.findtext("system-out") or "")
        self.skips += [
            f"{name}: {Path(where).name}: {' '.join(why.split()) or 'no reason given'}" for where, why in inside
        ]
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            self.failures.append(name)
            self.ends[name] = end_of(case)
        elif skipped is None and case.get("status") not in ("notrun", "disabled"):
            self.passed += 1
        elif not inside:
            self.skips.append(f"{name}: {reason_of(skipped) if skipped is not None else 'not run'}")

    def add_suite(self, folder: Path, name: str, status: str) -> None:
        if status == "passed":
            self.passed += 1
        elif status == "failed":
            self.failures.append(name)
        elif status.startswith("skipped: "):
            self.skips.append(f"{name}: {status.removeprefix('skipped: ')}")
        elif status == OVER_LIMIT:
            self.failures.append(f"{name}: over its limit{where(folder, name)}")
        elif not (folder / f"{name}.xml").exists():
            self.failures.append(f"{name}: ended with {status} and left no report{where(folder, name)}")
        elif status != "0" and not any(failure.startswith(f"{name}: ") for failure in self.failures):
            self.failures.append(f"{name}: ended with {status}, though no test in its report has failed")

    def add_left_out(self, cases: int) -> str:
        """Returns the share of these cases among all, as a text. Adds a failure if it is too large."""
        everything = cases + self.passed + len(self.failures) + len(self.skips)
        share = f"left to --full: {cases} of {everything} cases, {100 * cases / everything:.1f} %"
        if cases > MOST_LEFT_OUT * everything:
            self.failures.append(f"{share}: more than {100 * MOST_LEFT_OUT:.0f} %, see test/full_only.txt")
        return share


def where(folder: Path, suite: str) -> str:
    """Returns the test that was running, as a text; "" if unknown."""
    running = folder / f"{suite}.running"
    return f", in {running.read_text()}" if running.exists() else ""


def reason_of(element: ElementTree.Element) -> str:
    return (element.get("message") or (element.text or "").strip() or "no reason given").splitlines()[0]


def end_of(case: ElementTree.Element) -> list[str]:
    """Returns the end of a failed test's output. pytest puts the assertion into the message; ctest has only the
    output."""
    said = next((one for one in (case.find("failure"), case.find("error")) if one is not None), case)
    text = said.get("message") or case.findtext("system-out") or said.text or ""
    lines = [line.rstrip()[:CHARACTERS_OF_A_LINE] for line in text.splitlines() if line.strip()]
    return lines[-LINES_OF_A_FAILURE:]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("suites", nargs="*")
    parser.add_argument("--left-out", type=int)
    given = parser.parse_args(arguments)
    folder, tally = given.folder, Tally()
    for report in sorted(folder.glob("*.xml")):
        try:
            tally.add_report(report)
        except ElementTree.ParseError as error:
            tally.failures.append(f"{report.stem}: its report cannot be read: {error}")
    for suite in given.suites:
        tally.add_suite(folder, *suite.split("=", 1))
    print()
    if given.left_out is not None:
        print(tally.add_left_out(given.left_out))
    for skip in tally.skips:
        print(f"skipped  {skip}")
    for failure in tally.failures:
        print(f"FAILED   {failure}")
        for line in tally.ends.get(failure, []):
            print(f"         | {line}")
    print(f"{tally.passed} passed, {len(tally.failures)} failed, {len(tally.skips)} skipped")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
