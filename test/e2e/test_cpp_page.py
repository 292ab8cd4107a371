"""All code on the pages about C++ and C compiles, and the pieces of C++ run on two ranks."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from .conftest import ROOT, StartJob, build_flags

PAGES = [(ROOT / "docs" / page).read_text() for page in ("start/cpp.md", "reference/cpp.md", "reference/c-api.md")]
PAGE = "\n".join(PAGES)
# The beginning of a block that must stand outside of functions.
OUTSIDE = re.compile(r"(?:void|struct|template) ")
CPP = """
#include <distrun/distrun.hpp>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>
{outside}
int main() {{
  distrun::Session session;
{inside}
  library_call(std::vector<float>(1).data(), 1);
  session.barrier();
  if (session.rank() == 0) std::printf("the page runs\\n");
}}
"""
C = """
#include <distrun/distrun.h>
#include <stdio.h>
int main(void) {{
  distrun_session* session = NULL;
  distrun_handle* handle = NULL;
  distrun_watch* watch = NULL;
  distrun_op op = DISTRUN_INIT(distrun_op);
  void* tag = NULL;
  int32_t code = DISTRUN_OK;
{inside}
  return 0;
}}
"""


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert found, f"the pages show no {language}"
    return [block for block in found if block.strip() != "#include <distrun/distrun.hpp>"]


def build(compiler: list[str], source: Path, text: str) -> Path:
    source.write_text(text)
    program = source.with_suffix("")
    subprocess.run([*compiler, source, *build_flags(), "-o", program], check=True)
    return program


@pytest.mark.parametrize("standard", ["c++17", "c++20"])
def test_every_piece_of_cpp(start_job: StartJob, tmp_path: Path, standard: str) -> None:
    pieces = [block for block in blocks("cpp") if "int main" not in block]
    outside = [piece for piece in pieces if OUTSIDE.match(piece)]
    inside = ["{\n" + piece + "}\n" for piece in pieces if piece not in outside]
    text = CPP.format(outside="".join(outside), inside="".join(inside)).replace("/tmp/trace.json", f"{tmp_path}/t.json")
    job = start_job("-np", "2", build(["c++", f"-std={standard}"], tmp_path / "pieces.cc", text))
    assert job.finish() == 0, job.text
    assert "the page runs" in job.text and "code 1 (invalid argument)" in job.text, job.text
    assert (tmp_path / "t.json").stat().st_size > 0


def test_every_piece_of_c(tmp_path: Path) -> None:
    """The pieces are not run, since they only make sense together. The pages' programs run in test/docs."""
    pieces = [block for block in blocks("c") if "int main" not in block]
    build(["cc", "-Wall"], tmp_path / "pieces.c", C.format(inside="".join(f"{{\n{piece}}}\n" for piece in pieces)))
