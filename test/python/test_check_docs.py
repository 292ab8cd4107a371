"""The checks of pages and comments, and the scripts that generate pages."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from .test_scripts import ROOT, load


def load_program(path: str) -> ModuleType:
    """Loads a script whose name has no suffix."""
    loader = importlib.machinery.SourceFileLoader(Path(path).stem, str(ROOT / path))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up the module there
    loader.exec_module(module)
    return module


def test_the_wire_page_has_the_numbers_of_the_sources() -> None:
    docs = load("check_docs.py")
    page = (ROOT / docs.WIRE).read_text()
    assert docs.wire_faults(page) == []
    (fault,) = docs.wire_faults(page.replace("values 1 MiB", "values 2 MiB"))
    assert fault.startswith(f"{docs.WIRE}: says 'values 2 MiB,', but kMaxStoreValue in ")
    (fault,) = docs.wire_faults(page.replace("Limits before", "Limits in front of"))
    assert "no longer says" in fault


def test_a_path_in_a_comment_must_be_there() -> None:
    text = (
        '#include "test/gone.h"\n// See test/gone.cc, `make test/x` and /tmp/test/gone.cc.\nx = 1  # test/cgroups.py\n'
    )
    assert load("check_docs.py").comment_faults("a.cc", text) == ["a.cc: names test/gone.cc, which does not exist"]


def test_anchors_are_those_of_the_site() -> None:
    text = "# A rank, that `is` lost\n(mine)=\n## Same\n## Same\n### [Link](x.md) and _x_\n```sh\n# no heading\n```\n"
    expected = {"a-rank-that-is-lost", "mine", "same", "same-1", "link-and-_x_"}
    assert load("check_docs.py").anchors(text) == expected


def test_links_to_files_and_anchors() -> None:
    text = "# Here\n[a](#here) [b](#gone) [c](gone.md) [d](../../README.md) [e](https://x/#y) [f](wire.md#gone)\n"
    faults = load("check_docs.py").link_faults(Path("docs/internals/page.md"), text)
    assert [fault.partition("links to ")[2] for fault in faults] == [
        "#gone, and the page has no such anchor",
        "gone.md, which does not exist",
        "wire.md#gone, and the page has no such anchor",
    ]


def test_what_is_measured_on_a_page() -> None:
    prose = load("lib/prose.py")
    page = (
        "---\norphan: true\n---\n# One\n\nTwo words\nhere.\n\n- item one\n- item two\n\n% a comment\n"
        "```sh\ncode is no text\n```\n\n| a | b c |\n|---|---|\n| d e f | g |\n\n:::{note}\nInside it.\n:::\n"
    )
    found = prose.figures(page)
    assert found.paragraphs == ["Two words here.", "- item one", "- item two", "Inside it."]
    assert (found.cells, found.headings) == (["a", "b c", "d e f", "g"], 1)


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        ("word " * 61, "p: a paragraph of 61 words, at most 60"),
        ("| " + "word " * 16 + "|\n", "p: a cell of 16 words, at most 15"),
        ("# One\n\n" + ("word " * 44 + "\n\n") * 3, "p: 134 words per heading, at most 130"),
        ("It waits in vain.", "p: 'in vain' is hard to read"),
    ],
)
def test_faults_of_a_page(page: str, fault: str) -> None:
    (found,) = load("lib/prose.py").page_faults("p", page)
    assert found.startswith(fault)


def test_examples_of_all_pages() -> None:
    prose = load("lib/prose.py")
    page = "# One\n\n" + "word " * 100 + "\n\n```sh\nls\n```\n\n    an indented block\n    of two lines\n"
    assert prose.figures(page).examples == 2
    assert prose.example_faults([page, "word " * 120]) == []
    (fault,) = prose.example_faults([page, "word " * 140])
    assert fault == "pages: 126 words per example, at most 120: add code blocks"


def test_odd_idiom_in_a_thousand_words() -> None:
    prose = load("lib/prose.py")
    assert sorted(prose.idiom("What is there waits. The rank is told.")) == ["What is", "is told"]
    assert prose.per_thousand(["told of " + "word " * 498, "word " * 500]) == 1.0


def test_comments_of_a_source() -> None:
    prose = load("lib/prose.py")
    assert prose.cxx_comments('x = "http://a";  // one\n// two\n') == "one two"
    assert prose.python_comments('"""Doc."""\nx = 1  # one\n') == "one Doc."


SHORT = """\
Starts N copies.

Usage: distrun [options] program

Start ranks:
  -n, --np N                     How many ranks

Examples:
  distrun -np 4 python train.py

More.
"""
LONG = """\
Start ranks:

  -n N, --np N
      How many ranks.

      These work, and this line is
      continued:

      - -n4: as in mpirun, with a line
        that is continued
      - --np=4

        distrun -np 4 a

Protect tensors:

  --encrypt[=yes|no]
      Encrypt *tensors*.
"""


def test_the_page_of_the_command() -> None:
    page = load_program("scripts/command_page").page_of({"distrun": (SHORT, LONG)})
    assert "```text\nStarts N copies.\n\nUsage: distrun [options] program\n```\n" in page
    assert (
        "## Start ranks\n\n:::{option} -n N, --np N\nHow many ranks.\n\nThese work, and this line is continued:\n"
        in page
    )
    assert (
        "\n\n- -n4: as in mpirun, with a line that is continued\n- --np=4\n\n```text\ndistrun -np 4 a\n```\n:::\n"
        in page
    )
    assert "## Protect tensors\n\n:::{option} --encrypt[=yes|no]\nEncrypt \\*tensors\\*.\n" in page
    assert "Setting: [encrypt](settings.md#encrypt)." in page
    assert page.endswith("## Examples\n\n```text\ndistrun -np 4 python train.py\n```\n")


def test_headers_for_doxygen() -> None:
    as_doxygen = load("../docs/_extensions/doxygen_filter.py").as_doxygen
    assert as_doxygen("// Waits <T>.", False) == ("/// Waits \\<T\\>.", False)
    assert as_doxygen("  int a;  // one", False) == ("  int a;  ///< one", False)
    assert as_doxygen("/* Waits", False) == ("/** Waits", True)
    assert as_doxygen(" * for `T<x>`. */", True) == (" * for `T<x>`. */", False)
    assert as_doxygen("    call();  // inside a function", False) == ("    call();  // inside a function", False)


def test_links_of_the_built_site(tmp_path: Path) -> None:
    site = load("lib/site_check.py")
    text = (
        "<script src='https://cdn.example/x.js'></script><a href='https://example.org'>x</a><a href='b.html#top'>b</a>"
        "<a href='b.html#gone'>b</a><a href='c.html'>c</a><img src='gone.svg'><a href='#top'>up</a>"
    )
    pages = {}
    for name, page in {"a.html": text, "b.html": "<h1 id='top'>B</h1>"}.items():
        (tmp_path / name).write_text(page)
        pages[tmp_path / name] = site.Page(page)
    assert [fault.partition("a.html: ")[2] for fault in site.link_faults(pages)] == [
        "loads https://cdn.example/x.js from another host",
        "links to b.html#gone, and the page has no such anchor",
        "links to c.html, which does not exist",
        "links to #top, and the page has no such anchor",
        "links to gone.svg, which does not exist",
    ]


def test_public_names_are_read_without_an_import() -> None:
    names = load("lib/site_check.py").names_of("distrun.torch", {})
    assert {"init", "allreduce_async_", "DistributedOptimizer", "RankLost"} <= set(names)
