"""Tests a wheel on a machine with an NVIDIA GPU: device tests, device benchmarks, figures. One command, no network.

    scripts/gpu_check WHEEL [--python PYTHON] [--nccl-tests FOLDER] [--np N]

PYTHON has torch for CUDA, numpy, pytest and hypothesis. The wheel is unpacked into a folder, and nothing is installed.
If PYTHON also has JAX for CUDA, compiled programs of JAX are tested too. FOLDER has NVIDIA's nccl-tests: the built
program (build/all_reduce_perf), or sources, which are built with `make` if nvcc and NCCL's headers are found. If mpirun
belongs to a GPU-aware Open MPI, the device tests also run with it (--backend cuda:mpi); otherwise a line says why they
do not. Exit codes: 0 all passed; 1 something failed; 2 wrong usage; 77 no GPU, or no torch for it (nothing was tested).
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOTHING_TESTED = 77
MANY_ON_ONE = 23000  # the first version of NCCL that lets ranks share a GPU
LIMIT = 2400  # seconds for one step: more than the sum of the tests' own limits
# Permissions for mpirun of Open MPI 4 and 5: in a container every user is root.
AS_ROOT = {f"{part}_ALLOW_RUN_AS_ROOT{end}": "1" for part in ("OMPI", "PRTE") for end in ("", "_CONFIRM")}


class Environment:
    """The unpacked wheel, and the environment variables for programs that use it."""

    def __init__(self, wheel: Path, python: str, folder: Path) -> None:
        self.python = python
        zipfile.ZipFile(wheel).extractall(folder)
        (scripts,) = folder.glob("*.data/scripts")
        self.command = scripts / "distrun"
        self.command.chmod(self.command.stat().st_mode | stat.S_IXUSR)
        self.variables = {**os.environ, "PYTHONPATH": str(folder), "PATH": f"{scripts}:{os.environ.get('PATH', '')}"}
        # An installed wheel finds PyPI's NCCL in its own site-packages.
        packages = self.run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip()
        libraries = f"{packages}/nvidia/nccl/lib:{os.environ.get('LD_LIBRARY_PATH', '')}"
        self.variables["LD_LIBRARY_PATH"] = libraries.rstrip(":")

    def run(self, *command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        words = [str(part) for part in command]
        with subprocess.Popen(
            words,
            env={**self.variables, **variables},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                output, errors = process.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                # The whole process group, because the launcher in it would keep the GPU from the next step.
                os.killpg(process.pid, signal.SIGKILL)
                output, errors = process.communicate()
                return subprocess.CompletedProcess(words, 124, output, f"{errors}\nnot done after {LIMIT} s")
        return subprocess.CompletedProcess(words, process.returncode, output, errors)

    def ask(self, expression: str) -> str:
        """Returns the value of an expression in this Python; "" if it fails."""
        return self.run(self.python, "-c", f"import torch\nprint({expression})").stdout.strip()


def why_nothing(environment: Environment) -> str:
    """Returns why nothing can be tested; "" if tests can run."""
    if not any(Path(node).exists() for node in ("/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-ctrl-gpu")):
        return "no NVIDIA GPU on this machine (/dev/nvidiactl is not there)"
    if environment.ask("torch.cuda.is_available()") != "True":
        return f"{environment.python} has no torch that finds a GPU; name one that has with --python"
    return ""


def report(title: str, done: subprocess.CompletedProcess[str]) -> bool:
    print(f"\n== {title}: {'ok' if done.returncode == 0 else f'FAILED ({done.returncode})'}")
    print(done.stdout.rstrip())
    if done.returncode != 0:
        print(done.stderr.rstrip()[-4000:])
    return done.returncode == 0


def choose_ranks(wanted: int, gpus: int, nccl: int) -> tuple[int, dict[str, str]]:
    """Returns the number of ranks, and the variables that let NCCL's ranks share GPUs."""
    ranks = wanted or (gpus if gpus > 1 else 2)
    if ranks <= gpus:
        return ranks, {}
    if nccl < MANY_ON_ONE:
        print(f"{gpus} GPU and NCCL {nccl}: ranks cannot share a GPU before NCCL 2.30, so there is one rank per GPU")
        return gpus, {}
    return ranks, {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}


def why_not_mpi(text: str) -> str:
    """Returns why this machine's MPI does not support CUDA tensors, from distrun's output; "" if it does not say so.

    The library may lack support, or belong to another launcher than mpirun.
    """
    lacks = re.search(r"no CUDA tensors: (.{1,160})", text)
    stranger = re.search(r"[^ ]+( \([^)]*\))? puts (this rank into a|the ranks into several) world.{1,100}", text)
    return lacks[1] if lacks else stranger[0] if stranger else ""


def why_no_mpirun(environment: Environment) -> str:
    """Returns why `distrun --mpi` cannot start ranks here; "" if no reason is known."""
    if shutil.which("mpirun") is None:
        return "there is no mpirun here"
    said = environment.run("mpirun", "--version").stdout.strip()
    if "Open MPI" in said:
        return ""
    return f"mpirun is not Open MPI's, which --mpi needs; it says: {' '.join(said.split())[:80] or 'nothing'}"


def by_mpi(environment: Environment, ranks: int) -> bool:
    """Runs the same operations with a GPU-aware MPI, if there is one."""
    title = f"device tests by MPI, {ranks} ranks"
    if missing := why_no_mpirun(environment):
        print(f"\n== {title}: not run: {missing}")
        return True
    program: list[str | Path] = [environment.python, "test/python/programs/gpu_ops.py"]
    start = (environment.command, "--mpi", "-np", str(ranks), "--backend", "cuda:mpi")
    done = environment.run(*start, *program, **AS_ROOT)
    why = why_not_mpi(done.stdout + done.stderr) if done.returncode != 0 else ""
    if why:
        print(f"\n== {title}: not run: {why}")
    return bool(why) or report(title, done)


def nccl_tests(environment: Environment, folder: str, gpus: int) -> bool:
    """Runs NVIDIA's nccl-tests for comparison, if the program is available."""
    program = shutil.which("all_reduce_perf")
    if folder and program is None:
        built = Path(folder) / "build/all_reduce_perf"
        if not built.exists():
            made = environment.run("make", "-C", folder, "-j", "4", "src.build")
            if made.returncode != 0:
                print(f"\n== nccl-tests cannot be built here:\n{made.stderr.rstrip()[-1000:]}")
        program = str(built) if built.exists() else None
    if program is None:
        print("\n== nccl-tests: not here; name its folder with --nccl-tests to have its figures beside ours")
        return True
    return report(
        "nccl-tests all_reduce_perf", environment.run(program, "-b", "4", "-e", "256M", "-f", "4", "-g", str(gpus))
    )


def check(options: argparse.Namespace, environment: Environment) -> int:
    why = why_nothing(environment)
    if why:
        print(f"gpu_check: nothing was tested: {why}")
        return NOTHING_TESTED
    gpus = int(environment.ask("torch.cuda.device_count()"))
    print(f"torch {environment.ask('torch.__version__')}, {gpus} x {environment.ask('torch.cuda.get_device_name(0)')}")
    passed = report("distrun check --build", environment.run(environment.command, "check", "--build"))
    nccl = int(
        environment.run(environment.python, "-c", "import torch, distrun\nprint(distrun.nccl_built())").stdout or 0
    )
    if nccl == 0:
        print("gpu_check: the wheel does not find NCCL; the line above says why")
        return 1
    ranks, variables = choose_ranks(options.np, gpus, nccl)
    pytest: list[str | Path] = [environment.python, "-m", "pytest", "-q", "-rs"]
    tests = [*pytest, "test/python/test_gpu.py", "--command", environment.command]  # not this Python's own
    passed = report("device tests", environment.run(*tests, **variables)) and passed
    passed = by_mpi(environment, ranks) and passed
    bench: list[str | Path] = [environment.command, "-np", str(ranks), environment.python, "bench/gpu_bench.py"]
    passed = report(f"device benchmark, {ranks} ranks", environment.run(*bench, **variables)) and passed
    return 0 if nccl_tests(environment, options.nccl_tests, gpus) and passed else 1


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/gpu_check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheel", type=Path, help="dist/distrun-*.whl, which scripts/wheel makes")
    parser.add_argument("--python", default=sys.executable, help="a Python with torch for CUDA (default: this one)")
    parser.add_argument("--nccl-tests", default="", metavar="FOLDER")
    parser.add_argument("--np", type=int, default=0, help="ranks (default: one per GPU, two on a single one)")
    options = parser.parse_args()
    if not zipfile.is_zipfile(options.wheel):
        parser.error(f"{options.wheel} is no wheel; scripts/wheel makes one in dist/")
    with tempfile.TemporaryDirectory() as folder:
        return check(options, Environment(options.wheel.resolve(), options.python, Path(folder)))


if __name__ == "__main__":
    sys.exit(main())
