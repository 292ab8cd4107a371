"""full_only.txt names tests that are there, and few."""

from __future__ import annotations

from pathlib import Path

from conftest import CASES_BESIDE, LISTED, full_only, names_without_a_test

from .conftest import ROOT

CASES = 1840  # of the plain run and --full's, when the list was last made longer


def test_few_are_left_out() -> None:
    assert LISTED and len(LISTED) + CASES_BESIDE <= 0.15 * CASES


def test_each_is_of_a_file_that_is_there() -> None:
    assert [name for name in LISTED if not (ROOT / "test" / name.partition("::")[0]).is_file()] == []


def test_a_line_has_faults_and_an_id_with_spaces() -> None:
    assert full_only("# why\n\n3 e2e/a.py::test_b[distrun -np 2]\n") == {"e2e/a.py::test_b[distrun -np 2]": 3}


def test_a_name_without_a_test_is_found_in_a_file_that_was_collected() -> None:
    files = {Path("/r/test/e2e/a.py")}
    listed = {"e2e/a.py::test_gone": 0, "e2e/a.py::test_there": 0, "e2e/b.py::test_of_another_file": 0}
    there = {"e2e/a.py::test_there"}
    assert names_without_a_test(listed, Path("/r/test"), files, there) == ["e2e/a.py::test_gone"]
