"""slow.txt and full_only.txt name existing tests. scripts/lib/tally.py limits their number."""

from __future__ import annotations

from pathlib import Path

import pytest
from left_out import FULL_ONLY, SLOW, cases_of, lines_of, listed_tests, names_without_a_test

from .conftest import ROOT

SOME = "# why\n\n3 e2e/a.py::test_b[distrun -np 2]\n0 e2e/a.py::test_c\n1 20 cases: under a sanitizer\n"


def test_each_is_of_a_file_that_is_there() -> None:
    listed = [*listed_tests(FULL_ONLY.read_text()), *lines_of(SLOW.read_text())]
    assert listed and len(set(listed)) == len(listed)
    assert [name for name in listed if not (ROOT / "test" / name.partition("::")[0]).is_file()] == []


def test_a_line_has_faults_and_an_id_with_spaces() -> None:
    assert listed_tests(SOME) == {"e2e/a.py::test_b[distrun -np 2]": 3, "e2e/a.py::test_c": 0}


def test_a_test_is_one_case_and_others_tell_theirs() -> None:
    assert cases_of(SOME) == 22


def test_a_line_of_another_form_is_refused() -> None:
    with pytest.raises(ValueError, match=r"neither 'FAULTS TEST' nor .*: e2e/a\.py::test_b"):
        cases_of("e2e/a.py::test_b\n")


def test_a_name_without_a_test_is_found_in_a_file_that_was_collected() -> None:
    files = {Path("/r/test/e2e/a.py")}
    listed = {"e2e/a.py::test_gone": 0, "e2e/a.py::test_there": 0, "e2e/b.py::test_of_another_file": 0}
    there = {"e2e/a.py::test_there"}
    assert names_without_a_test(listed, Path("/r/test"), files, there) == ["e2e/a.py::test_gone"]
