"""All that docs/cpp.md shows compiles, and what is no function runs on two ranks."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from .conftest import ROOT, StartJob, build_flags

PAGE = (ROOT / "docs/cpp.md").read_text()
# Where a block stands outside of functions.
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
{inside}
  return 0;
}}
"""


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert found, f"docs/cpp.md shows no {language}"
    return found


def build(compiler: list[str], source: Path, text: str) -> Path:
    source.write_text(text)
    program = source.with_suffix("")
    subprocess.run([*compiler, source, *build_flags(), "-o", program], check=True)
    return program


def test_the_first_program(start_job: StartJob, tmp_path: Path) -> None:
    (text,) = [block for block in blocks("cpp") if "int main" in block]
    job = start_job("-np", "2", build(["c++", "-std=c++17"], tmp_path / "first.cc", text))
    assert job.finish() == 0, job.text
    assert "2 ranks, average 0.5" in job.text, job.text


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
    program = build(
        ["cc"], tmp_path / "pieces.c", C.format(inside="".join(f"{{\n{block}}}\n" for block in blocks("c")))
    )
    done = subprocess.run([program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "call init first" in done.stderr, done.stderr
